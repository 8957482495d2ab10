"""How a group would share its queues with other members or another strategy: the same code that members run. PURE."""

from collections.abc import Sequence

from trimtab.balance.metrics import idle, loads, max_mean, moved, moved_min
from trimtab.balance.order import sorted_names
from trimtab.balance.strategies import planner_by_name
from trimtab.client.admin.rows import QueueLine
from trimtab.client.admin.simulation import handed_over, shared_out
from trimtab.dashboard.answers import Group, Share, WhatIf
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue
from trimtab.wire.resources import RETRY_PREFIX

STRATEGIES = ("sticky", "lag", "rendezvous", "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")
_CLASSIC = {"AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"}


def what_if(
    group: Group, all_lines: Sequence[QueueLine], *, join: int, leave: Sequence[str], strategy: str
) -> WhatIf:
    """From what is held now to what would be. A group shows only the first of very many queues: `all_lines` has them all."""
    if strategy not in STRATEGIES:
        raise SettingsError(f"strategy {strategy!r} is none of {', '.join(STRATEGIES)}")
    lines = [line for line in all_lines if not line.topic.startswith(RETRY_PREFIX)]
    queues = tuple(MessageQueue(line.topic, line.broker, line.queue_id) for line in lines)
    now = {
        queue: line.holders[0] for queue, line in zip(queues, lines, strict=True) if len(line.holders) == 1
    }
    lag = {queue: line.lag or 0 for queue, line in zip(queues, lines, strict=True)}
    present = [member.client_id for member in group.members]
    unknown = [name for name in leave if name not in present]
    if unknown:
        raise SettingsError(
            f"{unknown[0]!r} is no member of {group.group}; members are {', '.join(present) or 'none'}"
        )
    members = sorted_names([*(name for name in present if name not in leave), *_newcomers(join, present)])
    if not members or not queues:
        raise SettingsError(
            "nothing can be shared: there must be a member and a queue left; say join=1 or more"
        )
    before = {queue: name for queue, name in now.items() if name in members}
    if strategy in _CLASSIC:
        then, rounds, is_settled = shared_out(group.group, queues, members, strategy), 1, True
    else:
        then, rounds, is_settled = handed_over(
            group.group, queues, members, before, lag, planner_by_name(strategy)
        )
    have, will = loads(now, {*present, *now.values()}), loads(then, members)
    lag_then = loads(then, members, {queue: float(count) for queue, count in lag.items()})
    names = sorted_names({*members, *present})
    return WhatIf(
        group=group.group,
        strategy=strategy,
        shares=tuple(
            Share(
                member=name,
                queues_now=int(have.get(name, 0)),
                queues_then=int(will.get(name, 0)),
                lag_then=int(lag_then.get(name, 0)),
            )
            for name in names
        ),
        moved=moved(now, then),
        moved_min=moved_min(now, queues, members),
        skew_now=max_mean(have.values()) if have else 1.0,
        skew_then=max_mean(will.values()),
        skew_lag_then=max_mean(lag_then.values()),
        idle=idle(will.values()),
        rounds=rounds,
        settled=is_settled,
    )


def _newcomers(count: int, present: Sequence[str]) -> list[str]:
    names = (f"new-{number}" for number in range(1, count + len(present) + 1))
    return [name for name in names if name not in present][:count]
