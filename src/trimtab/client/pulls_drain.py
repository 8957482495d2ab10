"""Reading everything that is in a topic now, as fast as it goes: what `trimtab bench drain` and the benches run."""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec

from trimtab.balance.pipeline import Tally
from trimtab.client.pull_consumer import PullConsumer
from trimtab.client.pull_consumer_offsets import QueueOffsets
from trimtab.client.push import PushConsumer
from trimtab.client.ranges import read_columns
from trimtab.client.received import Received
from trimtab.errors import RangeGoneError, SettingsError
from trimtab.model import MessageQueue
from trimtab.settings import Pulling
from trimtab.wire.signing import Credentials

Api: TypeAlias = Literal["push", "pull", "columns"]
Progress: TypeAlias = Callable[[int], None]

COLUMNS = ("queue_offset", "body")
LOOK_EVERY_S = 0.2


class DrainLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What to drain, and through which face."""

    nameserver: str
    topic: str
    group: str
    api: Api = "pull"
    keeps_offsets: bool = False
    """Begins where the group stands and commits where it ends; else all that the queues hold is read."""
    batch_messages: int = 1
    """Push: more than one gives the handler lists of up to so many."""
    pulling: Pulling = Pulling()
    credentials: Credentials | None = None
    tls: bool | str | None = None


class DrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `body_bytes` counts bodies, inflated where they were compressed; `cpu_seconds` are this process's own."""

    api: Api
    topic: str
    group: str
    messages: int
    body_bytes: int
    seconds: float
    messages_per_second: float
    cpu_seconds: float
    pulls: int = 0
    wasted_pulls: int = 0
    missed: int = 0
    """Messages that were there at the begin and never came, because retention took them meanwhile."""


class _Count:
    """Messages and bytes so far, and when it is enough."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total = total
        self.messages = 0
        self.body_bytes = 0
        self.is_enough = asyncio.Event()
        self._progress = progress

    def add(self, messages: int, body_bytes: int) -> None:
        self.messages += messages
        self.body_bytes += body_bytes
        if self._progress is not None:
            self._progress(messages)
        if self.messages >= self.total:
            self.is_enough.set()


async def run_drain(load: DrainLoad, progress: Progress | None = None) -> DrainReport:
    """Drains a topic. Whatever is sent while it runs is not waited for."""
    if load.batch_messages < 1:
        raise SettingsError("batch_messages must be 1 or more")
    if load.api == "columns":
        import trimtab.wire.columns  # noqa: F401, PLC0415 - an extra, whose loading shall not be measured

    reader = PullConsumer(
        # Apache's brokers remember how a connection first spoke for a group: a reader of the same one would keep the push consumer from leases.
        f"{load.group}-ranges" if load.api == "push" else load.group,
        nameserver=load.nameserver,
        credentials=load.credentials,
        tls=load.tls,
        start="first",
        auto_commit_s=5.0 if load.keeps_offsets else None,
        pulling=load.pulling,
    )
    async with reader:
        ranges = await _ranges(reader, load)
        count = _Count(sum(map(len, ranges.values())), progress)
        tally = Tally()
        cpu_before = _cpu_s()
        begin = asyncio.get_running_loop().time()
        if count.total and load.api == "pull":
            await _by_pull(reader, ranges, count, tally)
        elif count.total and load.api == "columns":
            await _by_columns(reader, load, ranges, count, tally)
        seconds = asyncio.get_running_loop().time() - begin
    if count.total and load.api == "push":
        seconds = await _by_push(load, ranges, count, tally)
    return DrainReport(
        api=load.api,
        topic=load.topic,
        group=load.group,
        messages=count.messages,
        body_bytes=count.body_bytes,
        seconds=seconds,
        messages_per_second=count.messages / seconds if seconds else 0.0,
        cpu_seconds=_cpu_s() - cpu_before,
        pulls=tally.sent,
        wasted_pulls=tally.wasted,
        missed=max(0, count.total - count.messages),
    )


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system


async def _ranges(consumer: PullConsumer, load: DrainLoad) -> dict[MessageQueue, range]:
    """What each queue holds now."""
    offsets = QueueOffsets(consumer.session, load.group)

    async def one(queue: MessageQueue) -> range:
        begin, end = await consumer.offset_of(queue, "begin"), await consumer.offset_of(queue, "end")
        committed = await offsets.committed(queue) if load.keeps_offsets else None
        return range(begin if committed is None else max(begin, committed), end)

    queues = await consumer.queues(load.topic)
    return dict(zip(queues, await asyncio.gather(*map(one, queues)), strict=True))


async def _by_pull(
    consumer: PullConsumer, ranges: dict[MessageQueue, range], count: _Count, tally: Tally
) -> None:
    filled = [queue for queue, offsets in ranges.items() if offsets]
    await consumer.assign(filled)
    for queue in filled:
        await consumer.seek(queue, ranges[queue].start)
    while not count.is_enough.is_set():
        batch = await consumer.poll(LOOK_EVERY_S)
        count.add(len(batch), sum([len(message.body) for message in batch]))
        if not batch and all(consumer.position(queue) >= ranges[queue].stop for queue in filled):
            break  # what did not come is not there any more
    _add_up(consumer.tallies(), tally)


def _add_up(tallies: Iterable[Tally], total: Tally) -> None:
    for one in tallies:
        total.sent += one.sent
        total.wasted += one.wasted


async def _by_columns(
    consumer: PullConsumer, load: DrainLoad, ranges: dict[MessageQueue, range], count: _Count, tally: Tally
) -> None:
    import pyarrow.compute as pc  # noqa: PLC0415 - an extra

    async def one(queue: MessageQueue, offsets: range) -> None:
        start: int | None = offsets.start
        while start is not None:
            start = await read(queue, start, offsets.stop)

    async def read(queue: MessageQueue, start: int, stop: int) -> int | None:
        """None at the end; where to go on, if retention was faster."""
        try:
            await add_all(queue, start, stop)
        except RangeGoneError as gone:
            if gone.min_offset <= gone.asked:
                raise
            return gone.min_offset if gone.min_offset < stop else None
        return None

    async def add_all(queue: MessageQueue, start: int, stop: int) -> None:
        async for batch in read_columns(
            consumer.session, load.group, queue, start, stop, columns=COLUMNS, pulling=load.pulling, tally=tally
        ):  # fmt: skip
            bodies: Any = batch.column(1)
            count.add(batch.num_rows, pc.sum(pc.binary_length(bodies)).as_py() or 0)

    await asyncio.gather(*(one(queue, offsets) for queue, offsets in ranges.items()))
    if load.keeps_offsets:
        await consumer.commit({queue: offsets.stop for queue, offsets in ranges.items()})


async def _by_push(load: DrainLoad, ranges: dict[MessageQueue, range], count: _Count, tally: Tally) -> float:
    """The seconds from the first message on; a member's first round is not draining."""
    loop = asyncio.get_running_loop()
    first_at = 0.0

    async def one(message: Received) -> None:
        nonlocal first_at
        first_at = first_at or loop.time()
        count.add(1, len(message.body))

    async def many(messages: list[Received]) -> None:
        nonlocal first_at
        first_at = first_at or loop.time()
        count.add(len(messages), sum([len(message.body) for message in messages]))

    is_batch = load.batch_messages > 1
    async with PushConsumer(
        load.group,
        subscribe={load.topic: "*"},
        handler=many if is_batch else one,
        batch_messages_max=load.batch_messages if is_batch else None,
        nameserver=load.nameserver,
        credentials=load.credentials,
        tls=load.tls,
        start="first",
        pulling=load.pulling,
    ) as consumer:
        while not count.is_enough.is_set() and not _is_past(consumer, ranges):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await count.is_enough.wait()
        seconds = loop.time() - first_at if first_at else 0.0
        _add_up(consumer.tallies(), tally)
    return seconds


def _is_past(consumer: PushConsumer, ranges: dict[MessageQueue, range]) -> bool:
    """Whether all that was there is handled or gone."""
    offsets = {holding.queue: holding.offset for holding in consumer.holdings()}
    return all(offsets.get(queue, 0) >= wanted.stop for queue, wanted in ranges.items())
