"""Moves, rebalances and time with two holders or none, from spans."""

import pytest

from trimtab.model import MessageQueue
from trimtab.pipelines.holders import Move, Span, facts_of, moves_of, rebalances_of

Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def span(queue: MessageQueue, member: str, from_ms: int, until_ms: int, stored_ms: int = 0) -> Span:
    return Span("g", queue, member, from_ms, until_ms, 1, stored_ms)


def test_a_queue_that_goes_on_elsewhere_was_unheld_only_while_something_waited() -> None:
    moves = moves_of([span(Q0, "b", 5_000, 6_000, stored_ms=4_900), span(Q0, "a", 0, 4_000)])
    assert moves == [Move("g", Q0, 5_000, "a", "b", unheld_ms=100, overlap_ms=0)]


def test_an_old_holder_that_goes_on_overlaps() -> None:
    [move] = moves_of([span(Q0, "a", 0, 4_000), span(Q0, "b", 3_000, 9_000)])
    assert (move.unheld_ms, move.overlap_ms) == (0, 1_000)


def test_a_short_holder_inside_a_long_one_leaves_no_hole() -> None:
    moves = moves_of([span(Q0, "a", 0, 9_000), span(Q0, "b", 1_000, 2_000), span(Q0, "c", 8_000, 10_000)])
    assert [(move.before, move.after, move.unheld_ms, move.overlap_ms) for move in moves] == [
        ("a", "b", 0, 1_000),
        ("b", "c", 0, 1_000),
    ]


def test_the_same_member_again_is_no_move() -> None:
    assert moves_of([span(Q0, "a", 0, 1_000), span(Q0, "a", 9_000, 9_500)]) == []


def test_moves_close_together_are_one_rebalance() -> None:
    spans = [
        span(queue, member, at, at + 10)
        for queue in (Q0, Q1)
        for member, at in (("a", 0), ("b", 5_000), ("a", 30_000))
    ]
    moves = moves_of(spans)
    assert (len(moves), rebalances_of(moves), rebalances_of([])) == (4, 2, 0)


def test_the_facts_of_a_group() -> None:
    spans = [span(Q0, "a", 0, 4_000), span(Q0, "b", 3_000, 5_000), span(Q1, "b", 0, 5_000)]
    [facts] = facts_of(spans, moves_of(spans), {("g", "a"): 10, ("g", "b"): 30}, {"g": 3})
    assert (facts.members, facts.queues, facts.deliveries, facts.moves, facts.rebalances, facts.twice) == (
        2,
        2,
        40,
        1,
        1,
        3,
    )
    assert (facts.double_held_s, facts.unheld_s, facts.max_mean) == (1.0, 0.0, 1.5)
    assert facts.gini == pytest.approx(0.25)
