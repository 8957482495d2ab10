"""How far a member has come in one queue, and when it must not pull on. PURE.

What is handed to a handler in one call is a *piece*: one message, or several in a row. Pieces come in the order of offsets and end in
any order. The safe offset is that of the lowest message whose handling has not ended: everything below it has, so a group may
start there after any accident without missing one (promise G8).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Generic, TypeVar

import msgspec

from trimtab.errors import SettingsError

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How much may wait before pulling stops. Those of a process are ours, the others RocketMQ's."""

    queue_messages_max: int = 1_000
    queue_bytes_max: int = 100 * MIB
    queue_span_max: int = 2_000
    """How far the highest offset may be ahead of the lowest unfinished one. Not for ordered consumption."""
    topic_messages_max: int | None = None
    """For all queues of a topic that a member holds together: each gets an equal part, instead of `queue_messages_max`."""
    topic_bytes_max: int | None = None
    """The same, instead of `queue_bytes_max`."""
    process_messages_max: int = 100_000
    process_bytes_max: int = 512 * MIB

    def __post_init__(self) -> None:
        """What would let nothing come any more is refused."""
        for name in self.__slots__:
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise SettingsError(f"{name} {limit} must be 1 or more")


def limits_of_queue(limits: FlowLimits, topic_queues: int) -> FlowLimits:
    """What counts for one of so many queues of a topic."""
    if limits.topic_messages_max is None and limits.topic_bytes_max is None:
        return limits
    messages_max, bytes_max = limits.queue_messages_max, limits.queue_bytes_max
    if limits.topic_messages_max is not None:
        messages_max = max(1, limits.topic_messages_max // max(1, topic_queues))
    if limits.topic_bytes_max is not None:
        bytes_max = max(MIB, limits.topic_bytes_max // max(1, topic_queues))
    return replace(limits, queue_messages_max=messages_max, queue_bytes_max=bytes_max)


class _Ending(msgspec.Struct, eq=False, kw_only=True):
    """What ends one day; apart, so that kinds of pieces can have fields of their own in front."""

    is_done: bool = False


class Piece(_Ending, eq=False):
    """Messages of one handler call: offsets `first` to `last`. A struct, because there may be one for every message."""

    first: int
    last: int
    messages: int
    size_bytes: int

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.first}..{self.last}{' done' if self.is_done else ''}>"


@dataclass(slots=True)
class Load:
    """What waits or runs in all queues of a process together."""

    messages: int = 0
    size_bytes: int = 0


P = TypeVar("P", bound=Piece)


class Progress(Generic[P]):
    """The pieces of one queue."""

    __slots__ = ("_load", "_pieces", "messages", "next_offset", "size_bytes")

    def __init__(self, next_offset: int, load: Load) -> None:
        self.next_offset = next_offset
        """The offset after the last message that came: where reading goes on."""
        self.messages = 0
        self.size_bytes = 0
        self._load = load
        self._pieces: deque[P] = deque()

    def __repr__(self) -> str:
        return f"<Progress safe={self.safe_offset} next={self.next_offset} messages={self.messages}>"

    @property
    def safe_offset(self) -> int:
        """Everything below this has been handled."""
        return self._pieces[0].first if self._pieces else self.next_offset

    @property
    def highest_offset(self) -> int:
        """The last offset of what waits or runs; one below the next offset when nothing does."""
        return self._pieces[-1].last if self._pieces else self.next_offset - 1

    @property
    def span(self) -> int:
        """How far the highest offset is ahead of the lowest unfinished one."""
        return self._pieces[-1].last - self._pieces[0].first if self._pieces else 0

    def add(self, pieces: Sequence[P]) -> None:
        """Pieces begin, in order. Their offsets are above those of all pieces before them."""
        if pieces:
            self._pieces.extend(pieces)
            self._count(
                sum([piece.messages for piece in pieces]), sum([piece.size_bytes for piece in pieces])
            )
            self.passed(pieces[-1].last + 1)

    def passed(self, next_offset: int) -> None:
        """There is nothing for us below this offset: what was there did not match."""
        self.next_offset = max(self.next_offset, next_offset)

    def finish(self, piece: P) -> int:
        """A piece has ended; gives the safe offset after that."""
        pieces = self._pieces
        if not piece.is_done:
            piece.is_done = True
            self._count(-piece.messages, -piece.size_bytes)
            while pieces and pieces[0].is_done:
                pieces.popleft()
        return pieces[0].first if pieces else self.next_offset

    def shrink(self, piece: P, first: int, messages: int, size_bytes: int) -> int:
        """Of a piece only these messages are left, `first` being the lowest; gives the safe offset after that."""
        self._count(messages - piece.messages, size_bytes - piece.size_bytes)
        piece.first, piece.messages, piece.size_bytes = first, messages, size_bytes
        return self.safe_offset

    def clear(self) -> list[P]:
        """Forgets every piece, because the queue is no longer ours; gives those that had not ended."""
        left = [piece for piece in self._pieces if not piece.is_done]
        for piece in left:
            piece.is_done = True
        self._pieces.clear()
        self._count(-self.messages, -self.size_bytes)
        return left

    def rewind(self, offset: int) -> list[P]:
        """The queue ends at this offset now: forgets the pieces that begin there or behind it, and gives those that had not ended."""
        left = []
        while self._pieces and self._pieces[-1].first >= offset:
            piece = self._pieces.pop()
            if not piece.is_done:
                piece.is_done = True
                self._count(-piece.messages, -piece.size_bytes)
                left.append(piece)
        while self._pieces and self._pieces[0].is_done:
            self._pieces.popleft()
        self.next_offset = offset
        return left

    def oldest(self, count: int) -> list[P]:
        """So many unfinished pieces at most, lowest offsets first."""
        return list(islice((piece for piece in self._pieces if not piece.is_done), count))

    def _count(self, messages: int, size_bytes: int) -> None:
        load = self._load
        self.messages += messages
        self.size_bytes += size_bytes
        load.messages += messages
        load.size_bytes += size_bytes


def why_to_hold(progress: Progress[P], load: Load, limits: FlowLimits, *, is_ordered: bool) -> str | None:
    """Why the next pull of a queue must wait; None if it need not. The comparisons are Java's: more than the limit holds."""
    if progress.messages > limits.queue_messages_max:
        return f"{progress.messages} messages of the queue wait, more than {limits.queue_messages_max}"
    if progress.size_bytes // MIB > limits.queue_bytes_max // MIB:
        return (
            f"{progress.size_bytes // MIB} MiB of the queue wait, more than {limits.queue_bytes_max // MIB}"
        )
    if not is_ordered and progress.span > limits.queue_span_max:
        return f"offsets {progress.safe_offset} to {progress.highest_offset} are open, more than {limits.queue_span_max} apart"
    if load.messages > limits.process_messages_max:
        return f"{load.messages} messages wait in this process, more than {limits.process_messages_max}"
    if load.size_bytes > limits.process_bytes_max:
        return (
            f"{load.size_bytes // MIB} MiB wait in this process, more than {limits.process_bytes_max // MIB}"
        )
    return None
