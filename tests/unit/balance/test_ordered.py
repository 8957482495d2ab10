"""The rules of ordered consumption: trust in a lock, turns, rests."""

import pytest

from trimtab.balance.ordered import QueueLock, Turn, next_turn, suspend_ms


def locked_at(now_ms: int) -> QueueLock:
    lock = QueueLock()
    lock.granted(now_ms)
    return lock


@pytest.mark.parametrize(("age_ms", "trusted"), [(0, True), (30_000, True), (30_001, False)])
def test_a_lock_is_trusted_for_30_s_after_it_was_granted(age_ms: int, trusted: bool) -> None:
    lock = locked_at(1_000)
    assert lock.is_trusted(1_000 + age_ms) is trusted
    expected = Turn.GO if trusted else Turn.LOCK_FIRST
    assert next_turn(is_dropped=False, lock=lock, began_ms=1_000 + age_ms, now_ms=1_000 + age_ms) is expected


def test_a_lock_that_was_refused_is_not_trusted() -> None:
    lock = locked_at(1_000)
    lock.refused()
    assert next_turn(is_dropped=False, lock=lock, began_ms=1_000, now_ms=1_000) is Turn.LOCK_FIRST
    lock.granted(1_500)
    assert next_turn(is_dropped=False, lock=lock, began_ms=1_000, now_ms=1_500) is Turn.GO


def test_a_dropped_queue_stops_whatever_its_lock_says() -> None:
    assert next_turn(is_dropped=True, lock=locked_at(0), began_ms=0, now_ms=0) is Turn.STOP


@pytest.mark.parametrize(("ran_ms", "turn"), [(60_000, Turn.GO), (60_001, Turn.BREAK)])
def test_after_60_s_without_a_break_others_get_a_turn(ran_ms: int, turn: Turn) -> None:
    assert next_turn(is_dropped=False, lock=locked_at(ran_ms), began_ms=0, now_ms=ran_ms) is turn


def test_broadcasting_needs_no_lock() -> None:
    assert next_turn(is_dropped=False, lock=None, began_ms=0, now_ms=0) is Turn.GO


@pytest.mark.parametrize(
    ("wanted", "expected"), [(None, 1_000), (0, 10), (10, 10), (2_000, 2_000), (99_999, 30_000)]
)
def test_a_queue_rests_within_rocketmq_s_bounds(wanted: int | None, expected: int) -> None:
    assert suspend_ms(wanted) == expected
