"""What a handler can do to whoever calls it: nothing of it costs a message or a worker."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.unit.client.pushing import eventually
from tests.unit.client.test_push_dispatch import QUEUE, answer
from trimtab.balance.ordered import QueueLock
from trimtab.balance.progress import Load
from trimtab.client.push_dispatch import Concurrent
from trimtab.client.push_ordered import InOrder
from trimtab.client.push_outcomes import Call, ConsumeLater, call_of
from trimtab.client.push_queue import HeldQueue
from trimtab.client.push_retries import Retries
from trimtab.client.push_settings import Consuming
from trimtab.client.push_stats import Counts
from trimtab.client.received import Received
from trimtab.errors import SettingsError
from trimtab.io.clock import SystemClock

ONE_AT_A_TIME = Consuming(concurrency=1, suspend_ms=10, local_retry_s=0.01, drain_s_max=3_600.0)


class Broker(Retries):
    """Takes back what it is given, if it does not fail."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []
        self.failures: list[BaseException] = []

    async def give_back(self, message: Received, delay_level: int) -> bool:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop()
        self.taken.append((message.queue_offset, delay_level))
        return True


async def nothing_to_lock(_: HeldQueue) -> bool:
    return True


def dispatcher_of(call: Call, broker: Broker, *, ordered: bool) -> Concurrent | InOrder:
    if ordered:
        return InOrder(
            call, broker, ONE_AT_A_TIME, SystemClock(), on_finished=lambda: None, lock=nothing_to_lock
        )
    return Concurrent(call, broker, ONE_AT_A_TIME, SystemClock(), on_finished=lambda: None)


async def worked_off(call: Call, broker: Broker, *, ordered: bool, messages: int = 4) -> HeldQueue:
    """All messages, each handled by one call, until every one is done with."""
    lock = QueueLock()
    lock.granted(SystemClock().monotonic_ms())
    held = HeldQueue(QUEUE, 0, Load(), lock if ordered else None, Counts())
    dispatcher = dispatcher_of(call, broker, ordered=ordered)
    dispatcher.submit(held.take_in(answer(messages), 1))
    await eventually(lambda: held.offset_to_store == messages, "all are done with")
    async with asyncio.timeout(10):
        await dispatcher.close(3_600.0)
    assert not held.running
    return held


def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


every_kind = pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])


async def wait_then(_: str) -> None:
    cancels_itself()
    await asyncio.sleep(0)


async def raise_at_once(text: str) -> None:
    cancels_itself()
    raise ValueError(text)


async def leave_it_to_the_next(_: str) -> None:
    cancels_itself()


async def swallow(_: str) -> None:
    cancels_itself()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return


@every_kind
@pytest.mark.parametrize("how", [wait_then, raise_at_once, leave_it_to_the_next, swallow])
def test_a_handler_that_cancels_its_own_task_costs_no_message(
    how: Callable[[str], Awaitable[None]], ordered: bool
) -> None:
    calls: list[int] = []

    async def handle(received: list[Received]) -> None:
        (message,) = received
        calls.append(message.queue_offset)
        if calls.count(message.queue_offset) == 1:
            await how("no")
        await asyncio.sleep(0)

    broker = Broker()
    asyncio.run(worked_off(handle, broker, ordered=ordered))
    assert set(calls) == {0, 1, 2, 3}
    if how is wait_then and ordered:
        assert calls == [0, 0, 1, 1, 2, 2, 3, 3]
    elif how is wait_then:
        assert broker.taken == [(0, 0), (1, 0), (2, 0), (3, 0)]


class Odd(BaseException):
    """Something that is no Exception."""


@every_kind
def test_whatever_a_handler_raises_is_a_failure(ordered: bool) -> None:
    calls: list[int] = []

    async def handle(received: list[Received]) -> None:
        calls.append(received[0].queue_offset)
        if calls.count(received[0].queue_offset) == 1:
            raise Odd

    broker = Broker()
    asyncio.run(worked_off(handle, broker, ordered=ordered))
    assert len(calls) == 8 if ordered else len(broker.taken) == 4


@pytest.mark.parametrize("failure", [TypeError("odd"), asyncio.CancelledError()])
def test_a_message_whose_failure_cannot_be_settled_is_handed_out_again(
    failure: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    async def handle(received: list[Received]) -> None:
        calls.append(received[0].queue_offset)
        if received[0].queue_offset == 1 and calls.count(1) == 1:
            raise ValueError("no")

    broker = Broker()
    broker.failures.append(failure)
    held = asyncio.run(worked_off(handle, broker, ordered=False))
    assert sorted(calls) == [0, 1, 1, 2, 3]
    assert held.counts.consumed == 4


@every_kind
@pytest.mark.parametrize("later", [{"consumed": 0.5}, {"delay_level": 2.5}, {"delay_level": "3"}])
def test_a_word_that_makes_no_sense_is_refused_and_is_a_failure(later: dict[str, Any], ordered: bool) -> None:
    with pytest.raises(SettingsError, match="is not a whole number"):
        ConsumeLater(**later)
    calls: list[int] = []

    async def handle(received: list[Received]) -> None:
        calls.append(received[0].queue_offset)
        if calls.count(received[0].queue_offset) == 1:
            raise ConsumeLater(**later)

    asyncio.run(worked_off(handle, Broker(), ordered=ordered))
    assert set(calls) == {0, 1, 2, 3}


@every_kind
@pytest.mark.parametrize("raised", [StopIteration, StopIteration("value")])
def test_a_plain_handler_that_raises_stop_iteration_has_failed(
    raised: type[StopIteration] | StopIteration, ordered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def handle(message: Received) -> None:
        calls.append(message.queue_offset)
        if calls.count(message.queue_offset) == 1:
            raise raised

    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING):
        asyncio.run(worked_off(call_of(handle, pool, is_batch=False), Broker(), ordered=ordered))
    assert set(calls) == {0, 1, 2, 3}
    assert "raised StopIteration" in caplog.text


def test_a_loop_that_ends_without_a_close_does_not_wait_for_handlers_for_ever() -> None:
    calls: list[int] = []

    async def for_ever(received: list[Received]) -> None:
        calls.append(received[0].queue_offset)
        await asyncio.sleep(3_600)

    async def forget_to_close(*, ordered: bool) -> None:
        lock = QueueLock()
        lock.granted(SystemClock().monotonic_ms())
        held = HeldQueue(QUEUE, 0, Load(), lock if ordered else None, Counts())
        dispatcher_of(for_ever, Broker(), ordered=ordered).submit(held.take_in(answer(4), 1))
        await eventually(lambda: calls, "one is at work")

    for ordered in (False, True):
        calls.clear()
        asyncio.run(forget_to_close(ordered=ordered))
        assert calls[0] == 0


# --- generators ---------------------------------------------------------------------------------------------------


def generator(_: Received) -> Iterator[None]:
    yield


async def async_generator(_: Received) -> AsyncIterator[None]:
    yield


class GeneratorCall:
    def __call__(self, _: Received) -> Iterator[None]:
        yield


class AsyncGeneratorCall:
    async def __call__(self, _: Received) -> AsyncIterator[None]:
        yield


@pytest.mark.parametrize(
    "handler",
    [
        generator, async_generator, GeneratorCall(), AsyncGeneratorCall(), GeneratorCall().__call__,
        partial(generator), partial(partial(async_generator)), partial(AsyncGeneratorCall()),
    ],
)  # fmt: skip
def test_a_generator_is_refused_for_a_handler_because_it_would_never_run(handler: Any) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(SettingsError, match="is a generator"):
        call_of(handler, pool, is_batch=False)


@pytest.mark.parametrize("handler", [generator, async_generator])
def test_a_plain_handler_that_gives_back_a_generator_has_handled_nothing(
    handler: Callable[[Received], object], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def handle(message: Received) -> object:
        calls.append(message.queue_offset)
        return handler(message)

    broker = Broker()
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING):
        asyncio.run(worked_off(call_of(handle, pool, is_batch=False), broker, ordered=False))
    assert [offset for offset, _ in broker.taken] == [0, 1, 2, 3]
    assert "nothing was handled" in caplog.text


class Awaited:
    async def __call__(self, message: Received) -> None:
        await asyncio.sleep(0)


def test_an_awaited_object_under_a_partial_is_awaited() -> None:
    broker = Broker()
    with ThreadPoolExecutor(1) as pool:
        asyncio.run(worked_off(call_of(partial(Awaited()), pool, is_batch=False), broker, ordered=False))
    assert not broker.taken
