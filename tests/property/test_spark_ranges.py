"""Ranges and limits of the Spark source: whatever the queues do, every message is read exactly once."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from trimtab.model import MessageQueue
from trimtab.spark.decisions import Seen, Wishes, next_step
from trimtab.spark.limits import (
    TaskLimits,
    TriggerLimits,
    capped_by_bytes,
    capped_by_offsets,
    split_into_tasks,
)
from trimtab.spark.losses import Kept, judge
from trimtab.spark.offsets import Progress, QueueRange, progress_from_json, ranges_between

queues = st.builds(
    MessageQueue, st.sampled_from(["t", "u"]), st.sampled_from(["broker-a", "b@c"]), st.integers(0, 5)
)
small = st.integers(0, 400)
limits = st.builds(
    TriggerLimits,
    st.none() | st.integers(1, 500),
    st.none() | st.integers(1, 5_000),
    st.none() | st.integers(1, 50),
    st.just(10),
)
tasks = st.builds(
    TaskLimits,
    st.none() | st.integers(1, 20),
    st.none() | st.integers(20, 40),
    st.none() | st.integers(1, 300),
)


@st.composite
def range_lists(draw: st.DrawFn) -> list[QueueRange]:
    chosen = draw(st.lists(queues, unique=True, max_size=8))
    return [
        QueueRange.of(queue, start, start + draw(st.integers(0, 100_000)))
        for queue, start in ((queue, draw(small)) for queue in chosen)
    ]


def offsets_of(ranges: list[QueueRange]) -> dict[MessageQueue, list[tuple[int, int]]]:
    """The ranges of each queue in order, those that touch made one."""
    found: dict[MessageQueue, list[tuple[int, int]]] = {}
    for part in sorted(ranges):
        if not part.size:
            continue
        parts = found.setdefault(part.queue, [])
        if parts and parts[-1][1] == part.start:
            parts[-1] = (parts[-1][0], part.end)
        else:
            parts.append((part.start, part.end))
    return found


@given(range_lists(), tasks)
def test_tasks_hold_every_offset_once_and_are_of_equal_size(
    ranges: list[QueueRange], wished: TaskLimits
) -> None:
    found = split_into_tasks(ranges, wished)
    assert offsets_of([part for task in found for part in task]) == offsets_of(ranges)
    whole = split_into_tasks(ranges, replace(wished, splits_queues=False))
    assert sorted(part for task in whole for part in task) == sorted(part for part in ranges if part.size)
    sizes = [sum(part.size for part in task) for task in found]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert 0 not in sizes
    total = sum(part.size for part in ranges)
    if wished.records_max is not None:
        assert all(size <= wished.records_max for size in sizes)
    elif wished.partitions_max is not None:
        assert len(found) <= wished.partitions_max
    if wished.partitions_min is not None:
        assert len(found) >= min(wished.partitions_min, total)
    assert sum(len(task) for task in found) <= len(ranges) + len(found)


@given(st.dictionaries(queues, st.tuples(small, st.integers(0, 10**12))), st.integers(1, 10**6))
def test_a_limit_is_kept_and_nobody_starves(
    waiting: dict[MessageQueue, tuple[int, int]], offsets_max: int
) -> None:
    start = {queue: begin for queue, (begin, _) in waiting.items()}
    ends = {queue: begin + count for queue, (begin, count) in waiting.items()}
    found = capped_by_offsets(start, ends, offsets_max)
    taken = {queue: found[queue] - start[queue] for queue in ends}
    busy = [queue for queue in ends if ends[queue] > start[queue]]
    assert sum(taken.values()) <= max(offsets_max, len(busy))
    assert all(1 <= taken[queue] <= ends[queue] - start[queue] for queue in busy)
    assert all(found[queue] == ends[queue] for queue in ends if queue not in busy)
    if sum(ends[queue] - start[queue] for queue in ends) <= offsets_max:
        assert found == ends


@given(
    st.dictionaries(queues, st.tuples(small, small)),
    st.integers(1, 10**6),
    st.dictionaries(queues, st.floats(0.5, 10_000)),
)
def test_a_limit_of_bytes_never_goes_beyond_what_is_there(
    waiting: dict[MessageQueue, tuple[int, int]], bytes_max: int, sizes: dict[MessageQueue, float]
) -> None:
    start = {queue: begin for queue, (begin, _) in waiting.items()}
    ends = {queue: begin + count for queue, (begin, count) in waiting.items()}
    found = capped_by_bytes(start, ends, bytes_max, sizes)
    assert all(start[queue] <= found[queue] <= ends[queue] for queue in ends)
    assert all(found[queue] > start[queue] for queue in ends if ends[queue] > start[queue])


@st.composite
def histories(draw: st.DrawFn) -> list[dict[MessageQueue, int]]:
    """What brokers say of the ends of queues, trigger by trigger: queues grow, join, and their broker may be away."""
    ends: dict[MessageQueue, int] = {}
    history = []
    for _ in range(draw(st.integers(1, 12))):
        for queue in draw(st.lists(queues, max_size=4)):
            ends[queue] = ends.get(queue, 0) + draw(small)
        away = draw(st.sets(queues, max_size=3))
        history.append({queue: end for queue, end in ends.items() if queue not in away})
    return history


@given(histories(), limits, st.data())
def test_a_stream_with_crashes_reads_every_message_once(
    history: list[dict[MessageQueue, int]], wished: TriggerLimits, data: st.DataObject
) -> None:
    """Spark's checkpoint holds the end of each batch only; a batch that was not finished is run again from those texts."""
    first = history[0]
    start = Progress({queue: end // 2 for queue, end in first.items()}, is_initial=True)
    read: dict[MessageQueue, int] = dict(start.offsets)
    for seen in history:
        firsts = dict.fromkeys(seen, 0)
        step = next_step(
            start, Seen(seen, firsts), Wishes(wished, "fail"), waited_ms=data.draw(st.integers(0, 20))
        )
        end = progress_from_json(json.loads(json.dumps(step.progress.to_json())))
        if start.is_initial and data.draw(st.booleans()):
            # A crash before the first batch is done: where to begin is found anew, and elsewhere.
            start = Progress({queue: end + 1000 for queue, end in start.offsets.items()}, is_initial=True)
        for part in ranges_between(start, end):
            assert read.get(part.queue, 0) == part.start, "no message twice and none left out"
            read[part.queue] = part.end
        start = end
    for queue, reached in start.offsets.items():
        assert read.get(queue, 0) == reached or queue not in read


@given(range_lists(), st.data())
def test_what_is_read_after_a_loss_is_there(ranges: list[QueueRange], data: st.DataObject) -> None:
    kept = {}
    for part in ranges:
        first = data.draw(small)
        kept[part.queue] = data.draw(
            st.none() | st.builds(Kept, st.just(first), st.integers(first, first + 100_000))
        )
    policy = data.draw(st.sampled_from(["warn", "earliest"]))
    found = judge(ranges, kept, policy)  # type: ignore[arg-type]
    for part in found.ranges:
        have = kept[part.queue]
        assert have is not None
        assert have.first <= part.start < part.end <= have.next or not part.size
    whole = [
        part
        for part in ranges
        if (have := kept[part.queue]) and have.first <= part.start and part.end <= have.next
    ]
    assert set(whole) <= set(found.ranges)


@given(
    st.dictionaries(queues, st.integers(0, 2**62)),
    st.dictionaries(queues, st.integers(0, 2**62)),
    st.booleans(),
)
def test_texts_come_back(
    offsets: dict[MessageQueue, int], begins: dict[MessageQueue, int], is_initial: bool
) -> None:
    progress = Progress(offsets, begins, is_initial)
    text = json.dumps(progress.to_json())
    again = progress_from_json(json.loads(text))
    assert again == progress
    assert json.dumps(again.to_json()) == text, "Spark compares the texts"
