"""What `group describe`, `lag`, `watch` and `check` show, made from looks at a group. PURE."""

from typing import TYPE_CHECKING, Any

from trimtab.cli.moments import number_text, rate_text, span_text

if TYPE_CHECKING:
    from trimtab.cli.group_events import Event
    from trimtab.client.admin.diagnosis import Look
    from trimtab.client.admin.rows import GroupMembers, QueueLine

QUEUE_TITLES = (
    "TOPIC",
    "BROKER",
    "QUEUE",
    "HOLDER",
    "LEASE",
    "SINCE",
    "OFFSET",
    "LAG",
    "LAG-TIME",
    "RATE",
    "ETA",
)
QUEUE_RIGHT = ("QUEUE", "OFFSET", "LAG", "LAG-TIME", "RATE", "ETA")
QUEUE_SPARE = ("SINCE", "LEASE", "OFFSET", "RATE", "ETA", "LAG-TIME", "BROKER", "TOPIC")
"""What a narrow window does without, in this order."""


def queue_texts(line: "QueueLine", now_ms: int) -> tuple[str, ...]:
    """A line as it stands in a table."""
    return (
        line.topic,
        line.broker,
        str(line.queue_id),
        " + ".join(line.holders) or "-",
        line.lease or "-" if line.lease_age_ms is None else span_text(line.lease_age_ms),
        "-" if line.since_ms is None else span_text(now_ms - line.since_ms),
        number_text(line.offset),
        number_text(line.lag),
        span_text(line.lag_ms),
        rate_text(line.per_s),
        span_text(line.eta_ms),
    )


def topic_lags(look: "Look") -> list[dict[str, Any]]:
    """A row for each topic of the group."""
    rows: dict[str, dict[str, Any]] = {}
    for queue in look.progress.queues:
        row = rows.setdefault(
            queue.topic, {"topic": queue.topic, "queues": 0, "lag": 0, "lag_max": 0, "lag_ms": 0}
        )
        row["queues"] += 1
        row["lag"] += queue.lag
        row["lag_max"] = max(row["lag_max"], queue.lag)
        waited = queue.lag_ms(look.now_ms)
        row["lag_ms"] = None if waited is None or row["lag_ms"] is None else max(row["lag_ms"], waited)
    return list(rows.values())


def is_whole(members: "GroupMembers", look: "Look") -> bool:
    """Whether everybody answered. Who did not answer did not leave: nothing is told from a look that lacks an answer."""
    return not (members.failures or look.states.failures)


def changes_between(before: "tuple[GroupMembers, Look]", after: "tuple[GroupMembers, Look]") -> "list[Event]":
    """What is different between two whole looks."""
    from trimtab.cli.group_events import events_between

    return events_between(
        after[0].group,
        after[1].now_ms,
        (frozenset(before[0].client_ids), frozenset(after[0].client_ids)),
        (before[1].holder_ids, after[1].holder_ids),
    )
