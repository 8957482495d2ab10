"""What a stream reads next, and where a query begins: decided from what the cluster said. PURE."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from trimtab.model import MessageQueue
from trimtab.spark.limits import TriggerLimits, capped_by_bytes, capped_by_offsets, is_due
from trimtab.spark.losses import Kept, LossPolicy, loss_text, ways_on
from trimtab.spark.offsets import Offsets, Progress, QueueRange, next_progress
from trimtab.spark.options import Choice
from trimtab.spark.positions import ANY_BROKER, EARLIEST, LATEST, Position
from trimtab.spark.problems import DataLossError, OptionError, one_of
from trimtab.wire.hashing import java_hash


def resolved(
    option: str,
    position: Position,
    kept: Mapping[MessageQueue, Kept],
    committed: Mapping[MessageQueue, int | None] | None = None,
    at_time: Offsets | None = None,
) -> dict[MessageQueue, int]:
    """The offset of every queue that a position means."""
    if position.kind == "group":
        return _of_group(position, kept, committed or {})
    if position.kind in ("time", "times"):
        found = {queue: special(position.others, have) for queue, have in kept.items()}
        return {**found, **(at_time or {})}
    if position.kind == "offsets":
        named = placed(option, position.queues or {}, kept)
        _refuse_unknown(option, named, kept)
        return {queue: special(named.get(queue, position.others), have) for queue, have in kept.items()}
    number = EARLIEST if position.kind == "earliest" else LATEST
    return {queue: special(number, have) for queue, have in kept.items()}


def times_wanted(
    option: str, position: Position, queues: Iterable[MessageQueue], known: Collection[MessageQueue]
) -> dict[MessageQueue, int]:
    """The time of each queue in milliseconds, or EARLIEST or LATEST. `known` are all queues that there are: others must not be named."""
    if position.kind == "time":
        return dict.fromkeys(queues, position.at_ms)
    named = placed(option, position.queues or {}, known)
    _refuse_unknown(option, named, known)
    return {queue: named.get(queue, position.others) for queue in queues}


def special(number: int, have: Kept) -> int:
    """The offset that a number means."""
    if number == EARLIEST:
        return have.first
    return have.next if number == LATEST else number


def _of_group(
    position: Position, kept: Mapping[MessageQueue, Kept], committed: Mapping[MessageQueue, int | None]
) -> dict[MessageQueue, int]:
    """A queue that the group never read is read from its beginning, unless the group never read any of the topic."""
    begun = {queue.topic for queue, offset in committed.items() if offset is not None}
    found = {}
    for queue, have in kept.items():
        offset = committed.get(queue)
        if offset is None:
            offset = have.first if queue.topic in begun else special(position.others, have)
        found[queue] = offset
    return found


T = TypeVar("T")


def placed(
    option: str, named: Mapping[MessageQueue, T], known: Collection[MessageQueue]
) -> dict[MessageQueue, T]:
    """What is said of queues by number alone, as Kafka's notebooks do: `partition`, or the queue's id where one broker has the topic."""
    found = {}
    for queue, value in named.items():
        if queue.broker_name != ANY_BROKER:
            found[queue] = value
            continue
        meant = meant_by(queue, known)
        if len(meant) != 1:
            there = one_of(
                sorted(f"{partition_number(one)} ({one})" for one in known if one.topic == queue.topic)[:20]
            )
            raise OptionError(
                option, f"{queue.topic} {queue.queue_id}", f"partitions that there are: {there or 'none'}"
            )
        found[meant[0]] = value
    return found


def meant_by(queue: MessageQueue, known: Iterable[MessageQueue]) -> list[MessageQueue]:
    """The queues with a number."""
    of_topic = [one for one in known if one.topic == queue.topic]
    exactly = [one for one in of_topic if partition_number(one) == queue.queue_id]
    return exactly or [one for one in of_topic if one.queue_id == queue.queue_id]


def _refuse_unknown(option: str, named: Offsets, known: Collection[MessageQueue]) -> None:
    for queue in named:
        if queue not in known:
            there = one_of(sorted(str(other) for other in known if other.topic == queue.topic)[:20])
            raise OptionError(option, str(queue), f"queues that there are: {there or 'none of that topic'}")


def batch_ranges(start: Offsets, end: Offsets, kept: Mapping[MessageQueue, Kept]) -> list[QueueRange]:
    """What a batch wants to read. A beginning that no queue has come to is a range too, an empty one, to be judged as a stream's is."""
    return [
        QueueRange.of(queue, begin, max(begin, end[queue]))
        for queue, begin in start.items()
        if begin < end[queue] or begin > kept[queue].next
    ]


def partition_number(queue: MessageQueue) -> int:
    """One number for broker and queue, which stays the same whatever brokers come and go: Kafka's `partition`."""
    return (java_hash(queue.broker_name) & 0x7FFF) << 16 | queue.queue_id


def refuse_confusion(queues: Iterable[MessageQueue]) -> None:
    """Two queues of a topic must not have one number; names of brokers that give the same are very rare."""
    owners: dict[tuple[str, int], MessageQueue] = {}
    for queue in queues:
        other = owners.setdefault((queue.topic, partition_number(queue)), queue)
        if other is not queue:
            raise OptionError(
                "schemaMode", "kafka", f"rocketmq here: {queue} and {other} would be the same partition"
            )


def unwanted(choice: Choice, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
    """Queues that a query does not name, because its options were changed since its checkpoint was made."""
    return frozenset(queue for queue in queues if not _is_wanted(choice, queue))


def _is_wanted(choice: Choice, queue: MessageQueue) -> bool:
    if choice.queues is None:
        return queue.topic in choice.topics or choice.wants_topic(queue.topic)
    by_number = (one for one in choice.queues if one.broker_name == ANY_BROKER)
    return queue in choice.queues or any(meant_by(one, [queue]) for one in by_number)


def away_and_gone(
    lacking: Iterable[MessageQueue], live: Collection[str]
) -> tuple[frozenset[MessageQueue], frozenset[MessageQueue]]:
    """Queues that no route names: their broker is not there either, or it is and does not have them any more."""
    queues = frozenset(lacking)
    gone = frozenset(queue for queue in queues if queue.broker_name in live)
    return queues - gone, gone


@dataclass(frozen=True, slots=True)
class Seen:
    """What the cluster said just now."""

    nexts: Offsets
    """Of the queues whose broker answered."""
    firsts: Offsets = field(default_factory=dict)
    """Of queues that are new or look as if they were made anew, and from time to time of all."""
    gone: frozenset[MessageQueue] = frozenset()
    """Queues of brokers that are there and do not have them any more."""
    unwanted: frozenset[MessageQueue] = frozenset()
    """Those of them that the options do not name any more; they may be there."""
    mean_bytes: Mapping[MessageQueue, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user wants of a trigger."""

    limits: TriggerLimits
    loss: LossPolicy
    ends: Offsets | None = None
    """Where the stream ends, for AvailableNow or a bounded stream; queues that are not named are not read."""
    waits: bool = True
    """Whether `minOffsetsPerTrigger` counts."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to read next, and what to tell people."""

    progress: Progress
    warnings: tuple[str, ...] = ()
    waiting: int = 0
    is_held_back: bool = False


def next_step(start: Progress, seen: Seen, wishes: Wishes, waited_ms: int) -> Step:
    """The end of the next batch."""
    begins, warnings = _begins(start, seen, wishes.loss)
    from_here = {**start.offsets, **begins}
    ends = {queue: end for queue, end in seen.nexts.items() if queue in from_here}
    if wishes.ends is not None:
        ends = _bounded(from_here, ends, wishes.ends)
    waiting = sum(end - from_here[queue] for queue, end in ends.items() if end > from_here[queue])
    if wishes.waits and not is_due(wishes.limits, waiting, waited_ms):
        return Step(start, warnings, waiting, is_held_back=True)
    ends = {queue: max(end, from_here[queue]) for queue, end in ends.items()}
    ends = capped_by_offsets(from_here, ends, wishes.limits.offsets_max)
    ends = capped_by_bytes(from_here, ends, wishes.limits.bytes_max, seen.mean_bytes)
    return Step(next_progress(start, ends, begins), warnings, waiting)


def _bounded(from_here: Offsets, ends: Offsets, bounds: Offsets) -> dict[MessageQueue, int]:
    return {
        queue: max(min(end, bounds[queue]), from_here[queue])
        for queue, end in ends.items()
        if queue in bounds
    }


def _begins(start: Progress, seen: Seen, loss: LossPolicy) -> tuple[dict[MessageQueue, int], tuple[str, ...]]:
    """Where queues begin that the stream does not know yet, or cannot go on in as it was."""
    begins: dict[MessageQueue, int] = {}
    warnings = []
    for queue, following in seen.nexts.items():
        known = start.offsets.get(queue)
        first = seen.firsts.get(queue)
        if known is None:
            if first is not None:
                begins[queue] = min(first, following)
            continue
        lost = _lost(queue, known, first, following)
        if lost is None:
            continue
        part, have = lost
        text = loss_text(part, have)
        if loss == "fail":
            raise DataLossError(f"{text}; {ways_on(part, have)}")
        begins[queue] = _anew(known, first, following, loss)
        warnings.append(f"{text}; the stream goes on at {begins[queue]}")
    for queue in sorted(seen.gone, key=str):
        text = _gone_text(queue, start.offsets[queue], is_unwanted=queue in seen.unwanted)
        if loss == "fail":
            raise DataLossError(
                f"{text}; set failOnDataLoss to warn or earliest to go on with the other queues"
            )
        warnings.append(f"{text}; the stream goes on with the other queues")
    return begins, tuple(warnings)


def _lost(
    queue: MessageQueue, known: int, first: int | None, following: int
) -> tuple[QueueRange, Kept] | None:
    """What a stream cannot read of a queue, and what there is of it."""
    if following < known:
        return QueueRange.of(queue, known, known), Kept(min(first or 0, following), following)
    if first is not None and known < first:
        return QueueRange.of(queue, known, following), Kept(first, following)
    return None


def _gone_text(queue: MessageQueue, at: int, *, is_unwanted: bool) -> str:
    if is_unwanted:
        return (
            f"{queue} was read up to offset {at}, and the query's options do not name it any more: name it again, or begin with a new"
            " checkpoint"
        )
    return loss_text(QueueRange.of(queue, at, at), None)


def _anew(known: int, first: int | None, following: int, loss: LossPolicy) -> int:
    if following < known:
        return min(first or 0, following) if loss == "earliest" else following
    assert first is not None, "known < first"
    return min(first, following)
