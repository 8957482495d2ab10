"""What brokers ask of a push consumer, and what it answers."""

import asyncio

import pytest

from tests.unit.client.pushing import (
    TOPIC,
    Inbox,
    ask,
    by_notice_only,
    consumer,
    eventually,
    numbered,
    play,
    send,
    stored_offset,
)
from trimtab.client.push import PushConsumer
from trimtab.client.push_outcomes import ConsumeLater
from trimtab.client.received import Received
from trimtab.model import MessageQueue
from trimtab.testing import AsyncCluster
from trimtab.wire.bodies import (
    Body,
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import GetConsumerStatus, ResetOffset
from trimtab.wire.headers.base import Header
from trimtab.wire.headers.callbacks import ConsumeMessageDirectly, GetConsumerRunningInfo


async def sent(cluster: AsyncCluster, count: int) -> None:
    await send(cluster, numbered(count))


def held(it: PushConsumer) -> dict[MessageQueue, int]:
    return {holding.queue: holding.offset for holding in it.holdings() if holding.queue.topic == TOPIC}


async def answer_of(cluster: AsyncCluster, code: RequestCode, header: Header, kind: type[Body]) -> Body:
    answer = await ask(cluster, code, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_body(kind, answer.body)


@pytest.mark.parametrize("ordered", [False, True])
def test_running_info_tells_what_tools_parse(ordered: bool) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await sent(cluster, 12)
        inbox = Inbox()
        async with consumer(cluster, inbox, ordered=ordered) as it:
            await eventually(lambda: sum(held(it).values()) == 12, "all consumed")
            header = GetConsumerRunningInfo(consumer_group="g", client_id=it.client_id, jstack_enable=True)
            info = await answer_of(
                cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, header, ConsumerRunningInfo
            )
            assert isinstance(info, ConsumerRunningInfo)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 1_600_000_000_000
            assert info.properties["PROP_CONSUMEORDERLY"] == str(ordered).lower()
            assert info.properties["PROP_CLIENT_VERSION"] == "V4_9_3"
            assert {data.topic for data in info.subscription_set} == {TOPIC, "%RETRY%g"}
            assert {queue: info.mq_table[queue].commit_offset for queue in held(it)} == held(it)
            assert all(info.mq_table[queue].locked is ordered for queue in held(it))
            assert set(info.status_table) == {TOPIC, "%RETRY%g"}
            assert "test_push_requests" in (info.jstack or "")

    play(scenario)


def test_consumer_status_is_the_table_of_offsets() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await sent(cluster, 12)
        async with consumer(cluster, Inbox()) as it:
            await eventually(lambda: sum(held(it).values()) == 12, "all consumed")
            header = GetConsumerStatus(topic=TOPIC, group="g")
            body = await answer_of(
                cluster, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header, GetConsumerStatusBody
            )
            assert isinstance(body, GetConsumerStatusBody)
            assert body.consumer_table == {it.client_id: held(it)}

    play(scenario)


def test_offsets_that_an_operator_sets_are_gone_on_from() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await sent(cluster, 12)
        inbox = Inbox()
        async with consumer(cluster, inbox, consuming=by_notice_only()) as it:
            await eventually(lambda: sum(held(it).values()) == 12, "all consumed")
            queues = list(held(it))
            await eventually(lambda: len(inbox.messages) == 12, "all came")
            while -1 in [await stored_offset(cluster, queue) for queue in queues]:
                await it._engine.store_offsets()
            header = ResetOffset(topic=TOPIC, group="g", timestamp=0, is_force=True)
            body = await answer_of(
                cluster, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, ResetOffsetBody
            )
            assert isinstance(body, ResetOffsetBody)
            assert set(body.offset_table.values()) == {0}
            await eventually(lambda: len(inbox.messages) == 24, "all came again")
            await eventually(lambda: sum(held(it).values()) == 12, "all consumed again")
        assert sum([await stored_offset(cluster, queue) for queue in queues]) == 12

    play(scenario)


def test_a_message_can_be_handled_right_now_without_any_offset() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await sent(cluster, 1)
        seen: list[Received] = []
        raises: list[BaseException] = []

        async def handle(message: Received) -> None:
            seen.append(message.detach())
            if raises:
                raise raises[0]

        async with consumer(cluster, handle) as it:
            await eventually(lambda: len(seen) == 1, "it came")
            offsets = held(it)

            async def directly() -> ConsumeMessageDirectlyResult:
                header = ConsumeMessageDirectly(
                    consumer_group="g",
                    client_id=it.client_id,
                    msg_id=seen[0].offset_message_id,
                    broker_name="broker-a",
                )
                result = await answer_of(
                    cluster, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, ConsumeMessageDirectlyResult
                )
                assert isinstance(result, ConsumeMessageDirectlyResult)
                return result

            assert (await directly()).consume_result is ConsumeResult.CR_SUCCESS
            raises.append(ConsumeLater())
            assert (await directly()).consume_result is ConsumeResult.CR_LATER
            raises[0] = ValueError("broken")
            result = await directly()
            assert (result.consume_result, result.remark) == (
                ConsumeResult.CR_THROW_EXCEPTION,
                "ValueError: broken",
            )
            raises[0] = asyncio.CancelledError()
            result = await directly()
            assert (result.consume_result, result.remark) == (
                ConsumeResult.CR_THROW_EXCEPTION,
                "CancelledError: ",
            )
            await asyncio.sleep(0)
            assert [message.body for message in seen] == [b"0"] * 5
            assert held(it) == offsets or sum(held(it).values()) == 1

    play(scenario)


def test_a_handler_that_takes_too_long_with_a_message_for_now_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trimtab.client.push_requests.DIRECTLY_S_MAX", 0.05)

    async def scenario(cluster: AsyncCluster) -> None:
        await sent(cluster, 1)
        seen: list[Received] = []

        async def handle(message: Received) -> None:
            seen.append(message.detach())
            if len(seen) > 1:
                await asyncio.Event().wait()

        async with consumer(cluster, handle) as it:
            await eventually(lambda: len(seen) == 1, "it came")
            header = ConsumeMessageDirectly(
                consumer_group="g", client_id=it.client_id, msg_id=seen[0].offset_message_id
            )
            code = RequestCode.CONSUME_MESSAGE_DIRECTLY
            result = await answer_of(cluster, code, header, ConsumeMessageDirectlyResult)
            assert isinstance(result, ConsumeMessageDirectlyResult)
            assert result.consume_result is ConsumeResult.CR_THROW_EXCEPTION
            assert result.remark == "the handler did not end within 0.05 s and was cancelled"

    play(scenario)
