"""The pipeline against brokers that give what they like, in any order, or nothing at all."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.examples import examples
from trimtab.balance.pipeline import Answer, Found, Handed, Pipeline, Pull, Shape

PLENTY = 1 << 40


@dataclass
class Queue:
    """A queue that gives at most `cap` messages at once, and passes over those that do not match."""

    end: int
    cap: int
    begin: int = 0
    every: int = 1
    is_generous: bool = False
    """Gives more than was asked for."""

    def answer(self, pull: Pull) -> Answer:
        if pull.offset < self.begin:
            return Answer(Found.MOVED, self.begin, self.end)
        if pull.offset > self.end:
            return Answer(Found.MOVED, self.end, self.end)
        if pull.offset == self.end:
            return Answer(Found.NONE_YET, pull.offset, self.end)
        wanted = self.cap if self.is_generous else min(pull.messages_max, self.cap)
        next_offset, found = pull.offset, 0
        while next_offset < self.end and found < wanted and next_offset - pull.offset < 50:
            found += next_offset % self.every == 0
            next_offset += 1
        return Answer(
            Found.MESSAGES if found else Found.NONE_MATCHED, next_offset, self.end, body_bytes=found * 200
        )


@dataclass
class Reader:
    pipeline: Pipeline
    on_way: dict[int, Pull] = field(default_factory=dict)
    position: int = 0

    def send(self, room_bytes: int = PLENTY) -> None:
        for pull in self.pipeline.pulls(room_bytes):
            assert pull.number not in self.on_way
            assert pull.messages_max > 0
            self.on_way[pull.number] = pull

    def take(self, handed: list[Handed]) -> None:
        for piece in handed:
            assert piece.offset == self.position, "in the order of the queue, without a gap"
            assert piece.next_offset > piece.offset
            self.position = piece.next_offset

    def answer(self, number: int, answer: Answer) -> None:
        del self.on_way[number]
        self.take(self.pipeline.answered(number, answer))


class AnyBroker(RuleBasedStateMachine):
    """Answers in any order, failures, a queue that grows: what is handed on is the queue, each offset once."""

    @initialize(
        end=st.integers(0, 300), cap=st.integers(1, 40), depth=st.integers(1, 6), generous=st.booleans()
    )
    def begin(self, end: int, cap: int, depth: int, generous: bool) -> None:
        self.queue = Queue(end, cap, is_generous=generous)
        self.depth = depth
        self.reader = Reader(Pipeline(0, Shape(depth_max=depth, count_max=64)))

    @rule(room=st.sampled_from([0, 1, 100, PLENTY]))
    def send(self, room: int) -> None:
        self.reader.send(room)

    @precondition(lambda self: self.reader.on_way)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.reader.on_way)))
        pull = self.reader.on_way[number]
        if not pull.may_wait or pull.offset < self.queue.end or data.draw(st.booleans()):
            self.reader.answer(number, self.queue.answer(pull))

    @precondition(lambda self: self.reader.on_way)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.reader.on_way)))
        del self.reader.on_way[number]
        self.reader.pipeline.failed(number)

    @rule(more=st.integers(1, 100))
    def grow(self, more: int) -> None:
        self.queue.end += more

    @rule(cap=st.integers(1, 40))
    def give_otherwise(self, cap: int) -> None:
        self.queue.cap = cap

    @rule(offset=st.integers(0, 200))
    def seek(self, offset: int) -> None:
        """Late answers to what was asked before are forgotten."""
        before = dict(self.reader.on_way)
        self.reader.pipeline.seek(offset)
        self.reader.on_way.clear()
        self.reader.position = offset
        self.queue.end = max(self.queue.end, offset)
        for number, pull in before.items():
            assert self.reader.pipeline.answered(number, self.queue.answer(pull)) == []

    @invariant()
    def only_one_waits(self) -> None:
        waiting = [pull for pull in self.reader.on_way.values() if pull.may_wait]
        assert len(waiting) <= 1
        assert not waiting or len(self.reader.on_way) == 1, "nothing is guessed beside a pull that waits"

    @invariant()
    def nothing_is_asked_twice(self) -> None:
        known = [pull for number, pull in self.reader.on_way.items() if self.reader.pipeline.knows(number)]
        starts = [pull.offset for pull in known]
        assert len(starts) == len(set(starts))

    def teardown(self) -> None:
        if not hasattr(self, "reader"):
            return
        for _ in range(10_000):
            if self.reader.position >= self.queue.end:
                break
            self.reader.send()
            number = min(self.reader.on_way)
            self.reader.answer(number, self.queue.answer(self.reader.on_way[number]))
        assert self.reader.position == self.queue.end, "everything is read in the end"


TestAnyBroker = AnyBroker.TestCase
TestAnyBroker.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


@settings(max_examples=examples(150), deadline=None)
@given(
    length=st.integers(0, 3_000), cap=st.sampled_from([8, 32, 1_000]), depth=st.integers(1, 8), data=st.data()
)
def test_a_backlog_is_drained_without_waste_in_as_few_pulls_as_can_be(
    length: int, cap: int, depth: int, data: st.DataObject
) -> None:
    queue = Queue(length, cap)
    reader = Reader(Pipeline(0, Shape(depth_max=depth, count_max=4_096)))
    deepest = 0
    while reader.position < length:
        reader.send()
        deepest = max(deepest, len(reader.on_way))
        number = data.draw(st.sampled_from(sorted(reader.on_way)))
        reader.answer(number, Queue(length, min(cap, 50)).answer(reader.on_way[number]))
    tally = reader.pipeline.tally
    assert tally.wasted == 0
    assert tally.sent <= -(-length // min(queue.cap, 50)) + 2 * depth + 8
    assert deepest <= depth + 1  # one more while a gap is filled


@given(start=st.integers(0, 100), length=st.integers(0, 500), cap=st.integers(1, 40), every=st.integers(1, 5))
def test_a_range_ends_where_it_ends_and_asks_for_nothing_behind_it(
    start: int, length: int, cap: int, every: int
) -> None:
    queue = Queue(1_000, cap, every=every)
    stop = start + length
    reader = Reader(Pipeline(start, Shape(), stop=stop, is_filtered=every > 1), position=start)
    while not reader.pipeline.is_over:
        reader.send()
        assert all(pull.offset < stop for pull in reader.on_way.values())
        if every == 1:
            assert all(pull.offset + pull.messages_max <= stop for pull in reader.on_way.values())
        number = max(reader.on_way)
        reader.answer(number, queue.answer(reader.on_way[number]))
    assert reader.position >= stop
    assert reader.pipeline.pulls(PLENTY) == []


def test_the_stride_becomes_what_the_broker_gives_and_follows_when_it_gives_more() -> None:
    queue = Queue(200_000, 8)
    reader = Reader(Pipeline(0, Shape(count_max=4_096)))

    def read(pulls: int) -> set[int]:
        asked = set()
        for _ in range(pulls):
            reader.send()
            number = min(reader.on_way)
            asked.add(reader.on_way[number].messages_max)
            reader.answer(number, queue.answer(reader.on_way[number]))
        return asked

    read(10)
    assert read(5) == {8}
    queue.cap = 32
    read(400)
    assert 32 in read(5)


def test_one_short_answer_costs_a_few_pulls_and_not_a_smaller_stride_for_long() -> None:
    """Apache's brokers answer short where a file of a consume queue ends."""
    length, cap, edge = 100_000, 32, 50_000 - 16
    queue = Queue(length, cap)
    reader = Reader(Pipeline(0, Shape(count_max=4_096)))
    while reader.position < length:
        reader.send()
        number = min(reader.on_way)
        pull = reader.on_way[number]
        queue.cap = edge + 16 - pull.offset if edge <= pull.offset < edge + 16 else cap
        reader.answer(number, queue.answer(pull))
    assert reader.pipeline.tally.wasted == 0
    assert reader.pipeline.tally.sent < 1.05 * length / cap


def test_a_filter_makes_offsets_unknowable_so_nothing_is_guessed() -> None:
    queue = Queue(1_000, 32, every=7)
    reader = Reader(Pipeline(0, Shape(depth_max=8), is_filtered=True))
    while reader.position < queue.end:
        reader.send()
        assert len(reader.on_way) == 1
        ((number, pull),) = reader.on_way.items()
        reader.answer(number, queue.answer(pull))
    assert reader.pipeline.tally.wasted == 0


def test_at_the_end_one_pull_waits_and_is_sent_anew_when_it_waited_in_vain() -> None:
    reader = Reader(Pipeline(5))
    reader.send()
    assert [(pull.offset, pull.may_wait) for pull in reader.on_way.values()] == [(5, True)]
    reader.answer(1, Answer(Found.NONE_YET, 5, 5))
    reader.send()
    assert [(pull.offset, pull.may_wait) for pull in reader.on_way.values()] == [(5, True)]
    assert reader.pipeline.tally.wasted == 0


def test_an_offset_that_moved_ends_it_until_somebody_says_where_to_go_on() -> None:
    pipeline = Pipeline(5)
    (pull,) = pipeline.pulls(PLENTY)
    assert pipeline.answered(pull.number, Answer(Found.MOVED, 90, 120)) == [
        Handed(pull.number, 5, 90, Found.MOVED)
    ]
    assert pipeline.is_over
    assert pipeline.pulls(PLENTY) == []
    pipeline.seek(90)
    assert [pull.offset for pull in pipeline.pulls(PLENTY)] == [90]


def test_a_guess_that_was_wrong_is_counted_as_wasted_and_makes_it_careful() -> None:
    pipeline = Pipeline(0, Shape(depth_max=4, count_max=10))
    (first,) = pipeline.pulls(PLENTY)
    pipeline.answered(first.number, Answer(Found.MESSAGES, 10, 100, 10))
    head, guess = pipeline.pulls(PLENTY)
    assert pipeline.answered(guess.number, Answer(Found.MOVED, 0, 15)) == []
    assert pipeline.tally.wasted == 1
    assert [
        piece.next_offset for piece in pipeline.answered(head.number, Answer(Found.MESSAGES, 15, 15, 5))
    ] == [15]


def test_with_no_room_nothing_is_asked_and_with_a_little_only_the_next() -> None:
    pipeline = Pipeline(0, Shape(depth_max=8, count_max=10))
    assert pipeline.pulls(0) == []
    (first,) = pipeline.pulls(1)
    pipeline.answered(first.number, Answer(Found.MESSAGES, 10, 1_000, 5_000))
    assert len(pipeline.pulls(1)) == 1
