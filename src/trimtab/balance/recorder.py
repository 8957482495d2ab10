"""The flight recorder of a member: what changed, why, from whom, how long it took, how much was in flight. PURE.

Every member of a group keeps one. It is bounded: the newest events stay, the counts of all stay. What a person sees later in the command line,
in the dashboard or in a report is drawn from these events and from nothing else.
"""

from collections import Counter, deque
from enum import StrEnum
from typing import NamedTuple

import msgspec

from trimtab.model import MessageQueue, Now

EVENTS_MAX = 1_000
PUBLISHED_BYTES_MAX = 256 * 1024
REBALANCE_MS = 1_000
"""Queues that are taken or let go within so long of each other are one rebalance."""


class Kind(StrEnum):
    """What can happen to a member and its queues."""

    JOINED = "joined"
    LEFT = "left"
    VIEW = "view"
    """The members or queues that it sees changed."""
    ACQUIRED = "acquired"
    """A queue became its holding: lease taken where there are leases, offset read, pull started."""
    REFUSED = "refused"
    """A lease that it wanted is held by somebody else."""
    DRAINING = "draining"
    RELEASED = "released"
    """A holding was given up in order: drained, committed, unlocked."""
    DROPPED = "dropped"
    """A holding was let go at once, as classic mode does."""
    TAKEN_OVER = "taken-over"
    LOST = "lost"
    """A holding went without a handover: somebody else has the lease."""
    FENCED = "fenced"
    """It could not renew a lease in time and stopped handing out messages by itself."""
    EXPIRED = "expired"
    """A pull that did not happen for too long; the queue is taken anew."""
    OFFSET_MOVED = "offset-moved"
    FELL_BACK = "fell-back"
    """Foreign members are in the group: classic mode from now on."""
    MISFIT = "misfit"
    """The strategy's settings do not fit the group as it is: it shares in a safe way until they do."""


MOVES = frozenset({Kind.ACQUIRED, Kind.RELEASED, Kind.DROPPED, Kind.LOST})
"""A queue came or went."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened."""

    at_ms: int
    """Wall time."""
    kind: str
    cause: str = ""
    queue: MessageQueue | None = None
    other: str = ""
    """The member that had the queue before, or gets it, where that is known."""
    offset: int | None = None
    duration_ms: int | None = None
    in_flight: int | None = None
    detail: str = ""


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder holds, as it travels: newest events last."""

    group: str
    client_id: str
    events: tuple[Event, ...]
    counts: dict[str, int]
    left_out: int
    """How many older events are no longer here."""


class Spent(NamedTuple):
    """How often something took time that was measured, and how long in all."""

    times: int = 0
    ms: int = 0


class Recorder:
    """See the module's own words."""

    def __init__(self, group: str, client_id: str, *, events_max: int = EVENTS_MAX) -> None:
        self._group = group
        self._client_id = client_id
        self._events: deque[Event] = deque(maxlen=events_max)
        self._counts: Counter[str] = Counter()
        self._spent: dict[str, Spent] = {}
        self._last_move_ms: int | None = None
        self.rebalances = 0
        """How often queues came or went; those of one moment count once."""

    def record(
        self,
        now: Now,
        kind: Kind,
        *,
        cause: str = "",
        queue: MessageQueue | None = None,
        other: str = "",
        offset: int | None = None,
        duration_ms: int | None = None,
        in_flight: int | None = None,
        detail: str = "",
    ) -> Event:
        """Keeps an event; it is given back for whoever publishes it."""
        event = Event(
            at_ms=now.wall_ms,
            kind=kind.value,
            cause=cause,
            queue=queue,
            other=other,
            offset=offset,
            duration_ms=duration_ms,
            in_flight=in_flight,
            detail=detail,
        )
        self._events.append(event)
        self._counts[kind.value] += 1
        if duration_ms is not None:
            times, ms = self._spent.get(kind.value, Spent())
            self._spent[kind.value] = Spent(times + 1, ms + duration_ms)
        if kind in MOVES:
            self._count_move(now.monotonic_ms)
        return event

    def _count_move(self, now_ms: int) -> None:
        if self._last_move_ms is None or now_ms - self._last_move_ms > REBALANCE_MS:
            self.rebalances += 1
        self._last_move_ms = now_ms

    @property
    def events(self) -> tuple[Event, ...]:
        """The newest ones, oldest of them first."""
        return tuple(self._events)

    @property
    def counts(self) -> dict[str, int]:
        """How often each kind happened since the member began."""
        return dict(self._counts)

    def spent(self, kind: Kind) -> Spent:
        """How long events of a kind took in all since the member began."""
        return self._spent.get(kind.value, Spent())

    def flight(self, *, bytes_max: int = PUBLISHED_BYTES_MAX) -> bytes:
        """All of it as JSON that fits; the oldest events are left out first."""
        events = list(self._events)
        while True:
            text = msgspec.json.encode(
                Flight(
                    group=self._group,
                    client_id=self._client_id,
                    events=tuple(events),
                    counts=dict(self._counts),
                    left_out=self._counts.total() - len(events),
                )
            )
            if len(text) <= bytes_max or not events:
                return text
            del events[: max(1, len(events) // 4)]


def read_flight(text: bytes | str) -> Flight:
    """A recorder's content as another process sent it; whoever calls is ready for `msgspec.DecodeError`."""
    return msgspec.json.decode(text, type=Flight)
