"""What happened to a group, from recorded events and from nothing else. PURE."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from trimtab.balance.recorder import Event, Flight, Kind, read_flight
from trimtab.cli.group_events import Event as SeenEvent
from trimtab.client.admin.rows import MemberStates
from trimtab.dashboard.answers import Holding, Moment, Rebalance, Scrubbed, Timeline

FLIGHT = "trimtab.flight"
QUIET_MS = 2_000
"""Moments that follow each other within this time are one rebalance."""
REBALANCES_MAX = 200
MOMENTS_OF_ONE_MAX = 200
_TAKES = {Kind.ACQUIRED.value, Kind.TAKEN_OVER.value}
_LEAVES = {Kind.RELEASED.value, Kind.DROPPED.value, Kind.LOST.value, Kind.FENCED.value, Kind.EXPIRED.value}
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
    return Timeline(
        group=group,
        rebalances=tuple(_rebalance(together) for together in groups[-REBALANCES_MAX:]),
        recording=tuple(sorted(flights)),
        not_recording=tuple(sorted(set(members) - set(flights))),
        left_out=sum(flight.left_out for flight in flights.values()),
    )


def _is_told(moment: Moment, recorded: set[str]) -> bool:
    """Whoever takes a queue records it, if it records at all; a queue that nobody took was given up by somebody."""
    after, before = _names(moment.member), _names(moment.other)
    return (after - before or before - after) <= recorded


def _names(text: str) -> set[str]:
    return set(text.split(" + ")) - {"", "nobody"}


def _rebalance(moments: list[Moment]) -> Rebalance:
    causes = [
        f"{moment.member} {moment.kind}"
        for moment in moments
        if moment.kind in (Kind.JOINED.value, Kind.LEFT.value)
    ]
    causes += [moment.cause for moment in moments if moment.cause]
    moved = {moment.queue for moment in moments if moment.kind in _TAKES or moment.kind == "moved"}
    return Rebalance(
        at_ms=moments[0].at_ms,
        took_ms=moments[-1].at_ms - moments[0].at_ms,
        cause="; ".join(list(dict.fromkeys(causes))[:5]) or "no cause was recorded",
        moved=len(moved - {None}),
        moments=tuple(moments[:MOMENTS_OF_ONE_MAX]),
    )


def held_since(moments: Iterable[Moment]) -> dict[tuple[str, str], int]:
    """When each member took each queue that it has, as its recorder says."""
    since: dict[tuple[str, str], int] = {}
    for moment in sorted(moments, key=lambda moment: moment.at_ms):
        if moment.queue is None or moment.source != "recorder":
            continue
        if moment.kind in _TAKES:
            since[moment.member, moment.queue] = moment.at_ms
        elif moment.kind in _LEAVES:
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
            known.update(_names(moment.member))
        elif moment.kind in _TAKES:
            known.add(moment.member)
        elif moment.kind in _LEAVES:
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
