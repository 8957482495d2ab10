"""What changes in a group from one look to the next, and what such changes amount to. PURE."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from trimtab.model import MessageQueue

QUIET_MS = 5_000
"""Changes that follow each other within this time are one rebalance."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A member that came or went, or a queue that changed hands."""

    at_ms: int
    group: str
    what: Literal["joined", "left", "moved"]
    member: str | None = None
    queue: str | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that belong together."""

    at_ms: int
    took_ms: int
    cause: str
    moved: int
    unheld_ms: int
    """The longest time that one of its queues was seen without a holder."""


def events_between(
    group: str,
    at_ms: int,
    members: tuple[frozenset[str], frozenset[str]],
    holders: tuple[Mapping[MessageQueue, tuple[str, ...]], Mapping[MessageQueue, tuple[str, ...]]],
) -> list[Event]:
    """What is different; each pair is before and after."""
    found = [
        Event(at_ms=at_ms, group=group, what="joined", member=name)
        for name in sorted(members[1] - members[0])
    ]
    found += [
        Event(at_ms=at_ms, group=group, what="left", member=name) for name in sorted(members[0] - members[1])
    ]
    moved = [
        queue for queue in {**holders[0], **holders[1]} if holders[0].get(queue) != holders[1].get(queue)
    ]
    found += [
        Event(
            at_ms=at_ms,
            group=group,
            what="moved",
            queue=str(queue),
            before=holders[0].get(queue, ()),
            after=holders[1].get(queue, ()),
        )
        for queue in sorted(moved, key=str)
    ]
    return found


def event_text(event: Event) -> str:
    """One line."""
    if event.what == "moved":
        return (
            f"{event.queue}: {' + '.join(event.before) or 'nobody'} -> {' + '.join(event.after) or 'nobody'}"
        )
    return f"{event.member} {event.what}"


def rebalances_of(events: Iterable[Event]) -> list[Rebalance]:
    """Events grouped by the quiet between them."""
    groups: list[list[Event]] = []
    for event in sorted(events, key=lambda event: event.at_ms):
        if groups and event.at_ms - groups[-1][-1].at_ms <= QUIET_MS:
            groups[-1].append(event)
        else:
            groups.append([event])
    return [_rebalance(together) for together in groups]


def _rebalance(events: list[Event]) -> Rebalance:
    causes = [f"{event.member} {event.what}" for event in events if event.what != "moved"]
    moved = {event.queue for event in events if event.what == "moved"}
    return Rebalance(
        at_ms=events[0].at_ms,
        took_ms=events[-1].at_ms - events[0].at_ms,
        cause=", ".join(dict.fromkeys(causes)) or "queues changed hands, members did not change",
        moved=len(moved),
        unheld_ms=_unheld_ms(events),
    )


def _unheld_ms(events: list[Event]) -> int:
    since: dict[str, int] = {}
    longest = 0
    for event in events:
        if event.what != "moved" or event.queue is None:
            continue
        if event.after:
            longest = max(longest, event.at_ms - since.pop(event.queue, event.at_ms))
        else:
            since[event.queue] = event.at_ms
    return longest


def as_line(event: Event) -> str:
    """An event as a line of a record."""
    return msgspec.json.encode(event).decode()


def read_events(lines: Iterable[str]) -> tuple[list[Event], int]:
    """The events of a record, and how many lines are none."""
    found, bad = [], 0
    for line in lines:
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=Event))
        except msgspec.DecodeError:
            bad += 1
    return found, bad
