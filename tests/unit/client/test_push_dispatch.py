"""A lease is looked at before every single message, whatever happened since the one before."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from trimtab.balance.holdings import Holding, Phase
from trimtab.balance.pipeline import Found, Handed
from trimtab.balance.progress import Load
from trimtab.balance.trust import Grant
from trimtab.client.pulls_values import Pulled
from trimtab.client.push_dispatch import Concurrent
from trimtab.client.push_leased_engine import Lease
from trimtab.client.push_queue import HeldQueue
from trimtab.client.push_retries import Retries
from trimtab.client.push_settings import Consuming
from trimtab.client.push_stats import Counts
from trimtab.client.received import Received
from trimtab.io.clock import SystemClock
from trimtab.model import MessageQueue
from trimtab.wire.headers.consume import PullMessageResponse
from trimtab.wire.messages import Storable, encode_stored

QUEUE = MessageQueue("orders", "broker-a", 0)
HOST = b"\x7f\x00\x00\x01\x00\x00\x00\x01"
UNTIL_MS = 1_000


class SetClock(SystemClock):
    """Goes only when it is told to."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class SlowRetries(Retries):
    """A broker that takes messages back, and its time."""

    def __init__(self, clock: SetClock) -> None:
        self._clock = clock

    async def give_back(self, message: Received, delay_level: int) -> bool:
        await asyncio.sleep(0)
        self._clock.now_ms = UNTIL_MS
        return True


def answer(messages: int) -> Pulled:
    one = Storable(b"orders", b"body", b"", 0, 1, HOST)
    body = b"".join(encode_stored(one, number, number * 100, 2, HOST) for number in range(messages))
    header = PullMessageResponse(
        suggest_which_broker_id=0, next_begin_offset=messages, min_offset=0, max_offset=messages
    )
    return Pulled(QUEUE, body, Handed(1, 0, messages, Found.MESSAGES), header, tags=None, room=None)


async def handled(handle: Callable[[Received, Holding, SetClock], Awaitable[None]]) -> HeldQueue:
    """What became of four messages under one lease, by one worker."""
    clock = SetClock()
    holding = Holding(QUEUE, Phase.HELD, 0, grant=Grant(0, UNTIL_MS))
    held = HeldQueue(QUEUE, 0, Load(), Lease(holding), Counts())

    async def call(received: list[Received]) -> None:
        await handle(received[0], holding, clock)

    dispatcher = Concurrent(
        call, SlowRetries(clock), Consuming(concurrency=1), clock, on_finished=lambda: None
    )
    dispatcher.submit(held.take_in(answer(4), 1))
    await turns_of_the_loop(20)
    await dispatcher.close(0)
    return held


def test_all_are_handed_out_while_the_lease_is_trusted() -> None:
    async def handle(_: Received, __: Holding, clock: SetClock) -> None:
        clock.now_ms += 1

    held = asyncio.run(handled(handle))
    assert (held.offset_to_store, len(held.waiting), held.counts.consumed) == (4, 0, 4)


def test_a_lease_that_lapses_between_two_messages_of_one_answer_stops_the_second() -> None:
    async def handle(message: Received, _: Holding, clock: SetClock) -> None:
        clock.now_ms = UNTIL_MS if message.queue_offset == 1 else 0

    held = asyncio.run(handled(handle))
    assert (held.offset_to_store, len(held.waiting), held.counts.consumed) == (2, 2, 2)


def test_a_queue_that_is_given_up_by_the_machine_stops_at_the_next_message() -> None:
    async def handle(message: Received, holding: Holding, _: SetClock) -> None:
        if message.queue_offset == 0:
            holding.phase = Phase.DRAINING

    held = asyncio.run(handled(handle))
    assert (held.offset_to_store, len(held.waiting)) == (1, 3)


def test_a_lease_that_lapses_while_a_failed_message_is_given_back_stops_the_next_one() -> None:
    async def handle(message: Received, _: Holding, __: SetClock) -> None:
        raise ValueError(message.queue_offset)

    held = asyncio.run(handled(handle))
    assert (held.offset_to_store, len(held.waiting), held.counts.failed) == (1, 3, 1)


@pytest.mark.parametrize("turns", [0, 5], ids=["at once", "a moment later"])
def test_what_waited_for_the_lease_is_handed_out_before_what_came_after_it(turns: int) -> None:
    async def scenario() -> list[int]:
        clock = SetClock()
        clock.now_ms = UNTIL_MS
        holding = Holding(QUEUE, Phase.HELD, 0, grant=Grant(0, UNTIL_MS))
        held = HeldQueue(QUEUE, 0, Load(), Lease(holding), Counts())
        seen: list[int] = []

        async def call(received: list[Received]) -> None:
            seen.append(received[0].queue_offset)

        dispatcher = Concurrent(
            call, SlowRetries(clock), Consuming(concurrency=1), clock, on_finished=lambda: None
        )
        early, late = (work := list(held.take_in(answer(4), 1)))[:2], work[2:]
        dispatcher.submit(early)
        await turns_of_the_loop(5)
        clock.now_ms = 0
        dispatcher.submit(late)
        await turns_of_the_loop(turns)
        dispatcher.go_on(held)
        await turns_of_the_loop(20)
        await dispatcher.close(0)
        return seen

    assert asyncio.run(scenario()) == [0, 1, 2, 3]


async def turns_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
