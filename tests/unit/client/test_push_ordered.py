"""Ordered consumption: one call at a time for a queue, under the broker's lock; failures stop the queue and not the order."""

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.unit.client.pushing import (
    NEVER_S,
    QUICK,
    Inbox,
    by_notice_only,
    consumer,
    eventually,
    is_settled,
    numbered,
    owners,
    play,
    send,
    stored_offset,
)
from trimtab.client.push_outcomes import ConsumeLater
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.testing import AsyncCluster
from trimtab.wire.bodies import LockBatchRequestBody, LockBatchResponseBody
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.model import MessageQueue


def nothing_granted(_: Command) -> Command:
    return Command(code=ResponseCode.SUCCESS, opaque=0, body=encode_body(LockBatchResponseBody()))


def test_messages_of_a_queue_come_in_order_one_at_a_time() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(300))
        seen: dict[MessageQueue, list[int]] = defaultdict(list)
        at_work: dict[MessageQueue, int] = defaultdict(int)

        async def handle(message: Received) -> None:
            at_work[message.queue] += 1
            assert at_work[message.queue] == 1
            if message.queue_offset % 7 == 0:
                await asyncio.sleep(0.001)
            seen[message.queue].append(message.queue_offset)
            at_work[message.queue] -= 1

        async with consumer(cluster, handle, ordered=True):
            await eventually(lambda: sum(map(len, seen.values())) == 300, "all came")
        assert len(seen) == 4
        for offsets in seen.values():
            assert offsets == list(range(len(offsets)))

    play(scenario)


def test_a_failed_message_is_tried_again_before_the_next_one_and_counts_its_tries() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(40))
        seen: dict[MessageQueue, list[tuple[int, int]]] = defaultdict(list)

        async def handle(message: Received) -> None:
            seen[message.queue].append((message.queue_offset, message.reconsume_times))
            if message.queue_offset == 3 and message.reconsume_times < 2:
                raise ConsumeLater(after_s=0.01)

        async with consumer(cluster, handle, ordered=True) as it:
            await eventually(lambda: sum(map(len, seen.values())) == 48, "all came, some three times")
            await eventually(lambda: sum(h.offset for h in it.holdings()) == 40, "all consumed")
            queues = list(seen)
        for tries in seen.values():
            assert tries[:7] == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (4, 0)]
        assert sum([await stored_offset(cluster, queue) for queue in queues]) == 40

    play(scenario)


def test_after_the_last_try_an_ordered_message_is_a_dead_letter_and_the_queue_goes_on() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        tries: list[tuple[bytes, int]] = []

        async def handle(message: Received) -> None:
            tries.append((message.body, message.reconsume_times))
            if message.body == b"0":
                raise ValueError("never")

        dead = Inbox()
        consuming = Consuming(reconsume_times_max=2, suspend_ms=10)
        async with consumer(cluster, handle, ordered=True, consuming=consuming) as it:
            await eventually(lambda: len(tries) >= 10, "the others came too")
            await eventually(lambda: sum(h.offset for h in it.holdings()) == 8, "the queue went on")
            async with consumer(cluster, dead, "undertaker", subscribe={"%DLQ%g": "*"}):
                await eventually(lambda: dead.bodies == [b"0"], "the dead letter")
        assert [times for body, times in tries if body == b"0"] == [0, 1, 2]

    play(scenario, settings=QUICK)


def test_c8_a_queue_whose_lock_is_refused_is_skipped_until_it_is_granted() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(20))
        stop = cluster.intercept(RequestCode.LOCK_BATCH_MQ, nothing_granted)
        inbox = Inbox()
        asked = 0

        def count(_: Command) -> None:
            nonlocal asked
            asked += 1

        async with consumer(cluster, inbox, ordered=True, consuming=Consuming(rebalance_every_s=0.05)) as it:
            stop_counting = cluster.intercept(RequestCode.GET_CONSUMER_LIST_BY_GROUP, count)
            await eventually(lambda: asked > 6, "some rounds")
            stop_counting()
            assert it.holdings() == ()
            stop()
            await eventually(lambda: len(inbox.messages) == 20, "all came")

    play(scenario)


def test_a_lock_that_is_lost_stops_the_handler_until_it_is_back() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        inbox = Inbox()
        lost: list[MessageQueue] = []
        consuming = Consuming(locks_every_s=0.05, rebalance_every_s=NEVER_S)
        it = consumer(cluster, inbox, ordered=True, consuming=consuming, on_lost=lost.extend)
        async with it:
            await eventually(lambda: len(inbox.messages) == 4, "the first ones")
            stop = cluster.intercept(RequestCode.LOCK_BATCH_MQ, nothing_granted)
            await eventually(lambda: len(lost) >= 4, "the locks are known to be lost")
            await send(cluster, numbered(4, start=4))
            await asyncio.sleep(0.2)
            assert len(inbox.messages) == 4
            stop()
            await eventually(lambda: len(inbox.messages) == 8, "all came")

    play(scenario)


def test_locks_are_renewed_by_themselves() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        batches: list[int] = []

        def note(command: Command) -> None:
            batches.append(len(decode_body(LockBatchRequestBody, command.body).mq_set))

        cluster.intercept(RequestCode.LOCK_BATCH_MQ, note)
        async with consumer(cluster, Inbox(), ordered=True, consuming=Consuming(locks_every_s=0.05)):
            await eventually(lambda: batches.count(4) >= 4, "all four at once, again and again")

    play(scenario)


def test_c7_an_ordered_queue_moves_only_after_its_handler_ended_and_nothing_comes_twice_or_out_of_order() -> (
    None
):
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(40))
        seen: dict[MessageQueue, list[int]] = defaultdict(list)

        async def handle(message: Received) -> None:
            await asyncio.sleep(0.005)
            seen[message.queue].append(message.queue_offset)

        async with consumer(cluster, handle, ordered=True, consuming=by_notice_only()) as one:
            await eventually(lambda: sum(map(len, seen.values())) >= 4, "it is at work")
            # What is refused to the newcomer, because the lock is not free yet, comes with its next round.
            async with consumer(
                cluster, handle, ordered=True, consuming=Consuming(rebalance_every_s=0.05)
            ) as two:
                await eventually(lambda: is_settled([one, two], 4), "two each")
                await eventually(lambda: sum(map(len, seen.values())) >= 40, "all came")
        for offsets in seen.values():
            assert offsets == list(range(10))

    play(scenario)


def test_c7_a_handler_that_does_not_let_go_keeps_the_queue_until_it_does() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        gate = asyncio.Event()
        entered: list[MessageQueue] = []

        async def handle(message: Received) -> None:
            entered.append(message.queue)
            await gate.wait()

        consuming = Consuming(rebalance_every_s=0.1)
        async with consumer(cluster, handle, ordered=True, consuming=consuming) as one:
            await eventually(lambda: len(entered) == 4, "a handler in each queue")
            inbox = Inbox()
            async with consumer(cluster, inbox, ordered=True, consuming=consuming) as two:
                await eventually(
                    lambda: any(h.unlock_tries for h in one._engine.held.values()), "one try was in vain"
                )
                assert owners([two]) == {}
                gate.set()
                await eventually(lambda: is_settled([one, two], 4), "two each")
                await eventually(lambda: len(inbox.messages) + len(entered) >= 8, "all came")
                assert len(inbox.messages) + len(entered) == 8

    play(scenario)


def test_ordered_broadcasting_needs_no_lock(tmp_path: "Path") -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(10))
        cluster.intercept(RequestCode.LOCK_BATCH_MQ, nothing_granted)
        inbox = Inbox()
        consuming = Consuming(offsets_directory=tmp_path)
        async with consumer(cluster, inbox, ordered=True, broadcast=True, consuming=consuming):
            await eventually(lambda: len(inbox.messages) == 10, "all came")

    play(scenario)


def test_locks_are_free_after_the_end() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        first, second = Inbox(), Inbox()
        async with consumer(cluster, first, ordered=True):
            await eventually(lambda: len(first.messages) == 4, "all came")
        await send(cluster, numbered(4, start=4))
        async with consumer(cluster, second, ordered=True, consuming=by_notice_only()):
            await eventually(lambda: len(second.messages) == 4, "the next member has the queues at once")

    play(scenario)


def test_a_message_that_is_not_wanted_any_more_is_a_dead_letter_at_once_and_the_queue_goes_on() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(12))
        seen: dict[MessageQueue, list[tuple[int, int]]] = defaultdict(list)

        async def handle(message: Received) -> None:
            seen[message.queue].append((message.queue_offset, message.reconsume_times))
            if message.queue_offset == 1:
                raise ConsumeLater(delay_level=-1)

        dead = Inbox()
        async with consumer(cluster, handle, ordered=True) as it:
            await eventually(lambda: sum(h.offset for h in it.holdings()) == 12, "all are done with")
            async with consumer(cluster, dead, "undertaker", subscribe={"%DLQ%g": "*"}):
                await eventually(lambda: len(dead.messages) == 4, "the dead letters")
        assert list(seen.values()) == [[(0, 0), (1, 0), (2, 0)]] * 4

    play(scenario)


def test_a_message_that_no_broker_takes_as_a_dead_letter_is_tried_again_before_the_next_one() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        tries: list[int] = []

        def refused_twice(_: Command) -> Command | None:
            if len(tries) > 2:
                return None
            return Command(code=ResponseCode.SYSTEM_ERROR, opaque=0, remark="refused by the test")

        cluster.intercept(RequestCode.CONSUMER_SEND_MSG_BACK, refused_twice)

        async def handle(message: Received) -> None:
            tries.append(message.reconsume_times)
            raise ConsumeLater(delay_level=-1)

        async with consumer(cluster, handle, ordered=True, consuming=Consuming(suspend_ms=10)) as it:
            await eventually(lambda: sum(h.offset for h in it.holdings()) == 1, "it is done with")
        assert tries == [0, 1, 2]

    play(scenario)
