"""Counters and what they make over time."""

import pytest

from trimtab.broker.stats import NAMES_MAX, Days, Figure, Stats
from trimtab.broker.store import ReadResult, ReadStatus
from trimtab.wire.headers.consume import PullMessage

HEADER = PullMessage(
    consumer_group="g", topic="t", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=0, commit_offset=0,
    suspend_timeout_millis=0, sub_version=0,
)  # fmt: skip


def found(count: int) -> ReadResult:
    status = ReadStatus.FOUND if count else ReadStatus.NO_MESSAGE_IN_QUEUE
    return ReadResult(status, b"x" * 10 * count, count, count, 0, count)


class Clock:
    """Samples every second, as the broker does."""

    def __init__(self, stats: Stats) -> None:
        self.stats = stats
        self.now_ms = 0

    def run(self, seconds: int, day: int = 1) -> None:
        for _ in range(seconds):
            self.stats.sample(self.now_ms, day)
            self.now_ms += 1_000


def test_a_new_counter_counts_from_one_step_before_its_first_note() -> None:
    stats = Stats()
    clock = Clock(stats)
    for _ in range(20):
        stats.stored("t", 100)
    clock.run(1)
    view = stats.view("TOPIC_PUT_NUMS", "t")
    assert view is not None
    assert view.minute == Figure(sum=20, per_second=2.0, per_call=1.0)
    assert (view.hour.sum, view.day.sum) == (20, 20)
    size = stats.view("TOPIC_PUT_SIZE", "t")
    assert size is not None
    assert size.minute == Figure(sum=2_000, per_second=200.0, per_call=100.0)


def test_a_minute_is_six_steps_of_ten_seconds() -> None:
    stats = Stats()
    clock = Clock(stats)
    for _ in range(120):  # one message a second, for two minutes
        stats.stored("t", 1)
        clock.run(1)
    view = stats.view("TOPIC_PUT_NUMS", "t")
    assert view is not None
    assert view.minute == Figure(sum=60, per_second=1.0, per_call=1.0)


def test_a_flow_that_stood_still_begins_anew() -> None:
    stats = Stats()
    clock = Clock(stats)
    stats.stored("t", 1)
    clock.run(1_200)
    view = stats.view("TOPIC_PUT_NUMS", "t")
    assert view is not None
    assert view.minute == Figure()
    assert view.hour.sum == 1
    clock.run(1)  # at 1 200 s there is a step of each length
    for _ in range(30):
        stats.stored("t", 1)
    clock.run(10)
    view = stats.view("TOPIC_PUT_NUMS", "t")
    assert view is not None
    assert view.minute == Figure(sum=30, per_second=3.0, per_call=1.0)


def test_pulls_are_counted_by_topic_and_group_and_per_call() -> None:
    stats = Stats("C")
    for count in (3, 5, 0):
        stats.pulled(HEADER, found(count))
    Clock(stats).run(1)
    view = stats.view("GROUP_GET_NUMS", "t@g")
    assert view is not None
    assert view.minute == Figure(sum=8, per_second=0.8, per_call=4.0)
    size = stats.view("GROUP_GET_SIZE", "t@g")
    assert size is not None
    assert size.minute.sum == 80
    broker = stats.view("BROKER_GET_NUMS", "C")
    assert broker is not None
    assert broker.minute.sum == 8
    assert stats.got_per_second("t", "g") == pytest.approx(0.8)
    assert stats.got_per_second("t", "nobody") == 0.0


def test_rates_are_over_the_last_seconds_or_what_there_is_of_them() -> None:
    stats = Stats()
    clock = Clock(stats)
    assert stats.rate("put_messages", 10) == 0.0
    clock.run(1)
    for _ in range(4):
        stats.stored("t", 1)
        clock.run(1)
    assert stats.rate("put_messages", 10) == 1.0
    clock.run(20)
    assert stats.rate("put_messages", 10) == 0.0
    assert stats.rate("put_messages", 600) == pytest.approx(4 / 24)


def test_sent_back_messages_are_counted() -> None:
    stats = Stats()
    stats.sent_back("t", "g")
    Clock(stats).run(1)
    view = stats.view("SNDBCK_PUT_NUMS", "t@g")
    assert view is not None
    assert view.minute.sum == 1


def test_what_was_never_counted_is_not_there() -> None:
    stats = Stats("C")
    for name, key in (
        ("TOPIC_PUT_NUMS", "t"), ("GROUP_GET_NUMS", "t@g"), ("NO_SUCH_NAME", "t"), ("BROKER_PUT_NUMS", "other"),
    ):  # fmt: skip
        assert stats.view(name, key) is None
    assert stats.view("BROKER_PUT_NUMS", "C") is not None


def test_totals_outlive_topics_and_groups() -> None:
    stats = Stats()
    stats.stored("t", 7)
    stats.stored("u", 7)
    stats.pulled(HEADER, found(2))
    stats.pulled(HEADER, found(0))
    before = stats.totals()
    assert before == (2, 14, 2, 1, 1)
    stats.drop_topic("t")
    stats.drop_group("g")
    assert stats.totals() == before
    assert stats.view("TOPIC_PUT_NUMS", "t") is None
    assert stats.view("GROUP_GET_NUMS", "t@g") is None
    assert stats.view("TOPIC_PUT_NUMS", "u") is not None


def test_names_are_bounded_and_nothing_is_lost() -> None:
    stats = Stats()
    for number in range(NAMES_MAX + 5):
        stats.stored(f"t{number}", 1)
        stats.sent_back(f"t{number}", "g")
        stats.pulled(
            PullMessage(
                consumer_group=f"g{number}", topic="t", queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=0,
                commit_offset=0, suspend_timeout_millis=0, sub_version=0,
            ), found(1),
        )  # fmt: skip
    assert stats.totals()[:3] == (NAMES_MAX + 5, NAMES_MAX + 5, NAMES_MAX + 5)
    assert stats.view("TOPIC_PUT_NUMS", f"t{NAMES_MAX - 1}") is not None
    assert stats.view("TOPIC_PUT_NUMS", f"t{NAMES_MAX}") is None


def test_midnight_moves_the_mornings() -> None:
    stats = Stats()
    clock = Clock(stats)
    stats.stored("t", 1)
    clock.run(1, day=1)
    assert stats.put_days == Days(0, 0)
    clock.run(1, day=2)
    assert stats.put_days == Days(0, 1)
    stats.stored("t", 1)
    clock.run(1, day=3)
    assert stats.put_days == Days(1, 2)
