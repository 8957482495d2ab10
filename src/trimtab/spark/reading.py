"""Reading the ranges of one task: pulled on the loop's thread, decoded and shaped on Spark's, several queues at once.

Memory is bounded: so many pieces wait between the two threads and no more, and every queue has a share of the bytes that may be
pulled ahead.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from queue import SimpleQueue

import pyarrow as pa

from trimtab.client.pulls import Wanted
from trimtab.client.ranges import read_range
from trimtab.client.session import Session
from trimtab.errors import RangeGoneError, TopicNotFoundError
from trimtab.settings import Pulling
from trimtab.spark.background import background
from trimtab.spark.columns import needed, shaped
from trimtab.spark.losses import Kept, judge
from trimtab.spark.offsets import QueueRange
from trimtab.spark.options import SourceOptions
from trimtab.spark.problems import DataLossError
from trimtab.spark.samples import TOOLS_GROUP
from trimtab.spark.schema import Projection
from trimtab.wire.columns import decode_columns

_log = logging.getLogger(__name__)

QUEUES_AT_ONCE_MAX = 8
PIECES_WAITING_MAX = 4
PULLED_AHEAD_BYTES_MAX = 6 << 20
"""On their way to one task together. A broker ends a connection that lets more than 8 MiB lie unread."""
PULLS_AHEAD = 3
PULL_BYTES_MIN = 128 << 10
BATCH_MESSAGES_MAX = 50_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Some answers of one queue, in order."""

    part: QueueRange
    bodies: list[bytes]
    is_last: bool


def read_ranges(
    ranges: Sequence[QueueRange], options: SourceOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """The messages of the ranges as Spark wants them."""
    made = projection.columns
    columns = needed(made)
    wanted = Wanted(expression=options.filter.expression, kind=options.filter.kind)
    counts = _Counts(options, is_filtered=wanted.is_filtered)
    pump = _Pump(ranges, options, wanted)
    try:
        pump.start()
        for piece in pump.pieces():
            part = piece.part
            batch = decode_columns(
                piece.bodies, columns, tags=wanted.tags, offsets=range(part.start, part.end)
            )
            pump.taken()
            counts.add(piece, batch.num_rows)
            if batch.num_rows:
                yield shaped(batch, part.queue, made, projection.schema)
    finally:
        pump.stop()


class _Counts:
    """Offsets of a queue have no gaps: without a filter as many messages must come as there are offsets."""

    def __init__(self, options: SourceOptions, *, is_filtered: bool) -> None:
        self._fails = options.loss == "fail"
        self._is_filtered = is_filtered
        self._rows: dict[QueueRange, int] = {}

    def add(self, piece: Piece, rows: int) -> None:
        if self._is_filtered:
            return
        part = piece.part
        rows = self._rows[part] = self._rows.get(part, 0) + rows
        if not piece.is_last:
            return
        del self._rows[part]
        if rows != part.size:
            text = f"{part}: {rows} messages came for {part.size} offsets; the broker passed over the others"
            if self._fails:
                raise DataLossError(f"{text}; set failOnDataLoss to warn if that is as it should be")
            _log.warning("%s", text)


class _Pump:
    """What runs on the loop's thread, and the line between the two threads."""

    def __init__(self, ranges: Sequence[QueueRange], options: SourceOptions, wanted: Wanted) -> None:
        self._ranges = ranges
        self._options = options
        self._wanted = wanted
        self._line: SimpleQueue[Piece | BaseException | None] = SimpleQueue()
        self._background = background()
        self._room = asyncio.Semaphore(PIECES_WAITING_MAX)
        at_once = min(len(ranges), QUEUES_AT_ONCE_MAX)
        self._turns = asyncio.Semaphore(max(at_once, 1))
        share_bytes = PULLED_AHEAD_BYTES_MAX // max(at_once, 1)
        self._pulling = Pulling(
            held_bytes_max=share_bytes,
            pull_bytes_max=max(share_bytes // PULLS_AHEAD, PULL_BYTES_MIN),
            timeout_s=max(options.pull_ms / 1000, 1.0),
            suspend_ms=min(500, options.pull_ms // 2),
        )

    def start(self) -> None:
        self._future = asyncio.run_coroutine_threadsafe(self._run(), self._background.loop)

    def stop(self) -> None:
        """Nobody reads any more: a LIMIT was reached, or something failed."""
        self._future.cancel()

    def pieces(self) -> Iterator[Piece]:
        while True:
            piece = self._line.get()
            if piece is None:
                return
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    def taken(self) -> None:
        """A piece is decoded; there is room for another."""
        self._background.loop.call_soon_threadsafe(self._room.release)

    async def _run(self) -> None:
        try:
            session = await self._background.session(self._options.access)
            async with asyncio.TaskGroup() as tasks:
                for part in self._ranges:
                    tasks.create_task(self._read(session, part))
        except BaseExceptionGroup as group:
            self._line.put(group.exceptions[0])
        except Exception as error:  # noqa: BLE001 - it is raised again on the other thread
            self._line.put(error)
        else:
            self._line.put(None)

    async def _read(self, session: Session, part: QueueRange) -> None:
        async with self._turns:
            rest = part
            while rest.size > 0:
                rest = await self._read_once(session, rest)

    def _after_loss(
        self, part: QueueRange, reached: int, error: RangeGoneError | TopicNotFoundError
    ) -> QueueRange:
        """What is left of a range of which something is gone by now; before `reached` everything was read."""
        rest = QueueRange.of(part.queue, reached, part.end)
        kept = Kept(error.min_offset, error.max_offset) if isinstance(error, RangeGoneError) else None
        judgement = judge([rest], {part.queue: kept}, self._options.loss)
        for warning in judgement.warnings:
            _log.warning("%s", warning)
        if not judgement.ranges:
            return QueueRange.of(part.queue, part.end, part.end)
        if judgement.ranges[0] == part:
            raise error  # by the broker's own words nothing is missing, and it does not give it
        return judgement.ranges[0]

    async def _read_once(self, session: Session, part: QueueRange) -> QueueRange:
        """Reads as far as it goes; what is left to read, which is nothing unless messages are gone."""
        options = self._options
        pulls = read_range(
            session, options.group or TOOLS_GROUP, part.queue, part.start, part.end, self._wanted,
            pulling=self._pulling, stall_s_max=max(2 * self._pulling.timeout_s, options.outage_ms / 1000),
        )  # fmt: skip
        bodies: list[bytes] = []
        gathered_bytes = gathered = 0
        reached = part.start
        try:
            async with aclosing(pulls):
                async for pulled in pulls:
                    bodies.append(pulled.body)
                    reached = pulled.next_offset
                    gathered_bytes += len(pulled.body)
                    gathered += pulled.next_offset - pulled.offset
                    if gathered_bytes >= options.batch_bytes or gathered >= BATCH_MESSAGES_MAX:
                        await self._hand_over(Piece(part, bodies, is_last=False))
                        bodies, gathered_bytes, gathered = [], 0, 0
        except (RangeGoneError, TopicNotFoundError) as error:  # the broker itself has said so
            rest = self._after_loss(part, reached, error)
            await self._hand_over(Piece(part, bodies, is_last=False))
            return rest
        await self._hand_over(Piece(part, bodies, is_last=True))
        return QueueRange.of(part.queue, part.end, part.end)

    async def _hand_over(self, piece: Piece) -> None:
        await self._room.acquire()
        self._line.put(piece)
