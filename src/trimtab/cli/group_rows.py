"""What `group describe`, `lag`, `watch` and `check` show, made from looks at a group. PURE."""

from typing import TYPE_CHECKING, Any

from trimtab.cli.moments import number_text, rate_text, span_text

if TYPE_CHECKING:
    from trimtab.cli.group_events import Event
    from trimtab.client.admin.diagnosis import Look
    from trimtab.client.admin.rows import GroupMembers, HeldQueue, QueueProgress
    from trimtab.model import MessageQueue

    Holders = dict[MessageQueue, list[tuple[str, HeldQueue]]]

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


def queue_rows(before: "Look | None", after: "Look") -> list[dict[str, Any]]:
    """A row for each queue of the group, with stable names; what cannot be known is None."""
    holders = after.holders
    earlier = {} if before is None else _places(before, before.holders)
    later = _places(after, holders)
    span_s = 0.0 if before is None else (after.now_ms - before.now_ms) / 1000
    ends = {} if before is None else {row.queue: row.max_offset for row in before.progress.queues}
    rows = []
    for row in after.progress.queues:
        queue = row.queue
        held = holders.get(queue, [])
        per_s = _rate(earlier.get(queue), later.get(queue), span_s)
        in_per_s = _rate(ends.get(queue), row.max_offset, span_s)
        rows.append(
            {
                "topic": row.topic,
                "broker": row.broker,
                "queue_id": row.queue_id,
                "holders": [client_id for client_id, _ in held],
                "lease": _lease(held[0][1]) if held else None,
                "lease_age_ms": held[0][1].lease_age_ms if held else None,
                "since_ms": held[0][1].since_ms if held else None,
                "offset": row.offset,
                "max_offset": row.max_offset,
                "lag": row.lag,
                "lag_ms": lag_ms(row, after.now_ms),
                "per_s": per_s,
                "eta_ms": _eta_ms(row.lag, per_s, in_per_s),
            }
        )
    return rows


def rows_with_held(before: "Look | None", after: "Look") -> list[dict[str, Any]]:
    """As `queue_rows`, and also queues that somebody holds and nobody has committed an offset of yet."""
    known = {row.queue for row in after.progress.queues}
    held = after.holders
    rows = queue_rows(before, after)
    rows += [_held_only(queue, by) for queue, by in held.items() if queue not in known]
    return sorted(rows, key=lambda row: (row["topic"], row["broker"], row["queue_id"]))


def _held_only(queue: "MessageQueue", held: "list[tuple[str, HeldQueue]]") -> dict[str, Any]:
    """A queue of which nothing was committed yet."""
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "holders": [client_id for client_id, _ in held],
        "lease": _lease(held[0][1]),
        "lease_age_ms": held[0][1].lease_age_ms,
        "since_ms": held[0][1].since_ms,
        **dict.fromkeys(("offset", "max_offset", "lag", "lag_ms", "per_s", "eta_ms")),
    }


def queue_texts(row: dict[str, Any], now_ms: int) -> tuple[str, ...]:
    """A row as it stands in a table."""
    return (
        row["topic"],
        row["broker"],
        str(row["queue_id"]),
        " + ".join(row["holders"]) or "-",
        _lease_text(row),
        "-" if row["since_ms"] is None else span_text(now_ms - row["since_ms"]),
        number_text(row["offset"]),
        number_text(row["lag"]),
        span_text(row["lag_ms"]),
        rate_text(row["per_s"]),
        span_text(row["eta_ms"]),
    )


def lag_ms(row: "QueueProgress", now_ms: int) -> int | None:
    """How old the last consumed message is while others wait; 0 if none waits."""
    if row.lag <= 0:
        return 0
    return None if row.consumed_ms is None else max(0, now_ms - row.consumed_ms)


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
        waited = lag_ms(queue, look.now_ms)
        row["lag_ms"] = None if waited is None or row["lag_ms"] is None else max(row["lag_ms"], waited)
    return list(rows.values())


def holder_table(look: "Look") -> "dict[MessageQueue, tuple[str, ...]]":
    """Who holds which queue."""
    return {queue: tuple(sorted(client_id for client_id, _ in held)) for queue, held in look.holders.items()}


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
        (holder_table(before[1]), holder_table(after[1])),
    )


def _places(look: "Look", holders: "Holders") -> "dict[MessageQueue, int]":
    """How far each queue is: as its holder says, who knows it first, else as the broker says."""
    places = {row.queue: row.offset for row in look.progress.queues}
    for queue, held in holders.items():
        if queue in places:
            places[queue] = max(places[queue], *(row.committed for _, row in held))
    return places


def _rate(before: int | None, after: int | None, span_s: float) -> float | None:
    if before is None or after is None or span_s <= 0:
        return None
    return max(0.0, (after - before) / span_s)


def _eta_ms(lag: int, per_s: float | None, in_per_s: float | None) -> int | None:
    if lag <= 0:
        return 0
    if per_s is None or in_per_s is None or per_s <= in_per_s:
        return None
    return int(lag / (per_s - in_per_s) * 1000)


def _lease(held: "HeldQueue") -> str | None:
    if held.lease_age_ms is not None:
        return "leased"
    return "locked" if held.locked else None


def _lease_text(row: dict[str, Any]) -> str:
    return row["lease"] or "-" if row["lease_age_ms"] is None else span_text(row["lease_age_ms"])
