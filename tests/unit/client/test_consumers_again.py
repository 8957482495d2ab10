"""Consumers whose users are hasty: started again, cancelled in the middle, with callbacks that hang, with filters that nobody takes."""

import asyncio
import logging
from typing import Any

import pytest

from tests.unit.client.pushing import (
    TOPIC,
    Inbox,
    consumer,
    eventually,
    numbered,
    play,
    send,
    stored_offset,
)
from tests.unit.client.test_push_leased import join_as_java
from trimtab.client.admin import Admin
from trimtab.client.pull_consumer import PullConsumer
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.client.subscriptions import SQL
from trimtab.errors import SettingsError, SubscriptionParseFailedError
from trimtab.model import Message, MessageQueue
from trimtab.testing import AsyncCluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command

QUEUES = 4


@pytest.mark.parametrize("mode", ["classic", "leased"])
def test_a_closed_push_consumer_can_be_started_again_with_a_plain_handler_and_a_trace(mode: str) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        got: list[bytes] = []

        def handle(message: Received) -> None:
            got.append(message.body)

        it = consumer(cluster, handle, mode=mode, consuming=Consuming(trace=True))
        for life in range(2):
            await send(cluster, numbered(5, start=5 * life))
            async with it:
                await eventually(lambda: len(got) >= 5 * (life + 1), "all came")  # noqa: B023 - awaited at once
        assert sorted(got, key=int) == [b"%d" % number for number in range(10)]
        async with PullConsumer("tracers", nameserver=cluster.nameserver, start="first") as reader:
            await reader.assign(await reader.queues("RMQ_SYS_TRACE_TOPIC"))
            told = ""
            while told.count("SubAfter") < 10:
                told += "".join(message.body.decode() for message in await reader.poll(1))
            await asyncio.sleep(0)
        assert told.count("SubBefore") == told.count("SubAfter") == 10, "each call is told once"

    play(scenario)


def test_a_pull_consumer_that_is_started_twice_has_one_session_and_starts_again_after_its_end() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        it = PullConsumer("g", subscribe={TOPIC: "*"}, nameserver=cluster.nameserver, start="first")
        await it.start()
        session = it.session
        await it.start()
        assert it.session is session
        assert len(it.assigned) == QUEUES
        await it.close()
        before = len(asyncio.all_tasks())
        async with it:
            assert len(it.assigned) == QUEUES
        await eventually(lambda: len(asyncio.all_tasks()) <= before, "nothing is left")

    play(scenario)


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked"])
@pytest.mark.parametrize("mode", ["classic", "leased"])
def test_a_callback_that_hangs_is_told_and_keeps_neither_the_queues_nor_the_end(
    name: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))

        async def hang(_: tuple[MessageQueue, ...]) -> None:
            while True:
                try:
                    await asyncio.sleep(3_600)
                except asyncio.CancelledError:
                    if is_over:
                        raise

        is_over = False
        inbox = Inbox()
        options: dict[str, Any] = {name: hang}
        consuming = Consuming(callback_s_max=0.1)
        it = consumer(cluster, inbox, mode=mode, consuming=consuming, **options)
        await it.start()
        await eventually(lambda: len(inbox.messages) >= 8, "all came")
        async with asyncio.timeout(30):
            await it.close()
        is_over = True
        queues = [MessageQueue(TOPIC, "broker-a", number) for number in range(QUEUES)]
        assert sum([await stored_offset(cluster, queue) for queue in queues]) == 8
        assert f"the callback {name} took more than 0.1 s" in caplog.text

    with caplog.at_level(logging.ERROR):
        play(scenario)


def test_a_pause_outlives_a_change_of_the_mode() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        inbox = Inbox()
        consuming = Consuming(rebalance_every_s=0.2)
        async with consumer(cluster, inbox, mode="leased", consuming=consuming) as it:
            await eventually(lambda: len(inbox.messages) == 1, "it consumes")
            it.pause()
            stranger = await join_as_java(cluster)
            await eventually(lambda: it.mode == "classic", "it fell back")
            stranger.close()
            await eventually(lambda: it.mode == "leased", "leases again")
            await eventually(lambda: len(it.holdings()) >= QUEUES, "it holds queues again")
            await send(cluster, numbered(20, start=1))
            assert len(inbox.messages) == 1
            it.resume()
            await eventually(lambda: len(inbox.messages) == 21, "it goes on")

    play(scenario)


def test_a_filter_that_is_refused_changes_nothing() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, [*numbered(4), Message("more", b"x")])
        inbox = Inbox()
        async with consumer(cluster, inbox) as it:
            for topic in (TOPIC, "more"):
                with pytest.raises(SubscriptionParseFailedError):
                    await it.subscribe(topic, SQL("not ( sql"))
            await it.subscribe("more")
            await eventually(lambda: len(inbox.messages) == 5, "all came")
            await send(cluster, numbered(4, start=4))
            await eventually(lambda: len(inbox.messages) == 9, "the old filter is the one that counts")

    play(scenario)


@pytest.mark.parametrize("ordered", [False, True])
def test_an_unsubscribe_that_is_cancelled_leaves_no_queue_half_taken(ordered: bool) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, [*numbered(8), Message("more", b"x")])
        inbox = Inbox()
        async with consumer(cluster, inbox, ordered=ordered, subscribe={TOPIC: "*", "more": "*"}) as it:
            await eventually(lambda: len(inbox.messages) == 9, "all came")
            asked = asyncio.Event()

            def slow(_: Command) -> None:
                asked.set()

            cluster.intercept(RequestCode.GET_CONSUMER_LIST_BY_GROUP, slow)
            leaving = asyncio.create_task(it.unsubscribe("more"))
            await asked.wait()
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            await eventually(
                lambda: all(holding.queue.topic != "more" for holding in it.holdings()), "it is given up"
            )
            await it.subscribe("more")
            await send(cluster, [Message("more", b"y"), *numbered(1, start=8)])
            await eventually(lambda: len(inbox.messages) == 11, "both topics are consumed")

    play(scenario)


def test_a_subscribe_of_a_pull_consumer_that_is_cancelled_leaves_no_queue_half_taken() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        async with PullConsumer("g", nameserver=cluster.nameserver, start="first") as it:
            asked = asyncio.Event()

            def slow(_: Command) -> None:
                asked.set()

            stop = cluster.intercept(RequestCode.QUERY_CONSUMER_OFFSET, slow)
            taking = asyncio.create_task(it.subscribe(TOPIC))
            await asked.wait()
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            stop()
            await eventually(lambda: len(it.assigned) == QUEUES, "all queues are taken")
            found: list[Received] = []
            while len(found) < 8:
                found += await it.poll(20)

    play(scenario)


def test_g8_a_queue_that_lost_its_end_is_read_again_from_there_and_what_is_at_work_holds_the_offset() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        queue, may_end, has_moved = MessageQueue(TOPIC, "broker-a", 0), asyncio.Event(), asyncio.Event()
        handled: list[int] = []
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=1)
        await send(cluster, numbered(10))

        async def handle(message: Received) -> None:
            if message.queue == queue:
                if message.queue_offset == 3 and not may_end.is_set():
                    await may_end.wait()
                handled.append(message.queue_offset)

        def lost_its_end(command: Command) -> Command | None:
            if (command.ext["topic"], command.ext["queueId"]) != (TOPIC, "0") or has_moved.is_set():
                return None
            if int(command.ext["queueOffset"]) < 10:
                return None
            has_moved.set()
            ext = {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5", "suggestWhichBrokerId": "0"}
            return Command(code=ResponseCode.PULL_OFFSET_MOVED, opaque=0, ext=ext)

        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            cluster.intercept(code, lost_its_end)
        async with consumer(cluster, handle, consuming=Consuming(offsets_every_s=0.05)) as it:
            await asyncio.wait_for(has_moved.wait(), 30)
            await eventually(lambda: handled.count(9) == 2, "what the broker has there is handled")
            (holding,) = [one for one in it.holdings() if one.queue == queue]
            assert holding.offset == 3
            may_end.set()
            await eventually(lambda: 3 in handled, "it ended")
        assert set(handled) == set(range(10))
        assert await stored_offset(cluster, queue) == 10

    play(scenario)


def test_a_callback_without_time_is_refused() -> None:
    with pytest.raises(SettingsError, match="callback_s_max"):
        Consuming(callback_s_max=0)


def test_g8_an_answer_that_cannot_be_read_is_asked_for_again_before_anything_behind_it_is_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=1)
        await send(cluster, numbered(10))
        lies = 0

        def damaged(command: Command) -> Command | None:
            nonlocal lies
            if command.ext["topic"] != TOPIC or int(command.ext["queueOffset"]) or lies == 2:
                return None
            lies += 1
            ext = {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "10", "suggestWhichBrokerId": "0"}
            return Command(code=ResponseCode.SUCCESS, opaque=0, ext=ext, body=b"\x00\x00\x00\x10 no messages")

        cluster.intercept(RequestCode.PULL_MESSAGE, damaged)
        inbox = Inbox()
        async with consumer(cluster, inbox):
            await eventually(lambda: len(inbox.messages) >= 10, "all came")
        assert lies == 2
        assert inbox.bodies == [b"%d" % number for number in range(10)]
        assert await stored_offset(cluster, MessageQueue(TOPIC, "broker-a", 0)) == 10

    with caplog.at_level(logging.WARNING):
        play(scenario)
