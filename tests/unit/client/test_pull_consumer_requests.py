"""What brokers and operators ask of a pull consumer: how it is, how far it is, and to go on elsewhere."""

import asyncio

import pytest

from tests.unit.client.pull_scenes import ONE, play, send_to_one, until
from tests.unit.client.pushing import ask, stored_offset
from trimtab.client.admin import Admin
from trimtab.client.holdings import PROPERTY, read_holdings
from trimtab.client.pull_consumer import PullConsumer
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.testing import AsyncCluster
from trimtab.wire.bodies import ConsumerRunningInfo, GetConsumerStatusBody
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import GetConsumerStatus, ResetOffset
from trimtab.wire.headers.callbacks import GetConsumerRunningInfo


def sharing(cluster: AsyncCluster) -> PullConsumer:
    return PullConsumer("g", subscribe={"orders": "*"}, nameserver=cluster.nameserver, start="first")


def test_running_info_tells_what_tools_parse() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 12)
        async with sharing(cluster) as it:
            while it.position(ONE) < 12:
                await it.poll(1)
            await it.commit()
            header = GetConsumerRunningInfo(consumer_group="g", client_id=it.client_id, jstack_enable=True)
            answer = await ask(cluster, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            info = decode_body(ConsumerRunningInfo, answer.body)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
            assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 1_600_000_000_000
            assert [data.topic for data in info.subscription_set] == ["orders"]
            assert set(info.mq_table) == set(it.assigned)
            assert info.mq_table[ONE].commit_offset == it.position(ONE)
            assert "test_pull_consumer_requests" in (info.jstack or "")

            held = read_holdings(info.properties[PROPERTY])
            assert {one.queue for one in held} == set(it.assigned)
            assert all(one.since_ms > 1_600_000_000_000 and one.lease_age_ms is None for one in held)

            status = await ask(
                cluster, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatus(topic="orders", group="g")
            )  # fmt: skip
            table = decode_body(GetConsumerStatusBody, status.body).consumer_table
            assert table[it.client_id][ONE] == it.position(ONE)

    play(scenario)


def test_an_operator_sets_offsets_and_everything_comes_again() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 12)
        async with sharing(cluster) as it:
            while it.position(ONE) < 12:
                await it.poll(1)
            end = it.position(ONE)
            await it.commit()
            header = ResetOffset(topic="orders", group="g", timestamp=0, is_force=True)
            assert (await ask(cluster, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)).code == 0
            await until(lambda: it.position(ONE) == 0)
            while await stored_offset(cluster, ONE) != 0:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
            again = 0
            while it.position(ONE) < end:
                again += len(await it.poll(1))
            assert again >= 12

    play(scenario)


def test_a_message_cannot_be_handled_directly_where_there_is_no_handler() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 1)
        async with sharing(cluster) as it, Admin(nameserver=cluster.nameserver) as admin:
            message = (await it.poll(10))[0]
            with pytest.raises(TrimtabError):
                await admin.handle_directly("g", it.client_id, message.offset_message_id)

    play(scenario)


def test_c10_a_queue_that_was_laid_aside_goes_on_where_it_was_left_although_the_commit_was_lost() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 12)
        other = MessageQueue("orders", "broker-a", 1)

        def refuse(_: Command) -> Command:
            return Command(code=ResponseCode.SYSTEM_ERROR, opaque=0, remark="refused by the test")

        options = {"nameserver": cluster.nameserver, "start": "first", "auto_commit_s": 3_600.0}
        async with PullConsumer("g", **options) as it:  # type: ignore[arg-type]
            await it.assign([ONE])
            while it.position(ONE) < 12:
                await it.poll(1)
            await it.poll(0.01)  # what was handed out is done
            stop = cluster.intercept(RequestCode.UPDATE_CONSUMER_OFFSET, refuse)
            await it.assign([other])
            stop()
            assert not await it.committed(ONE)
            await it.assign([ONE])
            assert it.position(ONE) >= 12
            await it.commit()

    play(scenario)
