"""What may be wrong with queues: who holds them, how topics are laid out, who does not move. PURE."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from trimtab.client.admin.diagnosis_facts import (
    Facts,
    Finding,
    in_order,
    is_broadcast,
    route_of,
    some,
)
from trimtab.client.admin.flights import mode_of
from trimtab.client.admin.rows import HeldQueue, MemberState, QueueProgress, TopicRoute
from trimtab.wire.resources import RETRY_PREFIX

if TYPE_CHECKING:
    from trimtab.model import MessageQueue

LOCK_TRUST_MS = 30_000
"""For so long a consumer believes in a lock that it has not renewed; brokers for twice as long."""
HOT_SHARE = 0.5
HOT_LAG_MIN = 1_000


def _unheld(facts: Facts) -> Iterator[Finding]:
    if not facts.after.states.members or is_broadcast(facts):
        return
    before, after, rows = facts.before.holders, facts.after.holders, facts.after.rows
    for topic, queues in sorted(facts.readable.items()):
        unheld = in_order(queue for queue in queues if queue not in before and queue not in after)
        if unheld:
            waiting = sum(rows[queue].lag for queue in unheld if queue in rows)
            yield Finding(
                cause="unheld-queues",
                severity="broken",
                evidence=f"nobody holds {some(map(str, unheld))} of {topic}; {waiting:,} message(s) wait in them",
                advice="look at the other findings for the reason; a restart of one member makes all share out anew",
            )


def _double_held(facts: Facts) -> Iterator[Finding]:
    if is_broadcast(facts):
        return
    before, after = facts.before.holders, facts.after.holders
    both = [queue for queue, holders in after.items() if len(holders) > 1 and len(before.get(queue, ())) > 1]
    if both:
        first = in_order(both)[0]
        yield Finding(
            cause="double-held-queues",
            severity="broken",
            evidence=f"{some(map(str, in_order(both)))} held by more than one: {first} by"
            f" {some(_with_since(client, row, facts.after.now_ms) for client, row in after[first])}",
            advice="messages come twice: look at the other findings for why members disagree",
        )


def _with_since(client_id: str, row: HeldQueue, now_ms: int) -> str:
    return client_id if row.since_ms is None else f"{client_id} (for {(now_ms - row.since_ms) // 1000} s)"


def _too_many_members(facts: Facts) -> Iterator[Finding]:
    if is_broadcast(facts):
        return
    members = len(facts.members.client_ids)
    for topic, queues in sorted(facts.readable.items()):
        if not topic.startswith(RETRY_PREFIX) and len(queues) < members:
            yield Finding(
                cause="more-members-than-queues",
                severity="warning",
                evidence=f"{members} members share {len(queues)} queue(s) of {topic}: {members - len(queues)} get none",
                advice=f"`trimtab topic alter {topic} --queues N`, or run fewer members",
            )


def _routes_disagree(facts: Facts) -> Iterator[Finding]:
    for topic, told in sorted(facts.routes.items()):
        kinds: dict[str, list[str]] = defaultdict(list)
        for one in told:
            kinds[_route_text(one.route)].append(one.nameserver)
        if len(kinds) > 1:
            evidence = " / ".join(f"{', '.join(names)}: {text}" for text, names in sorted(kinds.items()))
            yield Finding(
                cause="nameservers-disagree",
                severity="broken",
                evidence=f"name servers say different things of {topic}: {evidence}",
                advice="members that ask different ones share different queues: check that every broker registers at every"
                " name server",
            )


def _route_text(route: TopicRoute | None) -> str:
    if route is None:
        return "unknown"
    return " ".join(f"{one.broker}={one.read_queues}r{one.write_queues}w({one.perm})" for one in route.queues)


def _odd_queues(facts: Facts) -> Iterator[Finding]:
    for topic in sorted(facts.routes):
        route = route_of(facts, topic)
        for one in () if route is None else route.queues:
            if "r" not in one.perm:
                yield Finding(
                    cause="unreadable-queues",
                    severity="broken",
                    evidence=f"{topic} at {one.broker} has permission {one.perm}: nobody may read its queues",
                    advice=f"`trimtab topic alter {topic} --perm rw --broker {one.broker}`",
                )
            elif "w" not in one.perm:
                yield Finding(
                    cause="read-only-queues",
                    severity="warning",
                    evidence=f"{topic} at {one.broker} has permission {one.perm}: its {one.read_queues} queue(s) get nothing new",
                    advice=f"if nobody meant it, `trimtab topic alter {topic} --perm rw --broker {one.broker}`",
                )
            if "r" in one.perm and one.write_queues > one.read_queues:
                yield Finding(
                    cause="unread-queues",
                    severity="broken",
                    evidence=f"{topic} at {one.broker} is written to {one.write_queues} queue(s) and read from {one.read_queues}",
                    advice=f"`trimtab topic alter {topic} --read-queues {one.write_queues} --broker {one.broker}`",
                )


def _hot_queue(facts: Facts) -> Iterator[Finding]:
    by_topic: dict[str, list[QueueProgress]] = defaultdict(list)
    for row in facts.after.progress.queues:
        by_topic[row.topic].append(row)
    for topic, rows in sorted(by_topic.items()):
        total = sum(row.lag for row in rows)
        first = max(rows, key=lambda row: row.lag)
        if len(rows) > 2 and first.lag >= HOT_LAG_MIN and first.lag > HOT_SHARE * total:
            yield Finding(
                cause="hot-queue",
                severity="warning",
                evidence=f"{first.queue} has {first.lag:,} of the {total:,} message(s) that wait in {topic}",
                advice="a key that is sent too often, or one slow member: look at the keys, or at who holds it",
            )


def stuck(facts: Facts, stuck_ms: int) -> Iterable[Finding]:
    """Queues that wait, are held, and were not consumed from for so long."""
    now_ms = facts.after.now_ms
    before, after = facts.before.rows, facts.after.rows
    stuck: dict[str, list[tuple[MessageQueue, HeldQueue]]] = defaultdict(list)
    for queue, holders in facts.after.holders.items():
        if queue not in after or after[queue].lag <= 0:
            continue
        if queue not in before or before[queue].offset != after[queue].offset:
            continue
        for client_id, row in holders:
            if row.last_consume_ms is not None and now_ms - max(row.last_consume_ms, 0) > stuck_ms:
                stuck[client_id].append((queue, row))
    for client_id, rows in sorted(stuck.items()):
        queue, row = rows[0]
        cause = "its handler hangs or waits" if row.cached else "it does not pull"
        yield Finding(
            cause="stuck-offset",
            severity="broken",
            evidence=f"{client_id} has not moved {some(str(one) for one, _ in rows)} for"
            f" {(now_ms - (row.last_consume_ms or 0)) // 1000} s; {after[queue].lag:,} wait in {queue}, it holds {row.cached}: {cause}",
            advice="look where its threads are: `trimtab group members GROUP --stacks CLIENT-ID`",
        )


def _expired_locks(facts: Facts) -> Iterator[Finding]:
    earlier = {state.client_id: set(_without_lock(state)) for state in facts.before.states.members}
    for state in facts.after.states.members:
        expired = [queue for queue in _without_lock(state) if queue in earlier.get(state.client_id, ())]
        if expired:
            yield Finding(
                cause="expired-locks",
                severity="broken",
                evidence=f"{state.client_id} consumes in order and has no valid lock on {some(map(str, expired))}",
                advice="it cannot consume them: another member may still hold the lock (it lasts 60 s), or the broker is not reached",
            )


def _without_lock(state: MemberState) -> "list[MessageQueue]":
    """Queues that are consumed in order and whose lock the member itself would not believe in.

    Its times are of its own clock, which may be off: they are compared with the newest of them, not with our time.
    """
    if state.properties.get("PROP_CONSUMEORDERLY", "").lower() != "true" or mode_of(state) == "leased":
        return []
    times = [
        at_ms
        for row in state.queues
        for at_ms in (row.last_pull_ms, row.last_consume_ms, row.last_lock_ms)
        if at_ms is not None
    ]
    its_now_ms = max(times, default=0)
    return [
        row.queue
        for row in state.queues
        if not row.dropped and (not row.locked or its_now_ms - (row.last_lock_ms or 0) > LOCK_TRUST_MS)
    ]


def _failing(facts: Facts) -> Iterator[Finding]:
    for state in facts.after.states.members:
        for pace in state.pace:
            if pace.failed_per_s > 0 and not pace.topic.startswith(RETRY_PREFIX):
                yield Finding(
                    cause="failing-handler",
                    severity="warning",
                    evidence=f"{state.client_id} fails {_pace(pace.failed_per_s)} of {pace.topic}",
                    advice="failed messages come again, up to 16 times, and then to the dead letters: look into its log",
                )


def _pace(per_s: float) -> str:
    """In the unit in which it is a number to read: one failure in a minute is not 0.0 a second."""
    return (
        f"{per_s:.1f} messages a second" if per_s >= 0.1 else f"{max(per_s * 60, 0.1):.1f} messages a minute"
    )


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _routes_disagree,
    _odd_queues,
    _unheld,
    _double_held,
    _too_many_members,
    _expired_locks,
    _failing,
    _hot_queue,
)
