"""The cluster at a glance. PURE."""

from collections.abc import Mapping, Sequence

from trimtab.client.admin.diagnosis import Finding
from trimtab.client.admin.rows import BrokerFailure, BrokerStates, ClusterView, GroupLine, GroupLines, Names
from trimtab.dashboard.answers import BrokerBrief, GroupBrief, Overview, Point

GROUPS_MAX = 5_000
TOPICS_MAX = 20_000
SYSTEM_GROUPS = {
    "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_PULL", "CID_ONS-HTTP-PROXY", "CID_SYS_RMQ_TRANS", "CLIENT_INNER_PRODUCER",
}  # fmt: skip
Watched = Mapping[str, Sequence[Finding]]
"""Group to what `group doctor` finds."""


def overview_view(
    at_ms: int,
    cluster: ClusterView,
    states: BrokerStates,
    lines: GroupLines,
    topics: Names,
    lag_history: Sequence[Point] = (),
    watched: Watched | None = None,
) -> Overview:
    """Groups that need somebody come first. What is found wrong with groups that pages are open on is known without asking."""
    findings = watched or {}
    groups = [
        _group(line, findings.get(line.group, ())) for line in lines.groups if line.group not in SYSTEM_GROUPS
    ]
    groups.sort(key=lambda one: (one.needs is None, -one.lag, one.group))
    brokers = [
        BrokerBrief(
            broker=one.broker if one.broker_id == 0 else f"{one.broker}:{one.broker_id}",
            address=one.address,
            version=one.version,
            put_per_s=one.put_per_s,
            get_per_s=one.get_per_s,
            disk_used=one.disk_used,
        )
        for one in states.brokers
    ]
    brokers += [
        BrokerBrief(broker=one.broker, address=one.address, error=one.error) for one in states.failures
    ]
    masters = [one for one in states.brokers if one.broker_id == 0]
    return Overview(
        at_ms=at_ms,
        clusters=cluster.clusters,
        brokers=tuple(sorted(brokers, key=lambda one: one.broker)),
        groups=tuple(groups[:GROUPS_MAX]),
        topics=topics.names[:TOPICS_MAX],
        lag=sum(one.lag for one in groups),
        put_per_s=_sum([one.put_per_s for one in masters]),
        get_per_s=_sum([one.get_per_s for one in masters]),
        failures=failure_texts((*states.failures, *lines.failures)),
        lag_history=tuple(lag_history),
    )


def failure_texts(failures: Sequence[BrokerFailure]) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(f"{one.broker}: {one.error}" for one in failures))


def _group(line: GroupLine, findings: Sequence[Finding]) -> GroupBrief:
    broken = [one for one in findings if one.severity == "broken"]
    needs = None
    if line.same_ids:
        needs = f"client id {line.same_ids[0]} is connected more than once: messages come twice"
    elif broken:
        needs = f"{broken[0].cause}: {broken[0].evidence}"
    elif line.lag > 0 and line.members == 0:
        needs = f"{line.lag:,} wait and no member is connected"
    elif line.lag > 0 and line.consumed_per_s == 0:
        needs = f"{line.lag:,} wait and nothing was consumed in the last minute"
    return GroupBrief(
        group=line.group,
        members=line.members,
        lag=line.lag,
        consumed_per_s=line.consumed_per_s,
        needs=needs,
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
