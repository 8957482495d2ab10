"""A group as it is shown, from two looks at it. PURE."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from trimtab.balance.metrics import max_mean
from trimtab.client.admin.diagnosis import Facts, diagnose, strategy_of
from trimtab.client.admin.rows import GroupMembers, QueueLine
from trimtab.dashboard.answers import Group, MemberBrief, Point
from trimtab.dashboard.timeline import FLIGHT
from trimtab.model import MessageQueue
from trimtab.wire.resources import RETRY_PREFIX

QUEUES_MAX = 2_000
"""Queues that a page shows; the rest is counted."""
MODE = "trimtab.mode"


def lines_since(lines: Sequence[QueueLine], since: Mapping[tuple[str, str], int]) -> tuple[QueueLine, ...]:
    """The same, and since when a queue is held, where the holder does not say it and it was recorded."""
    if not since:
        return tuple(lines)
    return tuple(
        line
        if line.since_ms is not None or not line.holders
        else msgspec.structs.replace(line, since_ms=since.get((line.holders[0], _name(line))))
        for line in lines
    )


def _name(line: QueueLine) -> str:
    return str(MessageQueue(line.topic, line.broker, line.queue_id))


def group_view(facts: Facts, queues: tuple[QueueLine, ...], lag_history: Sequence[Point] = ()) -> Group:
    """Everything about a group but its past. It has the first of the queues, and the figures of all."""
    look = facts.after
    queues = tuple(sorted(queues, key=_is_retry))  # what people made themselves comes first
    own = [line for line in queues if not _is_retry(line)]
    is_broadcast = any(view.message_model == "BROADCASTING" for view in facts.members.views)
    members = _members(facts, queues)
    known = [member for member in members if member.queues is not None]
    spans = [line.eta_ms for line in queues if line.lag]
    rates = [line.per_s for line in queues if line.per_s is not None]
    return Group(
        group=facts.group,
        at_ms=look.now_ms,
        members=members,
        queues=queues[:QUEUES_MAX],
        queue_count=len(queues),
        lag=look.progress.lag,
        consumed_per_s=sum(rates) if rates else None,
        eta_ms=None if None in spans else max((span for span in spans if span is not None), default=0),
        skew_queues=max_mean(float(member.queues or 0) for member in known) if known else None,
        skew_lag=max_mean(float(member.lag) for member in known) if known and look.progress.lag else None,
        unheld=0 if is_broadcast else sum(not line.holders for line in own) if members else len(own),
        double_held=0 if is_broadcast else sum(len(line.holders) > 1 for line in queues),
        findings=diagnose(facts),
        broadcast=is_broadcast,
        failures=tuple(
            dict.fromkeys(
                f"{one.broker}: {one.error}"
                for one in (*facts.members.failures, *look.progress.failures, *look.states.failures)
            )
        ),
        lag_history=tuple(lag_history),
    )


def _is_retry(line: QueueLine) -> bool:
    return line.topic.startswith(RETRY_PREFIX)


def _members(facts: Facts, queues: Sequence[QueueLine]) -> tuple[MemberBrief, ...]:
    counts: Counter[str] = Counter()
    lags: Counter[str] = Counter()
    for line in queues:
        for holder in line.holders:
            lags[holder] += line.lag or 0
            if not _is_retry(line):
                counts[holder] += 1
    states = {state.client_id: state for state in facts.after.states.members}
    return tuple(
        MemberBrief(
            client_id=client_id,
            address=address,
            language=language,
            queues=counts[client_id] if client_id in states else None,
            lag=lags[client_id],
            mode=states[client_id].properties.get(MODE) if client_id in states else None,
            strategy=strategy_of(states[client_id]) if client_id in states else None,
            records=client_id in states and FLIGHT in states[client_id].properties,
        )
        for client_id, (address, language) in _seen(facts.members).items()
    )


def _seen(members: GroupMembers) -> dict[str, tuple[str, str]]:
    found = {
        member.client_id: (member.address, member.language)
        for view in members.views
        for member in view.members
    }
    return dict(sorted(found.items()))
