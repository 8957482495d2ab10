"""Reading a part of a queue, [start, end), once: several pulls on their way, reconnecting, within a deadline.

    async for pulled in read_range(session, group, queue, start, end, wanted): ...              # answers, nothing decoded
    async for batch in read_columns(session, group, queue, start, end, columns=["body"]): ...   # Arrow record batches

No membership, no heartbeat and no commit: `group` only names who reads (rights and statistics of the broker hang on it). This is
what `PullConsumer.pull_columns` and the Spark source use; a process that has no session yet makes one:

    session = acquire_session(connection_options(nameserver)); await session.start(); …; await release_session(session)

What is not there is never passed over in silence: `RangeGoneError` says which offsets retention has taken, `RangeUnreachableError` that
the time was over, and how far the reading came.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING

from trimtab.balance.pipeline import Tally
from trimtab.client.pulls import OffsetMoved, Pulled, QueuePulls, Riding, Room, Wanted
from trimtab.client.session import Session
from trimtab.errors import RangeGoneError, RangeUnreachableError, SettingsError, TrimtabError
from trimtab.model import MessageQueue
from trimtab.settings import Pulling

if TYPE_CHECKING:
    import pyarrow as pa

RANGE_GROUP = "TOOLS_CONSUMER"
"""Who reads when nobody says; Apache's tools use it too."""
BATCH_MESSAGES = 10_000
STALL_S_MAX = 60.0
GATHERED_BYTES = 128 << 10
GATHERED_S_MAX = 0.002
"""Whoever reads is woken for so much at once, for the end of the range, or after so long. A stock broker's answers are small, and waking costs as much as asking."""
EVERYTHING = Wanted()


async def read_range(
    session: Session,
    group: str,
    queue: MessageQueue,
    start: int,
    end: int,
    wanted: Wanted = EVERYTHING,
    *,
    pulling: Pulling | None = None,
    stall_s_max: float = STALL_S_MAX,
    tally: Tally | None = None,
) -> AsyncGenerator[Pulled, None]:
    """The answers that cover [start, end), in order; the last ones may reach beyond `end` where a filter passes over messages.

    `stall_s_max`: how long nothing may come before it is given up. `tally`: where pulls are counted at the end.
    """
    reader = _RangeReader(session, group, queue, start, end, wanted, pulling or Pulling(), stall_s_max)
    try:
        while (pulled := await reader.next()) is not None:
            yield pulled
            pulled.release()
    finally:
        if tally is not None:
            tally.sent += reader.tally.sent
            tally.wasted += reader.tally.wasted
        reader.close()


async def read_columns(
    session: Session,
    group: str,
    queue: MessageQueue,
    start: int,
    end: int,
    wanted: Wanted = EVERYTHING,
    *,
    columns: Iterable[str] | None = None,
    batch_messages: int = BATCH_MESSAGES,
    pulling: Pulling | None = None,
    stall_s_max: float = STALL_S_MAX,
    tally: Tally | None = None,
) -> "AsyncGenerator[pa.RecordBatch, None]":
    """The messages in [start, end) as record batches of at least `batch_messages` rows, but for the last.

    `columns` are names of `trimtab.wire.columns.COLUMNS`, all of them if none are given. Needs the extra `spark`.
    """
    from trimtab.wire.columns import COLUMNS, decode_columns  # noqa: PLC0415 - numpy and pyarrow are an extra

    names = COLUMNS if columns is None else _names(columns, COLUMNS)
    offsets = range(start, end)
    bodies: list[bytes] = []
    gathered = 0
    pulls = read_range(
        session, group, queue, start, end, wanted, pulling=pulling, stall_s_max=stall_s_max, tally=tally
    )
    async with aclosing(pulls):
        async for pulled in pulls:
            if pulled.body:
                bodies.append(pulled.body)
                gathered += pulled.next_offset - pulled.offset
            if gathered >= batch_messages:
                yield decode_columns(bodies, names, tags=wanted.tags, offsets=offsets)
                bodies, gathered = [], 0
    if bodies:
        yield decode_columns(bodies, names, tags=wanted.tags, offsets=offsets)


def _names(columns: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    strange = [name for name in names if name not in known]
    if strange or not names:
        wrong = ", ".join(map(repr, strange)) or "nothing"
        raise SettingsError(f"{wrong} is no column of a message; there are {', '.join(known)}")
    return names


class _RangeReader:
    """Owner of the pulls of one range."""

    def __init__(
        self,
        session: Session,
        group: str,
        queue: MessageQueue,
        start: int,
        end: int,
        wanted: Wanted,
        pulling: Pulling,
        stall_s_max: float,
    ) -> None:
        self._start, self._end = start, end
        self._queue = queue
        self._stall_s_max = stall_s_max
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[Pulled] = deque()
        self._arrived_bytes = 0
        """Since somebody waits."""
        self._waiting: asyncio.Future[None] | None = None
        self._waits_since = 0.0
        self._stall: asyncio.TimerHandle | None = None
        self._bell: asyncio.TimerHandle | None = None
        self._failure: TrimtabError | None = None
        self._last_trouble: TrimtabError | None = None
        self._reached = start
        self._pulls = QueuePulls(
            session, self, group, queue, start, wanted,
            pulling=pulling, room=Room(pulling.held_bytes_max), stop=end,
        )  # fmt: skip
        if start < end:
            self._pulls.start()

    async def next(self) -> Pulled | None:
        """The next answer, or None at the end of the range."""
        while not self._arrived:
            if self._failure is not None:
                raise self._failure
            if self._reached >= self._end:
                return None
            await self._more()
        pulled = self._arrived.popleft()
        self._reached = pulled.next_offset
        return pulled

    async def _more(self) -> None:
        self._waiting = self._loop.create_future()
        self._waits_since, self._arrived_bytes = self._loop.time(), 0
        if self._stall is None:
            self._stall = self._loop.call_later(self._stall_s_max, self._look_for_a_stall)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _ring(self) -> None:
        self._bell = None
        if self._arrived:
            self._wake()

    def _look_for_a_stall(self) -> None:
        """One timer for many waits, since nearly all are short: it is set anew for what is left of the present one."""
        self._stall = None
        if self._waiting is None:
            return
        if self._arrived:  # a moment ago; whoever reads was to be woken for more of it
            self._wake()
            return
        left_s = self._waits_since + self._stall_s_max - self._loop.time()
        if left_s > 0:
            self._stall = self._loop.call_later(left_s, self._look_for_a_stall)
            return
        self._failure = self._unreachable()
        self._failure.__cause__ = self._last_trouble
        self._wake()

    @property
    def tally(self) -> Tally:
        return self._pulls.tally

    def close(self) -> None:
        self._pulls.drop()
        for timer in (self._stall, self._bell):
            if timer is not None:
                timer.cancel()

    def _unreachable(self) -> RangeUnreachableError:
        return RangeUnreachableError(
            f"{self._queue} from {self._start} to {self._end}: nothing came for {self._stall_s_max:g} s at offset"
            f" {self._pulls.position}; {self._last_trouble or 'the queue ends there'}",
            next_offset=self._pulls.position,
        )

    # --- as owner of the pulls --------------------------------------------------------------------------------

    def on_pulled(self, pulled: Pulled) -> None:
        self._last_trouble = None
        self._arrived.append(pulled)
        if self._waiting is None:
            return
        self._arrived_bytes += len(pulled.body)
        if self._arrived_bytes >= GATHERED_BYTES or pulled.next_offset >= self._end:
            self._wake()
        elif self._bell is None:
            self._bell = self._loop.call_later(GATHERED_S_MAX, self._ring)

    def on_moved(self, moved: OffsetMoved) -> int | None:
        self._failure = RangeGoneError(
            f"{self._queue} from {self._start} to {self._end}: offset {moved.asked} is not there, the broker has"
            f" {moved.min_offset} to {moved.max_offset}",
            asked=moved.asked,
            min_offset=moved.min_offset,
            max_offset=moved.max_offset,
        )
        self._wake()
        return None

    def on_trouble(self, _queue: MessageQueue, error: TrimtabError) -> None:
        self._last_trouble = error
        if not error.retriable:
            self._failure = error
            self._wake()

    def riding(self, _queue: MessageQueue) -> Riding | None:
        return None
