"""Who held which queue when, as the members themselves recorded it. PURE.

A holding begins when its member took the queue, and ends when the member let it go, lost it, left, or began anew. A member that was
killed says nothing: its holdings end where another member takes the queue. A member that fenced itself handed out nothing from then on,
unless it later gave the queue up in order: then it had got its lease again.
"""

from collections.abc import Iterable

from trimtab.balance.flights import FlightLine
from trimtab.balance.recorder import Kind
from trimtab.model import MessageQueue
from trimtab.pipelines.holders import Span

QUEUE_ENDS = frozenset({Kind.RELEASED, Kind.DROPPED, Kind.LOST, Kind.EXPIRED, Kind.ACQUIRED})
MEMBER_ENDS = frozenset({Kind.JOINED, Kind.LEFT, Kind.FELL_BACK})
TOLD = frozenset(
    {
        Kind.JOINED, Kind.LEFT, Kind.VIEW, Kind.ACQUIRED, Kind.RELEASED, Kind.DROPPED, Kind.LOST, Kind.FENCED, Kind.EXPIRED,
        Kind.TAKEN_OVER, Kind.OFFSET_MOVED, Kind.FELL_BACK,
    }
)  # fmt: skip
"""What a reader of a report wants to see with its cause."""

_Key = tuple[str, MessageQueue]
"""A member and a queue."""


def recorded_spans(lines: Iterable[FlightLine]) -> list[Span]:
    """The holdings of all groups; what is still held at the end is held until the last line of its group."""
    groups: dict[str, list[FlightLine]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    return [
        span
        for group in sorted(groups)
        for span in _of_group(
            sorted(groups[group], key=lambda line: (line.at_ms, line.client_id, line.number))
        )
    ]


def _of_group(lines: list[FlightLine]) -> list[Span]:
    book = _Book()
    for line in lines:
        book.read(line)
    book.end_all(lines[-1].at_ms)
    return sorted(book.spans, key=lambda span: (span.from_ms, span.until_ms))


class _Book:
    """Who has which queue while the lines of a group are read in the order of time."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._held: dict[_Key, FlightLine] = {}
        self._fenced_ms: dict[_Key, int] = {}
        self._last_ms: dict[str, int] = {}

    def read(self, line: FlightLine) -> None:
        queue = line.message_queue
        self._last_ms[line.client_id] = line.at_ms
        if line.kind in MEMBER_ENDS:
            for key in [key for key in self._held if key[0] == line.client_id]:
                self._end(key, line.at_ms)
        elif queue is not None and line.kind == Kind.FENCED:
            self._fenced_ms.setdefault((line.client_id, queue), line.at_ms)
        elif queue is not None and line.kind in QUEUE_ENDS:
            self._end((line.client_id, queue), line.at_ms, line.kind)
            if line.kind == Kind.ACQUIRED:
                self._held[line.client_id, queue] = line

    def end_all(self, end_ms: int) -> None:
        """Holdings of which nobody saw the end: another member took the queue after the last word of the first, or they last."""
        ends = {key: min(self._taken_after(*key), default=end_ms) for key in self._held}
        for key, at_ms in ends.items():
            self._end(key, at_ms)

    def _taken_after(self, member: str, queue: MessageQueue) -> list[int]:
        taken = [line.at_ms for (who, of), line in self._held.items() if of == queue and who != member]
        taken += [span.from_ms for span in self.spans if span.queue == queue and span.member != member]
        return [at_ms for at_ms in taken if at_ms >= self._last_ms[member]]

    def _end(self, key: _Key, at_ms: int, kind: str = Kind.LOST) -> None:
        since = self._held.pop(key, None)
        fenced_ms = self._fenced_ms.pop(key, at_ms)
        if since is not None:
            until_ms = at_ms if kind == Kind.RELEASED else fenced_ms
            self.spans.append(
                Span(since.group, key[1], key[0], since.at_ms, until_ms, messages=0, first_stored_ms=0)
            )
