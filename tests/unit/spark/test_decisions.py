"""Where queries begin, what a stream reads next, and what is said when messages are gone."""

import json

import pytest

from trimtab.model import MessageQueue
from trimtab.spark.decisions import (
    Seen,
    Step,
    Wishes,
    batch_ranges,
    next_step,
    partition_number,
    refuse_confusion,
    resolved,
    times_wanted,
    unwanted,
)
from trimtab.spark.lag import QueueLag, lags_of, summary
from trimtab.spark.limits import TaskLimits, TriggerLimits, split_into_tasks
from trimtab.spark.losses import Kept, judge
from trimtab.spark.offsets import CheckpointError, Progress, QueueRange, progress_from_json, ranges_between
from trimtab.spark.options import Choice
from trimtab.spark.positions import ANY_BROKER, EARLIEST, LATEST, Position
from trimtab.spark.problems import DataLossError, OptionError

A, B, C = (MessageQueue("t", "broker-a", number) for number in range(3))
NO_LIMITS = TriggerLimits()


def step(
    start: Progress,
    nexts: dict[MessageQueue, int],
    firsts: dict[MessageQueue, int] | None = None,
    **wishes: object,
) -> Step:
    waited_ms = wishes.pop("waited_ms", 0)
    assert isinstance(waited_ms, int)
    wanted = Wishes(**{"limits": NO_LIMITS, "loss": "fail", **wishes})  # type: ignore[arg-type]
    return next_step(start, Seen(nexts, firsts or {}), wanted, waited_ms)


def test_positions_are_resolved() -> None:
    kept = {A: Kept(5, 50), B: Kept(0, 0)}
    assert resolved("o", Position("earliest"), kept) == {A: 5, B: 0}
    assert resolved("o", Position("latest"), kept) == {A: 50, B: 0}
    named = Position("offsets", queues={A: 7}, others=EARLIEST)
    assert resolved("o", named, kept) == {A: 7, B: 0}
    assert resolved("o", Position("offsets", queues={A: LATEST}, others=EARLIEST), kept) == {A: 50, B: 0}
    assert resolved("o", Position("time", at_ms=1), kept, at_time={A: 9, B: 0}) == {A: 9, B: 0}


def test_a_group_that_read_a_part_of_a_topic_gets_the_rest_from_its_beginning() -> None:
    kept = {A: Kept(5, 50), B: Kept(3, 30)}
    group = Position("group", others=LATEST)
    assert resolved("o", group, kept, {A: 9, B: None}) == {A: 9, B: 3}
    assert resolved("o", group, kept, {A: None, B: None}) == {A: 50, B: 30}


def test_an_offset_for_a_queue_that_is_not_there_is_refused() -> None:
    with pytest.raises(OptionError, match="t@broker-a:0"):
        resolved("startingOffsets", Position("offsets", queues={C: 1}), {A: Kept(0, 1)})


def test_a_time_for_a_queue_that_is_not_there_is_refused() -> None:
    times = Position("times", queues={A: 1_000}, others=LATEST)
    assert times_wanted("o", times, [A, B], [A, B, C]) == {A: 1_000, B: LATEST}
    assert times_wanted("o", times, [B], [A, B]) == {B: LATEST}, "a queue that is away may be named"
    with pytest.raises(OptionError, match=r"'o' is 't@broker-a:0'.*queues that there are: t@broker-a:1"):
        times_wanted("o", times, [B], [B])


def test_a_batch_that_begins_beyond_the_end_is_judged() -> None:
    kept = {A: Kept(0, 20), B: Kept(0, 20), C: Kept(0, 20)}
    ranges = batch_ranges({A: 5, B: 20, C: 30}, {A: 20, B: 20, C: 20}, kept)
    assert ranges == [QueueRange.of(A, 5, 20), QueueRange.of(C, 30, 30)]
    with pytest.raises(
        DataLossError, match=r"offsets from 30 on were to be read, and the queue ends at 20, .*keeps 0 to 20"
    ):
        judge(ranges, kept, "fail")
    assert judge(ranges, kept, "warn").ranges == (QueueRange.of(A, 5, 20),)
    assert judge(ranges, kept, "earliest").ranges == (QueueRange.of(A, 5, 20), QueueRange.of(C, 0, 20))


def test_the_first_batch_carries_its_beginning() -> None:
    initial = Progress({A: 10, B: 20}, is_initial=True)
    end = step(initial, {A: 15, B: 20}).progress
    assert end == Progress({A: 15, B: 20}, {A: 10, B: 20})
    # After a crash `latest` means something later; what the end says counts.
    found_anew = Progress({A: 99, B: 99}, is_initial=True)
    assert ranges_between(found_anew, end) == [QueueRange("t", "broker-a", 0, 10, 15)]


def test_an_empty_first_batch_stays_empty_when_it_is_run_again() -> None:
    initial = Progress({A: 10}, is_initial=True)
    assert step(initial, {A: 10}).progress is initial
    assert ranges_between(Progress({A: 5}, is_initial=True), initial) == []
    # The next batch begins where the empty one ended.
    end = step(initial, {A: 12}).progress
    assert ranges_between(initial, end) == [QueueRange("t", "broker-a", 0, 10, 12)]


def test_nothing_new_is_the_very_same_offset() -> None:
    start = Progress({A: 10, B: 20}, {B: 3})
    assert step(start, {A: 10, B: 20}).progress is start


def test_a_new_queue_is_read_from_its_first_message_also_on_replay() -> None:
    start = Progress({A: 10})
    end = step(start, {A: 12, B: 7}, {B: 4}).progress
    assert end == Progress({A: 12, B: 7}, {B: 4})
    assert ranges_between(start, end) == [
        QueueRange("t", "broker-a", 0, 10, 12),
        QueueRange("t", "broker-a", 1, 4, 7),
    ]


def test_a_batch_without_data_reads_nothing_again() -> None:
    start = Progress({A: 12, B: 7}, {B: 4})
    assert ranges_between(start, start) == []


def test_a_broker_that_is_away_keeps_its_offsets() -> None:
    start = Progress({A: 10, B: 20})
    assert step(start, {A: 11}).progress == Progress({A: 11, B: 20})


def test_a_queue_that_ends_before_we_stand_was_made_anew() -> None:
    start = Progress({A: 100})
    words = (
        r"t@broker-a:0: offsets from 100 on .* the queue ends at 5, .* keeps 0 to 5: the topic was removed"
    )
    with pytest.raises(DataLossError, match=words) as caught:
        step(start, {A: 5}, {A: 0})
    assert str(caught.value).endswith('startingOffsets={"t": {"broker-a": {"0": 0}}}')
    end = step(start, {A: 5}, {A: 0}, loss="earliest").progress
    assert ranges_between(start, end) == [QueueRange("t", "broker-a", 0, 0, 5)]
    found = step(start, {A: 5}, {A: 0}, loss="warn")
    assert ranges_between(start, found.progress) == []
    assert found.progress.offsets == {A: 5}
    assert "the stream goes on at 5" in found.warnings[0]


def test_retention_that_overtook_the_stream() -> None:
    start = Progress({A: 10})
    words = r"the broker keeps 40 to 90: 30 messages were removed before they were read"
    with pytest.raises(DataLossError, match=words) as caught:
        step(start, {A: 90}, {A: 40})
    assert str(caught.value).endswith('startingOffsets={"t": {"broker-a": {"0": 40}}}')
    end = step(start, {A: 90}, {A: 40}, loss="warn").progress
    assert ranges_between(start, end) == [QueueRange("t", "broker-a", 0, 40, 90)]


def test_a_queue_that_its_broker_does_not_have_any_more() -> None:
    start = Progress({A: 10, B: 5})
    seen = Seen({A: 11}, gone=frozenset({B}))
    with pytest.raises(DataLossError, match=r"t@broker-a:1: .*no such queue any more"):
        next_step(start, seen, Wishes(NO_LIMITS, "fail"), 0)
    found = next_step(start, seen, Wishes(NO_LIMITS, "warn"), 0)
    assert found.progress.offsets == {A: 11, B: 5}
    assert len(found.warnings) == 1


def test_a_queue_that_the_options_name_no_longer_is_not_said_to_be_gone() -> None:
    start = Progress({A: 10, B: 5})
    seen = Seen({A: 11}, gone=frozenset({B}), unwanted=frozenset({B}))
    with pytest.raises(
        DataLossError, match=r"t@broker-a:1 was read up to offset 5, .* options do not name it"
    ):
        next_step(start, seen, Wishes(NO_LIMITS, "fail"), 0)
    assert unwanted(Choice(queues=frozenset({A})), [A, B]) == {B}
    numbers = frozenset({MessageQueue("t", ANY_BROKER, partition_number(A))})
    assert unwanted(Choice(queues=numbers), [A, B]) == {B}
    assert unwanted(Choice(topics=("s", "t")), [A, B]) == frozenset()
    assert unwanted(Choice(topics=("s",)), [A, B]) == {A, B}
    assert unwanted(Choice(pattern="t.*"), [A, B]) == frozenset()


def test_a_place_before_the_first_message_says_how_many_are_gone() -> None:
    words = r"t@broker-a:0: offsets from 0 on .* keeps 50 to 90: 50 messages were removed"
    with pytest.raises(DataLossError, match=words):
        judge([QueueRange.of(A, 0, 0)], {A: Kept(50, 90)}, "fail")


def test_limits_share_out_by_backlog() -> None:
    start = Progress({A: 0, B: 0, C: 7})
    found = step(start, {A: 900, B: 100, C: 7}, limits=TriggerLimits(offsets_max=100)).progress
    assert found.offsets == {A: 89, B: 10, C: 7}


def test_bytes_are_limited_by_the_mean_size() -> None:
    start = Progress({A: 0, B: 0})
    seen = Seen({A: 100, B: 100}, mean_bytes={A: 1000.0, B: 10.0})
    wishes = Wishes(TriggerLimits(bytes_max=10_100), "fail")
    assert next_step(start, seen, wishes, 0).progress.offsets == {A: 10, B: 10}


def test_a_trigger_waits_for_enough_messages_but_not_for_ever() -> None:
    start = Progress({A: 0})
    limits = TriggerLimits(offsets_min=10, delay_ms_max=1000)
    held = step(start, {A: 9}, limits=limits, waited_ms=999)
    assert held.is_held_back
    assert held.progress is start
    assert step(start, {A: 10}, limits=limits, waited_ms=0).progress.offsets == {A: 10}
    assert step(start, {A: 9}, limits=limits, waited_ms=1000).progress.offsets == {A: 9}
    assert step(start, {A: 9}, limits=limits, waits=False).progress.offsets == {A: 9}


def test_an_end_is_kept_and_new_queues_are_not_read_then() -> None:
    start = Progress({A: 0, B: 5})
    found = step(start, {A: 50, B: 50, C: 9}, {C: 0}, ends={A: 20, B: 5}).progress
    assert found.offsets == {A: 20, B: 5}
    assert step(found, {A: 60, B: 60}, ends={A: 20, B: 5}).progress is found


def test_texts_come_back_and_unknown_ones_are_refused() -> None:
    progress = Progress({A: 1, MessageQueue("s", "x@y", 10): 2}, {A: 0})
    text = json.dumps(progress.to_json())
    assert (
        text
        == '{"v": 1, "q": {"s@x@y": {"10": 2}, "t@broker-a": {"0": 1}}, "init": {"t@broker-a": {"0": 0}}}'
    )
    assert progress_from_json(json.loads(text)) == progress
    with pytest.raises(CheckpointError, match="version 2"):
        progress_from_json({"v": 2})
    with pytest.raises(CheckpointError, match="not topic@broker"):
        progress_from_json({"v": 1, "q": {"t": {"0": 1}}})


def test_what_is_lost_is_told_exactly_with_the_way_on() -> None:
    part = QueueRange.of(A, 10, 60)
    with pytest.raises(DataLossError) as caught:
        judge([part], {A: Kept(30, 100)}, "fail")
    assert str(caught.value) == (
        "t@broker-a:0: offsets 10 to 60 were to be read, and the broker keeps 30 to 100: 20 messages were removed before they were"
        " read (see fileReservedTime of the broker); to go on without them set failOnDataLoss to warn or earliest, or begin anew"
        ' with another checkpoint and startingOffsets={"t": {"broker-a": {"0": 30}}}'
    )
    found = judge([part], {A: Kept(30, 100)}, "warn")
    assert (found.ranges, found.lost) == ((QueueRange.of(A, 30, 60),), 20)
    assert found.warnings[0].endswith("reading t@broker-a:0 [30, 60) instead")
    assert judge([part], {A: Kept(80, 100)}, "warn").ranges == ()
    assert judge([part], {A: None}, "earliest").lost == 50


def test_tasks_are_of_equal_size() -> None:
    ranges = [QueueRange.of(A, 0, 100_000), QueueRange.of(B, 5, 6), QueueRange.of(C, 0, 50_000)]
    tasks = split_into_tasks(ranges, TaskLimits(partitions_max=3))
    assert [sum(part.size for part in task) for task in tasks] == [50_000, 50_000, 50_001]
    assert len(split_into_tasks(ranges, TaskLimits())) == 3
    assert len(split_into_tasks([QueueRange.of(A, 0, 9), QueueRange.of(B, 0, 9)], TaskLimits())) == 1
    assert len(split_into_tasks(ranges, TaskLimits(partitions_min=7))) == 7
    tasks = split_into_tasks(ranges, TaskLimits(partitions_max=1, records_max=30_000))
    assert max(sum(part.size for part in task) for task in tasks) <= 30_000
    assert split_into_tasks([], TaskLimits()) == []


def test_partitions_of_kafka_tell_brokers_apart_or_say_so() -> None:
    twins = [MessageQueue("t", name, 1) for name in ("Aa", "BB")]  # one hash in Java
    refuse_confusion([A, B, C, MessageQueue("t", "broker-b", 0), twins[0]])
    with pytest.raises(OptionError, match="would be the same partition"):
        refuse_confusion(twins)


def test_lag_in_messages_and_seconds() -> None:
    end = Progress({A: 10, B: 5}).to_json()
    latest = Progress({A: 15, B: 5}, waiting_since={A: 4_000}).to_json()
    source = {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
    lags = lags_of(source, now_ms=10_000)
    assert lags == (QueueLag(A, 5, 6.0), QueueLag(B, 0, 0.0))
    assert (
        summary("q", lags) == "q: 5 messages wait in 2 queues, the oldest for 6.0 s; most in t@broker-a:0 (5)"
    )
    assert lags_of({"endOffset": '{"0": 5}', "latestOffset": "null"}, 0) == ()
