"""What happened to a group, from recorded events and from nothing else. PURE."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from trimtab.balance.recorder import Event, Flight, Kind, read_flight
from trimtab.cli.group_events import Event as SeenEvent
from trimtab.client.admin.rows import MemberStates
from trimtab.dashboard.answers import Holding, Moment, Rebalance, Scrubbed, Timeline
from trimtab.dashboard.moves import LEAVES, TAKES, Moves, names_in

FLIGHT = "trimtab.flight"
QUIET_MS = 2_000
"""Moments that follow each other within this time are one rebalance."""
REBALANCES_MAX = 200
MOMENTS_OF_ONE_MAX = 200
_CAUSES = {Kind.JOINED.value, Kind.LEFT.value, Kind.VIEW.value, Kind.FELL_BACK.value}


def flights_of(states: MemberStates) -> dict[str, Flight]:
    """The recorders that members sent; what cannot be read is nobody's."""
    found = {}
    for state in states.members:
        text = state.properties.get(FLIGHT)
        if text is None:
            continue
        try:
            found[state.client_id] = read_flight(text)
        except msgspec.DecodeError:
            continue
    return found


def moments_of(client_id: str, events: Iterable[Event]) -> list[Moment]:
    """A recorder's events as they are shown."""
    return [
        Moment(
            at_ms=event.at_ms,
            source="recorder",
            kind=event.kind,
            member=client_id,
            queue=None if event.queue is None else str(event.queue),
            other=event.other,
            cause=event.cause,
            duration_ms=event.duration_ms,
            in_flight=event.in_flight,
            detail=event.detail,
        )
        for event in events
    ]


def seen_moments(events: Iterable[SeenEvent]) -> list[Moment]:
    """What two looks of the dashboard showed."""
    return [
        Moment(
            at_ms=event.at_ms,
            source="seen",
            kind=event.what,
            member=event.member or " + ".join(event.after) or "nobody",
            queue=event.queue,
            other=" + ".join(event.before),
        )
        for event in events
    ]


def timeline(
    group: str, moments: Sequence[Moment], flights: Mapping[str, Flight], members: Iterable[str]
) -> Timeline:
    """The newest rebalances. Where the recorder of who took a queue tells of it, what the dashboard saw of that is left out."""
    recorded = {moment.member for moment in moments if moment.source == "recorder"}
    told = [
        moment
        for moment in moments
        if moment.source == "recorder" or not (moment.kind == "moved" and _is_told(moment, recorded))
    ]
    groups: list[list[Moment]] = []
    for moment in sorted(told, key=lambda moment: moment.at_ms):
        if groups and moment.at_ms - groups[-1][-1].at_ms <= QUIET_MS:
            groups[-1].append(moment)
        else:
            groups.append([moment])
    moves = Moves()
    found = [_rebalance(together, moves) for together in groups]
    return Timeline(
        group=group,
        rebalances=tuple(found[-REBALANCES_MAX:]),
        recording=tuple(sorted(flights)),
        not_recording=tuple(sorted(set(members) - set(flights))),
        left_out=sum(flight.left_out for flight in flights.values()),
    )


def _is_told(moment: Moment, recorded: set[str]) -> bool:
    """Whoever takes a queue records it, if it records at all; a queue that nobody took was given up by somebody."""
    after, before = names_in(moment.member), names_in(moment.other)
    return (after - before or before - after) <= recorded


def _rebalance(moments: list[Moment], moves: Moves) -> Rebalance:
    causes = [
        f"{moment.member} {moment.kind}"
        for moment in moments
        if moment.kind in (Kind.JOINED.value, Kind.LEFT.value)
    ]
    joined = {moment.member for moment in moments if moment.kind == Kind.JOINED.value}
    # Who joins sees all the others come: that is no cause.
    causes += [moment.cause for moment in moments if moment.cause and moment.member not in joined]
    moved = {moment.queue for moment in moments if moment.kind in TAKES or moment.kind == "moved"}
    return Rebalance(
        at_ms=moments[0].at_ms,
        took_ms=moments[-1].at_ms - moments[0].at_ms,
        cause="; ".join(list(dict.fromkeys(causes))[:5]) or "no cause was recorded",
        moved=len(moved - {None}),
        moves=moves.of(moments),
        moments=tuple(moments[:MOMENTS_OF_ONE_MAX]),
    )


def held_since(moments: Iterable[Moment]) -> dict[tuple[str, str], int]:
    """When each member took each queue that it has, as its recorder says."""
    since: dict[tuple[str, str], int] = {}
    for moment in sorted(moments, key=lambda moment: moment.at_ms):
        if moment.queue is None or moment.source != "recorder":
            continue
        if moment.kind in TAKES:
            since[moment.member, moment.queue] = moment.at_ms
        elif moment.kind in LEAVES:
            since.pop((moment.member, moment.queue), None)
    return since


def scrub(group: str, queues: Iterable[str], moments: Iterable[Moment], at_ms: int) -> Scrubbed:
    """Who held what at some time, by what was recorded until then."""
    holders: dict[str, set[str]] = {}
    for moment in sorted(moments, key=lambda moment: moment.at_ms):
        if moment.at_ms > at_ms:
            break
        if moment.queue is None:
            if moment.kind == Kind.LEFT.value:
                for names in holders.values():
                    names.discard(moment.member)
            continue
        known = holders.setdefault(moment.queue, set())
        if moment.source == "seen":
            known.clear()
            known.update(names_in(moment.member))
        elif moment.kind in TAKES:
            known.add(moment.member)
        elif moment.kind in LEAVES:
            known.discard(moment.member)
    shown = sorted({*queues, *holders})
    return Scrubbed(
        group=group,
        at_ms=at_ms,
        holdings=tuple(
            Holding(queue=queue, holders=tuple(sorted(holders[queue])) if queue in holders else None)
            for queue in shown
        ),
    )
