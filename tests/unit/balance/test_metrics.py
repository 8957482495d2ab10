import math

from trimtab.balance import metrics
from trimtab.balance.metrics import Held
from trimtab.model import MessageQueue

A, B, C, D = (MessageQueue("t", "b", number) for number in range(4))


def test_a_queue_moved_when_it_has_another_holder_than_before() -> None:
    before = {A: "x", B: "x", C: "y"}
    assert metrics.moved(before, {A: "x", B: "y", D: "z"}) == 1


def test_the_fewest_moves_count_what_cannot_be_kept() -> None:
    assert metrics.moved_min({A: "x", B: "x", C: "x", D: "x"}, (A, B, C, D), ("x", "y")) == 2
    assert metrics.moved_min({A: "x", B: "x", C: "y", D: "gone"}, (A, B, C, D), ("x", "y")) == 1
    assert metrics.moved_min({A: "x"}, (A, B), ("x", "y", "z")) == 0


def test_moves_are_compared_with_the_fewest() -> None:
    before = {A: "x", B: "x", C: "y", D: "y"}
    assert metrics.moved_per_min(before, before, ("x", "y")) == 1
    assert metrics.moved_per_min(before, {A: "y", B: "y", C: "x", D: "x"}, ("x", "y")) == math.inf
    assert metrics.moved_per_min({A: "x", B: "x"}, {A: "x", B: "y"}, ("x", "y")) == 1


def test_loads_count_queues_or_weights() -> None:
    holders = {A: "x", B: "x", C: "y"}
    assert metrics.loads(holders, ("x", "y", "z")) == {"x": 2, "y": 1, "z": 0}
    assert metrics.loads(holders, ("x", "y"), {A: 5, B: 0, C: 2}) == {"x": 5, "y": 2}


def test_unevenness() -> None:
    assert metrics.max_mean([2, 2, 2]) == 1
    assert metrics.max_mean([0, 0]) == 1
    assert metrics.max_mean([3, 0, 0]) == 3
    assert metrics.gini([4, 4, 4]) == 0
    assert metrics.gini([]) == 0
    assert math.isclose(metrics.gini([0, 0, 0, 8]), 0.75)
    assert metrics.idle([0, 1, 0]) == 2


def test_the_r_score_weighs_moves_by_what_arrives() -> None:
    before, after = {A: "x", B: "x"}, {A: "y", B: "x"}
    assert metrics.r_score(before, after, {A: 50.0, B: 10.0}, capacity_per_s=100.0) == 0.5


def test_times_with_two_holders_and_with_none() -> None:
    times = [
        Held(A, "x", 0, 5_000),
        Held(A, "y", 4_000, 8_000),
        Held(A, "z", 4_500, 5_000),
        Held(B, "x", 2_000, 9_000),
    ]
    assert metrics.double_held_s(times) == 1.5
    assert metrics.unheld_s(times, [A, B], 0, 10_000) == 2 + 3
    assert metrics.unheld_s([], [A, B], 0, 1_000) == 2
    assert metrics.unheld_s(times, [A], 1_000, 9_000) == 1
