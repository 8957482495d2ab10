"""How much one trigger reads, and how that is shared out over tasks. PURE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.model import MessageQueue
from trimtab.spark.offsets import Offsets, QueueRange

SMALL_TASK_RECORDS = 16_384
"""Without any wish of the user a task gets at least this many messages: starting one costs as much as reading them."""


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """What a user allows one trigger to read."""

    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 15 * 60_000


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """How a user wants the work to be cut."""

    partitions_min: int | None = None
    partitions_max: int | None = None
    records_max: int | None = None
    splits_queues: bool = True
    """Whether a queue may be read by several tasks; what they do then is not in its order."""


def is_due(limits: TriggerLimits, waiting: int, waited_ms: int) -> bool:
    """Whether enough messages wait, or have waited long enough, for a batch."""
    if limits.offsets_min is None or not waiting:
        return True
    return waiting >= limits.offsets_min or waited_ms >= limits.delay_ms_max


def capped_by_offsets(start: Offsets, ends: Offsets, offsets_max: int | None) -> dict[MessageQueue, int]:
    """Ends so near that at most `offsets_max` messages are read, each queue in proportion to what waits in it.

    Every queue that has something gets at least one message, so none starves behind a hot one.
    """
    if offsets_max is None:
        return dict(ends)
    return _capped(start, ends, offsets_max, dict.fromkeys(ends, 1))


def capped_by_bytes(
    start: Offsets, ends: Offsets, bytes_max: int | None, mean_bytes: Mapping[MessageQueue, float]
) -> dict[MessageQueue, int]:
    """The same by bytes, as far as the mean size of a message in a queue is known."""
    if bytes_max is None:
        return dict(ends)
    known = [size for size in mean_bytes.values() if size > 0]
    usual = sum(known) / len(known) if known else 1.0
    sizes = {queue: max(1, round(mean_bytes.get(queue) or usual)) for queue in ends}
    return _capped(start, ends, bytes_max, sizes)


def _capped(
    start: Offsets, ends: Offsets, weight_max: int, weights: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """Whole numbers throughout: floats lose messages beyond 2**53."""
    waiting = {queue: end - start[queue] for queue, end in ends.items() if end > start[queue]}
    if sum(count * weights[queue] for queue, count in waiting.items()) <= weight_max:
        return dict(ends)
    # One message of each, and of the rest of every queue the same fraction.
    left = max(0, weight_max - sum(weights[queue] for queue in waiting))
    rest = sum((count - 1) * weights[queue] for queue, count in waiting.items())
    capped = dict(ends)
    for queue, count in waiting.items():
        capped[queue] = start[queue] + 1 + ((count - 1) * left // rest if rest else 0)
    return capped


def split_into_tasks(ranges: Sequence[QueueRange], limits: TaskLimits) -> list[tuple[QueueRange, ...]]:
    """Tasks of equal size: all ranges are laid in one line, which is cut into equal pieces.

    A task may so read parts of several queues, and a hot queue is read by several tasks. No task is empty.
    """
    ordered = [part for part in sorted(ranges) if part.size > 0]
    total = sum(part.size for part in ordered)
    if not total:
        return []
    count = min(_task_count(len(ordered), total, limits), total)
    if not limits.splits_queues:
        return _whole_queues(ordered, min(count, len(ordered)))
    borders = [total * number // count for number in range(count + 1)]
    tasks: list[list[QueueRange]] = [[] for _ in range(count)]
    task = place = 0
    for part in ordered:
        at = part.start
        while at < part.end:
            piece = min(part.end - at, borders[task + 1] - place)
            tasks[task].append(QueueRange.of(part.queue, at, at + piece))
            at += piece
            place += piece
            if place == borders[task + 1]:
                task += 1
    return [tuple(pieces) for pieces in tasks]


def _whole_queues(ranges: Sequence[QueueRange], count: int) -> list[tuple[QueueRange, ...]]:
    """The largest first, each to the task that has least: no task has more than 4/3 of what the best cut would give."""
    tasks: list[list[QueueRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for part in sorted(ranges, key=lambda part: -part.size):
        least = sizes.index(min(sizes))
        tasks[least].append(part)
        sizes[least] += part.size
    return [tuple(sorted(parts)) for parts in tasks]


def _task_count(range_count: int, total: int, limits: TaskLimits) -> int:
    if limits.partitions_max is not None:
        count = limits.partitions_max
        worthwhile = max(1, total // SMALL_TASK_RECORDS)
        count = min(count, max(worthwhile, limits.partitions_min or 1))
    else:
        count = max(1, min(range_count, total // SMALL_TASK_RECORDS))
    count = max(count, limits.partitions_min or 1)
    if limits.records_max is not None:
        count = max(count, -(-total // limits.records_max))
    return count
