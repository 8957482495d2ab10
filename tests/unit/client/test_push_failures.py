"""What happens when handlers, brokers or offsets go wrong: nothing is skipped, and a line says so (promise G8)."""

import asyncio
import logging

import pytest

from tests.unit.client.pushing import (
    QUICK,
    TOPIC,
    Inbox,
    consumer,
    eventually,
    numbered,
    play,
    send,
    set_offset,
    stored_offset,
)
from trimtab.broker.settings import BrokerSettings
from trimtab.client.admin import Admin
from trimtab.client.producer import Producer
from trimtab.client.push_outcomes import ConsumeLater, level_of
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.errors import SettingsError
from trimtab.model import Message, MessageQueue
from trimtab.settings import Pulling
from trimtab.testing import AsyncCluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command

DLQ = "%DLQ%g"
ONE_QUEUE = MessageQueue("single", "broker-a", 0)


async def send_to_one_queue(cluster: AsyncCluster, count: int, start: int = 0) -> None:
    async with Producer("pg", nameserver=cluster.nameserver) as producer:
        for number in range(start, start + count):
            await producer.send(Message("single", b"%d" % number), queue=ONE_QUEUE)


def refuse(_: Command) -> Command:
    return Command(code=ResponseCode.SYSTEM_ERROR, opaque=0, remark="refused by the test")


def test_a_message_whose_handler_raises_comes_again_under_its_own_topic() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1, tag="a", keys=["k"]))
        seen: list[tuple[int, str, str | None, str]] = []

        async def handle(message: Received) -> None:
            seen.append((message.reconsume_times, message.topic, message.tag, message.message_id))
            if message.reconsume_times < 2:
                raise ValueError("not yet")

        async with consumer(cluster, handle, subscribe={TOPIC: "a"}):
            await eventually(lambda: len(seen) == 3, "three tries")
        assert [times for times, *_ in seen] == [0, 1, 2]
        assert {rest[1:] for rest in seen} == {(TOPIC, "a", seen[0][3])}

    play(scenario, settings=QUICK)


def test_after_the_last_try_a_message_is_a_dead_letter() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        tries = 0

        async def handle(message: Received) -> None:
            nonlocal tries
            tries += 1
            raise ValueError("never")

        dead = Inbox()
        async with consumer(cluster, handle, consuming=Consuming(reconsume_times_max=1)):
            await eventually(lambda: tries == 2, "two tries")
            async with consumer(cluster, dead, "undertaker", subscribe={DLQ: "*"}):
                await eventually(lambda: dead.bodies == [b"0"], "the dead letter")
        assert tries == 2

    play(scenario, settings=QUICK)


def test_consume_later_says_when_and_may_say_never() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(2))
        levels: dict[str, int] = {}

        def note(command: Command) -> None:
            levels[command.ext["originMsgId"]] = int(command.ext["delayLevel"])

        cluster.intercept(RequestCode.CONSUMER_SEND_MSG_BACK, note)
        ids: dict[bytes, str] = {}

        async def handle(message: Received) -> None:
            ids[message.body] = message.message_id
            if message.body == b"0":
                raise ConsumeLater(after_s=45)
            raise ConsumeLater(delay_level=-1)

        dead = Inbox()
        async with consumer(cluster, handle):
            await eventually(lambda: len(levels) == 2, "both are back")
            async with consumer(cluster, dead, "undertaker", subscribe={DLQ: "*"}):
                await eventually(lambda: dead.bodies == [b"1"], "the dead letter")
        assert levels == {ids[b"0"]: 5, ids[b"1"]: -1}

    play(scenario)


@pytest.mark.parametrize(
    ("after_s", "level"), [(0.1, 1), (1, 1), (1.5, 2), (60, 5), (7_200, 18), (10**6, 18)]
)
def test_a_time_becomes_the_level_that_is_nearest_above_it(after_s: float, level: int) -> None:
    assert level_of(after_s) == ConsumeLater(after_s=after_s).delay_level == level
    with pytest.raises(SettingsError):
        ConsumeLater(3, after_s=after_s)


def test_of_a_batch_only_what_was_not_consumed_comes_again() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one_queue(cluster, 6)
        seen: list[tuple[int, bytes]] = []

        async def handle(messages: list[Received]) -> None:
            seen.extend((message.reconsume_times, message.body) for message in messages)
            if messages[0].reconsume_times == 0:
                raise ConsumeLater(consumed=len(messages) - 1)

        pulling = Pulling(pull_messages_max=6)
        async with consumer(
            cluster, handle, subscribe={"single": "*"}, batch_messages_max=6, pulling=pulling
        ):
            await eventually(lambda: any(times for times, _ in seen), "the second try")
        first = [body for times, body in seen if times == 0]
        assert sorted(first) == [b"%d" % number for number in range(6)]
        assert b"5" in [body for times, body in seen if times == 1]
        assert len([body for times, body in seen if times == 1]) < 6

    play(scenario, settings=QUICK)


def test_g8_a_message_that_cannot_be_sent_back_is_tried_here_and_holds_the_offset() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one_queue(cluster, 3)
        stop_refusing = [
            cluster.intercept(code, refuse)
            for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2)
        ]
        tries: list[int] = []

        async def handle(message: Received) -> None:
            if message.body == b"1":
                tries.append(message.reconsume_times)
                raise ValueError("no")

        consuming = Consuming(local_retry_s=0.02)
        async with consumer(cluster, handle, subscribe={"single": "*"}, consuming=consuming) as it:
            await eventually(lambda: len(tries) >= 3, "tried here again and again")
            offsets = {holding.queue: holding.offset for holding in it.holdings()}
            assert offsets[ONE_QUEUE] == 1
            for stop in stop_refusing:
                stop()
            await eventually(
                lambda: {holding.queue: holding.offset for holding in it.holdings()}[ONE_QUEUE] == 3,
                "it was sent back",
            )
        assert tries[:3] == [0, 1, 2]
        assert await stored_offset(cluster, ONE_QUEUE) == 3

    play(scenario)


def test_when_sending_back_fails_the_message_is_sent_anew_to_the_retry_topic() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1, tag="a", properties={"p": "v"}))
        cluster.intercept(RequestCode.CONSUMER_SEND_MSG_BACK, refuse)
        seen: list[Received] = []

        async def handle(message: Received) -> None:
            seen.append(message.detach())
            if len(seen) == 1:
                raise ValueError("once")

        async with consumer(cluster, handle):
            await eventually(lambda: len(seen) == 2, "the second try")
        again = seen[1]
        assert (again.reconsume_times, again.topic, again.tag, again.properties["p"]) == (1, TOPIC, "a", "v")

    play(scenario, settings=QUICK)


def test_g8_a_handler_that_hangs_holds_the_offset_and_its_message_comes_again_after_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one_queue(cluster, 10)
        done: list[bytes] = []

        async def hang_at_4(message: Received) -> None:
            if message.body == b"4":
                await asyncio.sleep(3_600)
            done.append(message.body)

        consuming = Consuming(drain_s_max=0.1)
        async with consumer(cluster, hang_at_4, subscribe={"single": "*"}, consuming=consuming):
            await eventually(lambda: len(done) == 9, "all but one")
        assert await stored_offset(cluster, ONE_QUEUE) == 4
        inbox = Inbox()
        async with consumer(cluster, inbox, subscribe={"single": "*"}):
            await eventually(lambda: len(inbox.messages) == 6, "what was not safe")
        assert inbox.bodies == [b"%d" % number for number in range(4, 10)]

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert "1 handlers are at work to the end" in caplog.text


def test_a_handler_that_takes_too_long_is_cancelled_and_its_message_sent_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one_queue(cluster, 3)
        levels: list[int] = []
        cluster.intercept(
            RequestCode.CONSUMER_SEND_MSG_BACK, lambda command: levels.append(int(command.ext["delayLevel"]))
        )
        cancelled = asyncio.Event()

        async def handle(message: Received) -> None:
            if message.body == b"1" and not message.reconsume_times:
                try:
                    await asyncio.sleep(3_600)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

        consuming = Consuming(handler_s_max=0.3, concurrency=1)
        async with consumer(cluster, handle, subscribe={"single": "*"}, consuming=consuming) as it:
            await eventually(
                lambda: {holding.queue: holding.offset for holding in it.holdings()}.get(ONE_QUEUE) == 3,
                "the only worker is free again",
            )
            assert cancelled.is_set()
            assert levels == [3]

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert "took more than 0.3 s" in caplog.text


def test_what_a_handler_returns_does_not_matter() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one_queue(cluster, 4)
        nonsense = iter([42, False, "RECONSUME_LATER", object()])

        async def handle(message: Received) -> object:
            return next(nonsense)

        async with consumer(cluster, handle, subscribe={"single": "*"}) as it:
            await eventually(
                lambda: {holding.queue: holding.offset for holding in it.holdings()}.get(ONE_QUEUE) == 4,
                "all consumed",
            )

    play(scenario)


def test_a_plain_function_that_gives_back_a_coroutine_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        came = 0

        async def really(message: Received) -> None:
            raise AssertionError("nobody awaits it")

        def handle(message: Received) -> object:
            nonlocal came
            came += 1
            return really(message) if came == 1 else None

        async with consumer(cluster, handle):
            await eventually(lambda: came == 2, "it came again")

    with caplog.at_level(logging.WARNING):
        play(scenario, settings=QUICK)
    assert "gave back a coroutine: nothing was handled" in caplog.text


@pytest.mark.parametrize("ordered", [False, True])
def test_a_handler_that_is_cancelled_from_inside_has_failed(ordered: bool) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        tries = 0

        async def handle(message: Received) -> None:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise asyncio.CancelledError

        async with consumer(cluster, handle, ordered=ordered, consuming=Consuming(suspend_ms=10)):
            await eventually(lambda: tries == 2, "it came again")

    play(scenario, settings=QUICK)


def test_after_a_broker_s_crash_and_return_messages_go_on() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(20))
        inbox = Inbox()
        async with consumer(cluster, inbox):
            await eventually(lambda: len(inbox.messages) >= 20, "the first ones")
            await cluster.kill("broker-a")
            await cluster.restart("broker-a")
            await send(cluster, numbered(20, start=20))
            await eventually(lambda: len(set(inbox.bodies)) == 40, "the others")

    play(scenario)


def test_a_stored_offset_beyond_the_end_is_mended_and_a_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one_queue(cluster, 5)
        await set_offset(cluster, ONE_QUEUE, 900)
        inbox = Inbox()
        async with consumer(cluster, inbox, subscribe={"single": "*"}) as it:
            await eventually(
                lambda: {holding.queue: holding.offset for holding in it.holdings()}.get(ONE_QUEUE) == 5,
                "it is where the broker says",
            )
            await send_to_one_queue(cluster, 3, start=5)
            await eventually(lambda: inbox.bodies == [b"5", b"6", b"7"], "the new ones")
        assert await stored_offset(cluster, ONE_QUEUE) == 8

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert (
        f"offset 900 of {ONE_QUEUE} is not there, the broker has 0 to 5; reading goes on at 5" in caplog.text
    )


def test_an_offset_that_cannot_be_read_starts_nothing_until_it_can() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(5))
        stop = cluster.intercept(RequestCode.QUERY_CONSUMER_OFFSET, refuse)
        inbox = Inbox()
        async with consumer(cluster, inbox, consuming=Consuming(rebalance_every_s=0.05)) as it:
            asked = 0

            def count(_: Command) -> None:
                nonlocal asked
                asked += 1

            cluster.intercept(RequestCode.GET_CONSUMER_LIST_BY_GROUP, count)
            await eventually(lambda: asked > 6, "some rounds")
            assert it.holdings() == ()
            stop()
            await eventually(lambda: len(inbox.messages) == 5, "all came")

    play(scenario)


def test_a_group_that_the_broker_does_not_know_is_told_in_the_log_and_goes_on_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(5))

        def deleted(_: Command) -> Command:
            code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            return Command(code=code, opaque=0, remark="subscription group [g] does not exist")

        stop = cluster.intercept(RequestCode.PULL_MESSAGE, deleted)
        inbox = Inbox()
        async with consumer(cluster, inbox):
            await eventually(lambda: "create the group" in caplog.text, "the line")
            stop()
            await eventually(lambda: len(inbox.messages) == 5, "all came")

    with caplog.at_level(logging.WARNING):
        play(scenario)


@pytest.mark.parametrize("mode", ["classic", "leased"])
@pytest.mark.parametrize("brokers_make_groups", [False, True])
def test_a_group_that_is_deleted_while_it_consumes_misses_nothing(
    mode: str, brokers_make_groups: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With its offsets and its retry topic, by the request that `group delete` sends."""

    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(20))
        inbox = Inbox()
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_group("g")
            consuming = Consuming(rebalance_every_s=0.5, offsets_every_s=0.1)
            async with consumer(cluster, inbox, mode=mode, consuming=consuming):
                await eventually(lambda: len(inbox.messages) == 20, "all came")
                await admin.delete_group("g")
                await send(cluster, numbered(20, start=20))
                if not brokers_make_groups:
                    await eventually(lambda: "create the group" in caplog.text, "the line")
                    await admin.create_group("g")
                await eventually(lambda: len(set(inbox.bodies)) == 40, "the new ones came")
            queues = [MessageQueue(TOPIC, "broker-a", number) for number in range(4)]
            assert sum([await stored_offset(cluster, queue) for queue in queues]) == 40

    with caplog.at_level(logging.WARNING):
        play(scenario, settings=BrokerSettings(auto_create_groups=brokers_make_groups))


def test_members_that_want_different_things_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        consuming = Consuming(rebalance_every_s=0.05)
        async with (
            consumer(cluster, Inbox(), subscribe={TOPIC: "a"}, consuming=consuming),
            consumer(cluster, Inbox(), subscribe={TOPIC: "b"}, consuming=consuming),
        ):
            await eventually(lambda: "do not want the same of topic orders" in caplog.text, "the line")
            await asyncio.sleep(0.3)

    with caplog.at_level(logging.WARNING):
        play(scenario)
    lines = [
        record.getMessage() for record in caplog.records if "do not want the same" in record.getMessage()
    ]
    assert len(lines) == len(set(lines)) <= 2


def test_drain_waits_for_handlers_at_work_and_their_messages_count() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one_queue(cluster, 5)
        begun, ended = 0, 0

        async def handle(message: Received) -> None:
            nonlocal begun, ended
            begun += 1
            await asyncio.sleep(0.2)
            ended += 1

        async with consumer(cluster, handle, subscribe={"single": "*"}, consuming=Consuming(concurrency=2)):
            await eventually(lambda: begun >= 2, "two are at work")
        assert ended == begun
        assert await stored_offset(cluster, ONE_QUEUE) == ended

    play(scenario)
