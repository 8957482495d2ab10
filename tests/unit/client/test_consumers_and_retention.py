"""Consumers that are slower than a broker's retention: what they pulled is handled, and nothing else is passed over than what is gone."""

import asyncio
import logging
from typing import Any

import pytest

from tests.unit.client.pushing import ask, consumer, eventually, send, stored_offset
from trimtab.balance.progress import FlowLimits
from trimtab.balance.recorder import Kind
from trimtab.broker.store import StoreSettings
from trimtab.client.admin import Admin
from trimtab.client.pull_consumer import PullConsumer
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.model import Message, MessageQueue
from trimtab.settings import Pulling
from trimtab.testing import AsyncCluster, Cluster
from trimtab.wire.codes import RequestCode
from trimtab.wire.headers.consume import QueueOnly

QUEUE = MessageQueue("single", "broker-a", 0)
EARLY, LATE = 40, 400
FORGETFUL = StoreSettings(
    segment_bytes=16 << 10, checkpoint_bytes=4 << 10, checkpoint_interval_ms=20, retention_bytes=64 << 10
)
"""Keeps about a hundred messages."""
FEW = FlowLimits(queue_messages_max=10)


def play(scenario: Any) -> None:
    async def run() -> None:
        async with Cluster(store=FORGETFUL) as cluster, asyncio.timeout(60):
            async with Admin(nameserver=cluster.nameserver) as admin:
                await admin.create_topic("single", queues=1)
            await scenario(cluster)

    asyncio.run(run())


async def fill(cluster: AsyncCluster, first: int, count: int) -> None:
    bodies = (b"%d " % number + b"x" * 400 for number in range(first, first + count))
    await send(cluster, [Message("single", body) for body in bodies])


async def first_offset(cluster: AsyncCluster) -> int:
    answer = await ask(cluster, RequestCode.GET_MIN_OFFSET, QueueOnly(topic="single", queue_id=0))
    return int(answer.ext["offset"])


async def let_it_forget(cluster: AsyncCluster) -> None:
    """Sends so much that what was sent early is deleted, and more with it."""
    await fill(cluster, EARLY, LATE)
    while await first_offset(cluster) <= EARLY:
        await ask(cluster, RequestCode.DELETE_EXPIRED_COMMITLOG)  # a broker does it by itself once a minute
        await asyncio.sleep(0.02)


def assert_only_what_is_gone_is_missing(offsets: list[int], in_hand: int) -> None:
    """Everything up to `in_hand` was handled, and everything from some offset to the end, each once."""
    assert len(set(offsets)) == len(offsets)
    assert set(range(in_hand)) <= set(offsets)
    after = [offset for offset in sorted(offsets) if offset >= in_hand]
    gap = next(number for number, offset in enumerate(after) if offset != in_hand + number)
    assert after[gap:] == list(range(after[gap], EARLY + LATE))
    assert after[gap] > EARLY


@pytest.mark.parametrize("mode", ["classic", "leased"])
@pytest.mark.parametrize("ordered", [False, True])
def test_g8_what_was_pulled_before_retention_took_it_is_handled(
    mode: str, ordered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await fill(cluster, 0, EARLY)
        may_go, has_moved, handled = asyncio.Event(), asyncio.Event(), list[int]()
        pulled = 0

        async def handle(message: Received) -> None:
            await may_go.wait()
            if (
                pulled - 3 <= message.queue_offset < pulled
            ):  # they are in hand when the broker says that the next ones are gone
                await has_moved.wait()
            handled.append(message.queue_offset)

        async with consumer(
            cluster,
            handle,
            subscribe={"single": "*"},
            mode=mode,
            ordered=ordered,
            consuming=Consuming(limits=FEW),
        ) as it:
            await eventually(lambda: in_hand(it) > 10, "flow control stopped the pulls")
            pulled = in_hand(it)
            await let_it_forget(cluster)
            may_go.set()
            await eventually(
                lambda: "were deleted before they were read" in caplog.text, "the broker said so"
            )
            has_moved.set()
            await eventually(lambda: EARLY + LATE - 1 in handled, "the last one came")
            await eventually(lambda: not in_hand(it), "all are done")
            assert Kind.OFFSET_MOVED in [event.kind for event in it.recorder.events]
        assert_only_what_is_gone_is_missing(handled, pulled)
        assert await stored_offset(cluster, QUEUE) == EARLY + LATE

    with caplog.at_level(logging.WARNING):
        play(scenario)


def in_hand(it: Any) -> int:
    return sum(holding.waiting_messages for holding in it.holdings() if holding.queue == QUEUE)


@pytest.mark.parametrize("mode", ["classic", "leased"])
def test_g8_the_offset_stays_with_a_message_at_work_when_those_behind_it_are_gone(mode: str) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await fill(cluster, 0, EARLY)
        forgotten, may_end, handled = asyncio.Event(), asyncio.Event(), list[int]()

        async def handle(message: Received) -> None:
            await forgotten.wait()
            if message.queue_offset == 0:
                await may_end.wait()
            handled.append(message.queue_offset)

        consuming = Consuming(limits=FEW, offsets_every_s=0.05, concurrency=50)
        async with consumer(cluster, handle, subscribe={"single": "*"}, mode=mode, consuming=consuming) as it:
            await eventually(lambda: in_hand(it) > 10, "flow control stopped the pulls")
            pulled = in_hand(it)
            await let_it_forget(cluster)
            forgotten.set()
            await eventually(lambda: EARLY + LATE - 1 in handled, "the last one came")
            await eventually(lambda: in_hand(it) == 1, "one is at work")
            (holding,) = [one for one in it.holdings() if one.queue == QUEUE]
            assert holding.offset == 0
            assert await stored_offset(cluster, QUEUE) <= 0
            may_end.set()
            await eventually(lambda: 0 in handled, "it ended")
        assert_only_what_is_gone_is_missing(handled, pulled)
        assert await stored_offset(cluster, QUEUE) == EARLY + LATE

    play(scenario)


def test_g8_a_pull_consumer_hands_out_what_it_had_before_retention_took_it() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await fill(cluster, 0, EARLY)
        pulling = Pulling(held_bytes_max=16 << 10, pull_bytes_max=2 << 10, depth_max=1)
        async with PullConsumer(
            "g", nameserver=cluster.nameserver, start="first", auto_commit_s=0.05, pulling=pulling
        ) as it:
            await it.assign([QUEUE])
            first = await it.poll(20, 1)
            await let_it_forget(cluster)
            pulled = it._reading.shelf.queues[QUEUE].answers[-1].next_offset
            found = [*first]
            seen_done = [await it.committed(QUEUE)]
            while not found or found[-1].queue_offset < EARLY + LATE - 1:
                found += await it.poll(20)
                seen_done.append(await it.committed(QUEUE))
                assert (seen_done[-1] or 0) <= found[-1].queue_offset, "what is being worked on is not done"
        offsets = [message.queue_offset for message in found]
        assert offsets == sorted(set(offsets))
        assert 1 < pulled <= EARLY, "more than what was handed out had been pulled, and not all"
        assert_only_what_is_gone_is_missing(offsets, pulled)
        assert await stored_offset(cluster, QUEUE) == EARLY + LATE

    play(scenario)
