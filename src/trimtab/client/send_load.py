"""A load of sends through one producer, and what came of it: for `trimtab bench send` and the repository's own benches."""

import asyncio
import math
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

import msgspec

from trimtab.client.producer import Producer
from trimtab.errors import SettingsError, TrimtabError
from trimtab.io.clock import stopwatch_s
from trimtab.model import Message

_SendEach = Callable[[Iterable[int]], Coroutine[None, None, None]]


class SendLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent, and how much of it at once."""

    topic: str
    messages: int
    body_bytes: int = 128
    in_flight: int = 64
    batch_messages: int = 1
    """More than one: explicit batches of so many, `in_flight` of them at once."""
    per_second: float | None = None
    """Messages begun a second whatever comes back; as fast as answers come, if none."""

    def __post_init__(self) -> None:
        """Numbers that make no load are refused."""
        if min(self.messages, self.body_bytes, self.in_flight, self.batch_messages) < 1:
            raise SettingsError("messages, size, in-flight and batch must each be 1 or more")


class SendReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a load. Latencies are per send, from the call to the receipt or the error."""

    messages: int
    """Sent, with a receipt or not."""
    seconds: float
    messages_per_second: float
    """Of those that have a receipt."""
    mean_ms: float
    p50_ms: float
    p99_ms: float
    errors: int
    shares: dict[str, int]
    """Messages by broker."""
    first_error: str | None = None
    """In its own words."""


class _Tally:
    """Counts while a load runs."""

    def __init__(self) -> None:
        self.latencies_ms = array("d")
        self.shares: Counter[str] = Counter()
        self.errors = 0
        self.first_error: str | None = None

    def failed(self, messages: int, error: TrimtabError) -> None:
        self.errors += messages
        self.first_error = self.first_error or str(error)

    def report(self, messages: int, seconds: float) -> SendReport:
        ordered = sorted(self.latencies_ms)
        return SendReport(
            messages=messages,
            seconds=seconds,
            messages_per_second=(messages - self.errors) / seconds,
            mean_ms=math.fsum(ordered) / max(1, len(ordered)),
            p50_ms=percentile(ordered, 0.5),
            p99_ms=percentile(ordered, 0.99),
            errors=self.errors,
            first_error=self.first_error,
            shares=dict(self.shares),
        )


def percentile(ordered: list[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 of nothing."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def run_send_load(
    producer: Producer, load: SendLoad, *, progress: Callable[[int], None] | None = None
) -> SendReport:
    """Sends all of it and waits for every receipt."""
    tally = _Tally()
    latencies_ms, shares = tally.latencies_ms, tally.shares
    topic, body, together = load.topic, bytes(load.body_bytes), load.batch_messages
    began_s = stopwatch_s()

    async def send_each(numbers: Iterable[int]) -> None:
        """One after the other, in one coroutine: what the load itself costs is measured with what it is for."""
        for number in numbers:
            size = 1 if together == 1 else min(together, load.messages - number * together)
            started_s = stopwatch_s()
            try:
                if together == 1:
                    receipt = await producer.send(Message(topic, body, tag="TagA"))
                else:
                    batch = [Message(topic, body, tag="TagA") for _ in range(size)]
                    receipt = (await producer.send_batch(batch))[0]
            except TrimtabError as error:
                tally.failed(size, error)
            else:
                shares[receipt.queue.broker_name] += size
            latencies_ms.append((stopwatch_s() - started_s) * 1e3)
            if progress is not None:
                progress(size)

    sends = math.ceil(load.messages / load.batch_messages)
    if load.per_second is None:
        left = iter(range(sends))
        await asyncio.gather(*(send_each(left) for _ in range(min(load.in_flight, sends))))
    else:
        await _open_loop(send_each, sends, load.per_second / load.batch_messages)
    return tally.report(load.messages, stopwatch_s() - began_s)


async def _open_loop(send_each: _SendEach, sends: int, per_second: float) -> None:
    async with asyncio.TaskGroup() as running:
        async for number in _ticks(sends, per_second):
            running.create_task(send_each((number,)))


async def _ticks(count: int, per_second: float) -> AsyncIterator[int]:
    """Numbers at a steady rate; a late one is followed by the next at once."""
    began_s = stopwatch_s()
    for number in range(count):
        due_s = began_s + number / per_second - stopwatch_s()
        if due_s > 0:
            await asyncio.sleep(due_s)
        yield number
