"""How a group would share its queues with other members, other queues or another strategy. PURE: the code that members run.

It starts from who holds what now. Classic strategies share topic by topic, as Java's members do, and out of nothing. In leased mode
members take turns until nobody wants anything else, and a table of leases decides as a broker's does.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal

from trimtab.balance.metrics import idle, loads, max_mean, moved, moved_min, moved_per_min
from trimtab.balance.order import sorted_names, sorted_queues
from trimtab.balance.strategies import Load, Planner, View, by_name, planner_by_name
from trimtab.balance.strategies.plans import follows_load
from trimtab.client.admin.rows import Row
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue
from trimtab.wire.resources import RETRY_PREFIX

ROUNDS_MAX = 50
NEEDS_LEASES = ("sticky", "lag")
Mode = Literal["leased", "classic"]


class Shared(Row, frozen=True):
    """Who holds what at one time."""

    group: str
    members: tuple[str, ...]
    queues: tuple[MessageQueue, ...]
    holders: dict[MessageQueue, str]
    """Queues that nobody holds, or two, are left out."""
    lags: dict[MessageQueue, int]
    knows_holders: bool = True
    """Whether members know who holds what. Without that, with leases alone, they may move a few queues more."""


class Wanted(Row, frozen=True):
    """What shall be different."""

    join: int = 0
    leave: tuple[str, ...] = ()
    more_queues: int = 0
    """Of each topic."""
    strategy: str = "sticky"
    mode: Mode = "leased"


class MemberShare(Row, frozen=True):
    """How many queues a member has, and how much waits in them; None: it is not there."""

    member: str
    before: int | None
    after: int | None
    lag_after: int = 0


class Simulated(Row, frozen=True):
    """What would come of it."""

    group: str
    strategy: str
    mode: Mode
    queues: int
    shares: tuple[MemberShare, ...]
    moved: int
    moved_min: int
    moved_per_min: float | None
    """None where moves were made and none was needed."""
    max_mean_before: float
    max_mean_after: float
    idle: int
    rounds: int
    settled: bool
    knows_holders: bool = True
    """Whether members would decide by who holds what, or by leases alone."""


def simulate(now: Shared, wanted: Wanted) -> Simulated:
    """From what is held now to what would be."""
    members = members_after(now, wanted)
    queues = queues_after(now.queues, wanted.more_queues)
    if not members:
        raise SettingsError(f"group {now.group!r} would have no member left: say --join 1 or more")
    if not queues:
        raise SettingsError(f"group {now.group!r} has no queue to share")
    kept = {queue: member for queue, member in now.holders.items() if member in members}
    if wanted.mode == "classic":
        knows = False
        after, rounds, settled = shared_out(now.group, queues, members, wanted.strategy), 1, True
    else:
        planner = planner_by_name(wanted.strategy)
        knows = now.knows_holders or follows_load(planner)
        after, rounds, settled = handed_over(
            now.group, queues, members, kept, now.lags, planner, knows_holders=knows
        )
    have, will = loads(now.holders, {*now.members, *now.holders.values()}), loads(after, members)
    waits = loads(after, members, {queue: float(now.lags.get(queue, 0)) for queue in after})
    ratio = moved_per_min(now.holders, after, members)
    return Simulated(
        group=now.group,
        strategy=wanted.strategy,
        mode=wanted.mode,
        queues=len(queues),
        shares=tuple(
            MemberShare(
                member=name,
                before=int(have[name]) if name in have else None,
                after=int(will[name]) if name in will else None,
                lag_after=int(waits.get(name, 0)),
            )
            for name in sorted_names({*now.members, *members})
        ),
        moved=moved(now.holders, after),
        moved_min=moved_min(now.holders, queues, members),
        moved_per_min=None if math.isinf(ratio) else ratio,
        max_mean_before=max_mean(have.values()) if have else 1.0,
        max_mean_after=max_mean(will.values()),
        idle=idle(will.values()),
        rounds=rounds,
        settled=settled,
        knows_holders=knows,
    )


def members_after(now: Shared, wanted: Wanted) -> tuple[str, ...]:
    """Those that stay and those that come; who shall leave must be there."""
    for name in wanted.leave:
        if name not in now.members:
            close = get_close_matches(name, now.members, n=2)
            hint = f"did you mean {' or '.join(close)}? " if close else ""
            listed = ", ".join(now.members[:10]) or "none"
            raise SettingsError(f"{name!r} is no member of group {now.group!r}; {hint}members are {listed}")
    new: list[str] = []
    number = 1
    while len(new) < wanted.join:
        if (name := f"new-{number}") not in now.members:
            new.append(name)
        number += 1
    return sorted_names([*(name for name in now.members if name not in wanted.leave), *new])


def queues_after(queues: Sequence[MessageQueue], more: int) -> tuple[MessageQueue, ...]:
    """Each topic with so many queues more, dealt to its brokers in turn; fewer: the highest numbers go first. Retries stay."""
    found: list[MessageQueue] = []
    for topic in dict.fromkeys(queue.topic for queue in queues):
        counts: dict[str, int] = {}
        for queue in queues:
            if queue.topic == topic:
                counts[queue.broker_name] = counts.get(queue.broker_name, 0) + 1
        for _ in range(0 if topic.startswith(RETRY_PREFIX) else abs(more)):
            most_or_least = (max if more < 0 else min)(counts, key=counts.__getitem__)
            counts[most_or_least] += 1 if more > 0 else -1
            if counts[most_or_least] < 0:
                raise SettingsError(f"topic {topic!r} has less than {-more} queues")
        found += (
            MessageQueue(topic, broker, number) for broker, count in counts.items() for number in range(count)
        )
    return sorted_queues(found)


def shared_out(
    group: str, queues: Iterable[MessageQueue], members: Sequence[str], strategy: str
) -> dict[MessageQueue, str]:
    """Who holds what in classic mode: topic by topic, as Java's members share, and out of nothing."""
    chosen = by_name(strategy)
    by_topic: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    found: dict[MessageQueue, str] = {}
    for own in by_topic.values():
        share = sorted_queues(own)
        for member in members:
            found.update(dict.fromkeys(chosen.allocate(group, member, share, members), member))
    return found


def handed_over(
    group: str,
    queues: tuple[MessageQueue, ...],
    members: tuple[str, ...],
    kept: Mapping[MessageQueue, str],
    lags: Mapping[MessageQueue, int],
    planner: Planner,
    *,
    knows_holders: bool = True,
) -> tuple[dict[MessageQueue, str], int, bool]:
    """Who holds what when nobody wants anything else, after how many rounds, and whether it came to that."""
    there = set(queues)
    leases = {queue: member for queue, member in kept.items() if queue in there}
    weights = {queue: Load(lag=lag, arriving_per_s=0.0) for queue, lag in lags.items() if queue in there}
    for rounds in range(1, ROUNDS_MAX + 1):
        is_changed = False
        for me in members:
            held = frozenset(queue for queue, member in leases.items() if member == me)
            known = dict(leases) if knows_holders else None
            plan = planner.plan(View(group, me, queues, members, held=held, holders=known, loads=weights))
            for queue in plan.give_up:
                del leases[queue]
            free = [queue for queue in plan.acquire if queue not in leases][: plan.acquire_max]
            leases.update(dict.fromkeys(free, me))
            is_changed = is_changed or bool(plan.give_up or free)
        if not is_changed:
            return leases, rounds, True
    return leases, ROUNDS_MAX, False
