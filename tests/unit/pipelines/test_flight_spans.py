"""Holdings from what members recorded."""

from typing import Any

from trimtab.balance.flights import FlightLine
from trimtab.model import MessageQueue
from trimtab.pipelines.flight_spans import recorded_spans


def line(at_ms: int, member: str, kind: str, queue: int | None = None, **more: Any) -> FlightLine:
    where: dict[str, Any] = {} if queue is None else {"topic": "orders", "broker": "a", "queue": queue}
    return FlightLine(v=1, group="g", client_id=member, number=at_ms, at_ms=at_ms, kind=kind, **where, **more)


def spans(*lines: FlightLine) -> list[tuple[str, int, int, int]]:
    return [(span.member, span.queue.queue_id, span.from_ms, span.until_ms) for span in recorded_spans(lines)]


def test_a_holding_lasts_from_taking_to_letting_go_in_whatever_order_lines_come() -> None:
    lines = [line(9, "b", "left"), line(1, "a", "acquired", 0), line(5, "a", "released", 0), line(6, "b", "acquired", 0)]  # fmt: skip
    assert spans(*lines) == [("a", 0, 1, 5), ("b", 0, 6, 9)]


def test_whoever_leaves_or_begins_anew_holds_nothing() -> None:
    lines = [line(1, "a", "acquired", 0), line(2, "a", "acquired", 1), line(4, "a", "joined"), line(5, "a", "acquired", 0)]  # fmt: skip
    assert spans(*lines, line(8, "a", "left")) == [("a", 0, 1, 4), ("a", 1, 2, 4), ("a", 0, 5, 8)]


def test_the_holding_of_a_killed_member_ends_where_another_takes_the_queue() -> None:
    lines = [line(1, "a", "acquired", 0), line(7, "b", "acquired", 0), line(9, "b", "released", 0)]
    assert spans(*lines) == [("a", 0, 1, 7), ("b", 0, 7, 9)]


def test_what_is_still_held_is_held_until_the_last_line() -> None:
    assert spans(line(1, "a", "acquired", 0), line(6, "b", "view")) == [("a", 0, 1, 6)]


def test_two_members_that_say_they_hold_a_queue_both_do() -> None:
    lines = [line(1, "a", "acquired", 0), line(3, "b", "acquired", 0), line(5, "a", "dropped", 0), line(8, "b", "left")]  # fmt: skip
    assert spans(*lines) == [("a", 0, 1, 5), ("b", 0, 3, 8)]


def test_groups_do_not_mix() -> None:
    other = FlightLine(v=1, group="h", client_id="a", number=1, at_ms=2, kind="left")
    (span,) = recorded_spans([line(1, "a", "acquired", 0), other, line(4, "a", "left")])
    assert (span.group, span.queue, span.until_ms) == ("g", MessageQueue("orders", "a", 0), 4)


def test_a_fenced_member_held_nothing_from_then_on_unless_it_gave_the_queue_up_in_order() -> None:
    took, fence = line(1, "a", "acquired", 0), line(4, "a", "fenced", 0)
    assert spans(took, fence, line(9, "a", "lost", 0)) == [("a", 0, 1, 4)]
    assert spans(took, fence, line(9, "b", "view")) == [("a", 0, 1, 4)]
    assert spans(took, fence, line(9, "a", "released", 0)) == [("a", 0, 1, 9)]
