"""Ordered consumption under leases: one call at a time for a queue in the whole group, and the order holds over every handover."""

import asyncio
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.client.pushing import TOPIC, consumer, eventually, numbered, play, send
from tests.unit.client.test_push_leased import cut_off, is_shared, send_slowly
from trimtab.client.push import PushConsumer
from trimtab.client.push_outcomes import ConsumeLater
from trimtab.client.received import Received
from trimtab.settings import Timeouts
from trimtab.testing import AsyncCluster

if TYPE_CHECKING:
    from trimtab.model import MessageQueue

QUEUES = 4


class InOrder:
    """A handler for all members of a group: what came of each queue, in the order in which it came."""

    def __init__(self, handler_s: float = 0.002) -> None:
        self.seen: defaultdict[MessageQueue, list[int]] = defaultdict(list)
        self.failures: list[MessageQueue] = []
        self._at_work: set[MessageQueue] = set()
        self._handler_s = handler_s

    async def __call__(self, message: Received) -> None:
        if message.queue in self._at_work:
            self.failures.append(message.queue)
        self._at_work.add(message.queue)
        try:
            await asyncio.sleep(self._handler_s)
            self.seen[message.queue].append(message.queue_offset)
        finally:
            self._at_work.discard(message.queue)

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))


def ordered(cluster: AsyncCluster, handler: InOrder, **options: Any) -> PushConsumer:
    return consumer(cluster, handler, mode="leased", ordered=True, **options)


def test_the_order_holds_while_members_come_and_go_and_nothing_comes_twice() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        handler = InOrder()
        await send(cluster, numbered(1))
        first, second, third = (ordered(cluster, handler) for _ in range(3))
        await first.start()
        await eventually(lambda: is_shared(first), "the first has all queues")
        sending = asyncio.create_task(send_slowly(cluster, 600))
        await second.start()
        await eventually(lambda: is_shared(first, second), "two share")
        await third.start()
        await eventually(lambda: is_shared(first, second, third), "three share")
        await first.close()
        await eventually(lambda: is_shared(second, third), "two share again")
        await sending
        await eventually(lambda: handler.count >= 601, "all came")
        await second.close()
        await third.close()
        assert handler.failures == [], "one call at a time, in the whole group"
        for offsets in handler.seen.values():
            assert offsets == list(range(len(offsets)))
        assert handler.count == 601

    play(scenario)


def test_a_message_that_failed_comes_first_at_the_next_member() -> None:
    class Failing(InOrder):
        async def __call__(self, message: Received) -> None:
            if message.queue_offset == 2 and not is_better:
                self.seen[message.queue].append(-2)
                raise ConsumeLater(after_s=0.05)
            await super().__call__(message)

    is_better = False

    async def scenario(cluster: AsyncCluster) -> None:
        nonlocal is_better
        handler = Failing()
        await send(cluster, numbered(40))
        first = ordered(cluster, handler)
        await first.start()
        await eventually(
            lambda: sum(-2 in offsets for offsets in handler.seen.values()) == QUEUES, "every queue is stuck"
        )
        await first.close()
        is_better = True
        async with ordered(cluster, handler):
            await eventually(lambda: handler.count - stuck(handler) == 40, "the next one has all")
        for offsets in handler.seen.values():
            assert [offset for offset in offsets if offset >= 0] == list(range(10))
            assert set(offsets[2 : 2 + offsets.count(-2)]) == {-2}, (
                "the third was tried again and again, nothing else"
            )

    def stuck(handler: InOrder) -> int:
        return sum(offsets.count(-2) for offsets in handler.seen.values())

    play(scenario)


@pytest.mark.parametrize("handler_s", [0.0, 0.01])
def test_after_a_crash_a_queue_goes_on_where_it_was_or_a_little_before_and_skips_nothing(
    handler_s: float,
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        handler = InOrder(handler_s)
        await send(cluster, numbered(40))
        own_session = Timeouts(connect_s=11.0)
        first, second = ordered(cluster, handler, timeouts=own_session), ordered(cluster, handler)
        await first.start()
        await second.start()
        await eventually(lambda: is_shared(first, second), "both have their part")
        await cut_off(cluster, first)
        await send(cluster, numbered(40, 40))
        await eventually(lambda: is_shared(second), "the survivor has all queues")
        await eventually(
            lambda: sum(len(set(offsets)) for offsets in handler.seen.values()) == 80, "all came"
        )
        await second.close()
        await first.close()
        for queue, offsets in handler.seen.items():
            assert queue.topic == TOPIC
            steps = [after - before for before, after in itertools.pairwise(offsets)]
            assert all(step <= 1 for step in steps), "nothing is skipped"
            assert sum(step < 1 for step in steps) <= 1, "it went back once at most"

    play(scenario)
