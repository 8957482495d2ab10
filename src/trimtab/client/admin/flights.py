"""What the members of a group recorded about themselves, put together: what moved, from whom to whom, why, how long it took. PURE.

Every member of ours keeps a flight recorder and shows it to whoever asks. One that is gone shows nothing any more; what it had is known
from those who took it over.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from trimtab.balance.recorder import Event, Flight, Kind, read_flight
from trimtab.client.admin.rows import MemberState, MemberStates, Row
from trimtab.model import MessageQueue

MODE, FLIGHT = "trimtab.mode", "trimtab.flight"
CLOCKS_APART_MS_MAX = 1_000
"""So far the clocks of members may differ without making a handover look like two strangers' business."""
QUIET_MS = 1_000
"""A move that begins within this time after the last one ended belongs to the same rebalance."""

_GIVEN_UP = {Kind.RELEASED, Kind.DROPPED, Kind.LOST, Kind.EXPIRED}
_TOLD = {
    Kind.JOINED, Kind.LEFT, Kind.VIEW, Kind.FELL_BACK, Kind.MISFIT, Kind.FENCED, Kind.LOST, Kind.TAKEN_OVER, Kind.OFFSET_MOVED
}  # fmt: skip


class Change(Row, frozen=True):
    """One thing that happened in a group."""

    at_ms: int
    what: str
    """`moved`, or what a member recorded: `view`, `lost`, `fenced`, `taken-over`, `fell-back` and so on."""
    member: str
    """Who says so; of a move, who has the queue now."""
    queue: str | None = None
    before: str | None = None
    """Of a move: who had the queue, where that is known."""
    cause: str = ""
    took_ms: int | None = None
    """Of a move: from the begin of the handover, where that is known, until the queue was read again."""
    unheld_ms: int | None = None
    """Of a move: between one holder and the next, where both are known."""
    detail: str = ""


class Rebalanced(Row, frozen=True):
    """Moves that belong together."""

    at_ms: int
    took_ms: int
    moved: int
    unheld_ms: int
    """The longest time that one of its queues was without a holder, as far as both sides are known."""
    cause: str


def mode_of(state: MemberState) -> Literal["leased", "classic"] | None:
    """The handover mode of a member of ours; None for others."""
    mode = state.properties.get(MODE)
    return mode if mode in ("leased", "classic") else None  # type: ignore[return-value]


def flight_of(state: MemberState) -> Flight | None:
    """What a member recorded; None of one that records nothing, or what nobody can read."""
    text = state.properties.get(FLIGHT)
    if text is None:
        return None
    try:
        return read_flight(text)
    except msgspec.DecodeError:
        return None


def flights_of(states: MemberStates) -> tuple[Flight, ...]:
    """Of all members that record."""
    return tuple(flight for state in states.members if (flight := flight_of(state)) is not None)


def changes_of(flights: Iterable[Flight]) -> tuple[Change, ...]:
    """All that happened, in the order of time: each queue that changed hands is one change, with both sides."""
    told = [(event, flight.client_id) for flight in flights for event in flight.events]
    told.sort(key=lambda item: item[0].at_ms)
    gone = {event.cause: event.other for event, _ in told if event.kind == Kind.TAKEN_OVER and event.other}
    by_queue: dict[MessageQueue, list[tuple[Event, str]]] = {}
    found = []
    for event, member in told:
        if event.queue is not None:
            by_queue.setdefault(event.queue, []).append((event, member))
        if event.kind in _TOLD:
            found.append(_as_told(event, member))
    for queue, events in by_queue.items():
        found += _moves(queue, events, gone)
    return tuple(sorted(found, key=lambda change: change.at_ms))


def _as_told(event: Event, member: str) -> Change:
    return Change(
        at_ms=event.at_ms,
        what=event.kind,
        member=member,
        queue=None if event.queue is None else str(event.queue),
        before=event.other or None,
        cause=event.cause,
        took_ms=event.duration_ms,
        detail=event.detail,
    )


def _moves(queue: MessageQueue, events: list[tuple[Event, str]], gone: dict[str, str]) -> list[Change]:
    """Each acquisition of one queue, with the release that belongs to it: the last one before that nobody else has followed."""
    moves = []
    free = [(event, member) for event, member in events if event.kind in _GIVEN_UP]
    for event, member in events:
        if event.kind != Kind.ACQUIRED:
            continue
        given_up = None
        while free and free[0][0].at_ms <= event.at_ms + CLOCKS_APART_MS_MAX:
            if free[0][0].at_ms > event.at_ms and free[0][1] == member:
                break  # its own release, a moment after it took the queue
            given_up = free.pop(0)
        moves.append(_move(queue, event, member, given_up, gone))
    return moves


def _move(
    queue: MessageQueue, event: Event, member: str, given_up: tuple[Event, str] | None, gone: dict[str, str]
) -> Change:
    before = event.other or (given_up[1] if given_up else gone.get(event.cause))
    cause, took_ms, unheld_ms = event.cause, event.duration_ms, None
    if given_up is not None:
        release = given_up[0]
        cause = release.cause or cause  # who gave it up knows better what for
        unheld_ms = max(0, event.at_ms - release.at_ms)
        took_ms = unheld_ms + (release.duration_ms or 0)
    return Change(
        at_ms=event.at_ms, what="moved", member=member, queue=str(queue), before=before or None,
        cause=cause, took_ms=took_ms, unheld_ms=unheld_ms,
    )  # fmt: skip


def rebalances_in(changes: Iterable[Change]) -> tuple[Rebalanced, ...]:
    """Moves grouped by the quiet between them."""
    groups: list[list[Change]] = []
    for change in changes:
        if change.what != "moved":
            continue
        if groups and change.at_ms - (change.took_ms or 0) - groups[-1][-1].at_ms <= QUIET_MS:
            groups[-1].append(change)
        else:
            groups.append([change])
    return tuple(_rebalanced(together) for together in groups)


def _rebalanced(moves: list[Change]) -> Rebalanced:
    began_ms = min(move.at_ms - (move.took_ms or 0) for move in moves)
    return Rebalanced(
        at_ms=began_ms,
        took_ms=moves[-1].at_ms - began_ms,
        moved=len({move.queue for move in moves}),
        unheld_ms=max((move.unheld_ms or 0 for move in moves), default=0),
        cause=", ".join(dict.fromkeys(move.cause for move in moves if move.cause)) or "not recorded",
    )
