"""The queues of a group as they are shown, from one look at it or from two. PURE."""

from collections.abc import Sequence

from trimtab.client.admin.diagnosis_facts import Look
from trimtab.client.admin.rows import HeldQueue, QueueLine, QueueProgress
from trimtab.model import MessageQueue

Held = Sequence[tuple[str, HeldQueue]]


def queue_lines(before: Look | None, after: Look) -> list[QueueLine]:
    """Every queue of the group: those with an offset, and those that somebody holds and nobody has committed an offset of yet."""
    rows, held = after.rows, after.holders
    pace = None if before is None else _Pace(before, after)
    lines = [_line(queue, row, held.get(queue, ()), after.now_ms, pace) for queue, row in rows.items()]
    uncommitted = [_held_only(queue, by) for queue, by in held.items() if queue not in rows]
    if not uncommitted:
        return lines
    return sorted((*lines, *uncommitted), key=lambda line: (line.topic, line.broker, line.queue_id))


class _Pace:
    """What happened between two looks."""

    def __init__(self, before: Look, after: Look) -> None:
        self._before = before
        self._after = after
        self._span_s = (after.now_ms - before.now_ms) / 1000

    def of(self, queue: MessageQueue) -> tuple[float | None, float | None]:
        """Messages a second, consumed and stored; None if it cannot be known."""
        row = self._before.rows.get(queue)
        if row is None or self._span_s <= 0:
            return None, None
        consumed = self._after.places[queue] - self._before.places[queue]
        stored = self._after.rows[queue].max_offset - row.max_offset
        return max(0.0, consumed / self._span_s), max(0.0, stored / self._span_s)


def _line(queue: MessageQueue, row: QueueProgress, held: Held, now_ms: int, pace: _Pace | None) -> QueueLine:
    per_s, in_per_s = (None, None) if pace is None else pace.of(queue)
    first = held[0][1] if held else None
    return QueueLine(
        topic=row.topic,
        broker=row.broker,
        queue_id=row.queue_id,
        holders=tuple([client_id for client_id, _ in held]),
        lease=_lease(first) if first else None,
        lease_age_ms=first.lease_age_ms if first else None,
        since_ms=first.since_ms if first else None,
        offset=row.offset,
        max_offset=row.max_offset,
        lag=row.lag,
        lag_ms=row.lag_ms(now_ms),
        per_s=per_s,
        eta_ms=_eta_ms(row.lag, per_s, in_per_s),
    )


def _held_only(queue: MessageQueue, held: Held) -> QueueLine:
    """A queue of which nothing was committed yet."""
    return QueueLine(
        topic=queue.topic,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        holders=tuple(client_id for client_id, _ in held),
        lease=_lease(held[0][1]),
        lease_age_ms=held[0][1].lease_age_ms,
        since_ms=held[0][1].since_ms,
    )


def _eta_ms(lag: int, per_s: float | None, in_per_s: float | None) -> int | None:
    if lag <= 0:
        return 0
    if per_s is None or in_per_s is None or per_s <= in_per_s:
        return None
    return int(lag / (per_s - in_per_s) * 1000)


def _lease(held: HeldQueue) -> str | None:
    if held.lease_age_ms is not None:
        return "leased"
    return "locked" if held.locked else None
