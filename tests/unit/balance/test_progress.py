"""How far a queue has come, and when it must not be pulled: promise G8 and the flow limits."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.balance.progress import MIB, FlowLimits, Load, Piece, Progress, limits_of_queue, why_to_hold
from trimtab.errors import SettingsError


def pieces(progress: Progress[Piece], *offsets: int, size_bytes: int = 10) -> list[Piece]:
    made = [Piece(offset, offset, 1, size_bytes) for offset in offsets]
    progress.add(made)
    return made


def test_g8_the_safe_offset_is_the_lowest_unfinished_one() -> None:
    progress: Progress[Piece] = Progress(100, Load())
    assert progress.safe_offset == 100
    first, second, third = pieces(progress, 100, 101, 102)
    assert progress.finish(third) == 100
    assert progress.finish(first) == 101
    assert progress.finish(second) == 103


@given(st.data())
def test_g8_in_whatever_order_pieces_end_nothing_unhandled_is_passed(data: st.DataObject) -> None:
    load = Load()
    progress: Progress[Piece] = Progress(0, load)
    offset = 0
    open_pieces: list[Piece] = []
    for _ in range(data.draw(st.integers(1, 40))):
        ends_one = bool(data.draw(st.booleans()))
        if open_pieces and ends_one:
            piece = open_pieces.pop(data.draw(st.integers(0, len(open_pieces) - 1)))
            progress.finish(piece)
            progress.finish(piece)  # a second time changes nothing
        else:
            first = offset + data.draw(st.integers(0, 3))  # a filter may leave gaps
            offset = first + data.draw(st.integers(1, 5))
            piece = Piece(first, offset - 1, offset - first, 7)
            progress.add([piece])
            open_pieces.append(piece)
        lowest = min((piece.first for piece in open_pieces), default=offset)
        assert progress.safe_offset == lowest
        assert progress.messages == load.messages == sum(piece.messages for piece in open_pieces)
        assert progress.size_bytes == load.size_bytes == 7 * len(open_pieces)


def test_what_a_filter_passed_over_counts_as_handled_but_never_pulls_open_work_along() -> None:
    progress: Progress[Piece] = Progress(5, Load())
    progress.passed(9)
    assert progress.safe_offset == 9
    (piece,) = pieces(progress, 9)
    progress.passed(20)
    assert progress.safe_offset == 9
    assert progress.finish(piece) == 20


def test_a_piece_of_which_only_some_is_left_holds_the_offset_there() -> None:
    load = Load()
    progress: Progress[Piece] = Progress(0, load)
    piece = Piece(0, 9, 10, 1_000)
    progress.add([piece])
    assert progress.shrink(piece, 4, 2, 200) == 4
    assert (load.messages, load.size_bytes) == (2, 200)
    assert progress.finish(piece) == 10
    assert (load.messages, load.size_bytes) == (0, 0)


def test_a_queue_that_is_let_go_leaves_no_load_behind() -> None:
    load = Load()
    progress: Progress[Piece] = Progress(0, load)
    first, second, third = pieces(progress, 0, 1, 2)
    progress.finish(second)
    assert progress.clear() == [first, third]
    assert (load.messages, load.size_bytes) == (0, 0)
    progress.finish(first)  # its handler ended late
    assert (load.messages, load.size_bytes) == (0, 0)


@pytest.mark.parametrize(("messages", "holds"), [(1_000, False), (1_001, True)])
def test_c12_more_than_1000_messages_of_a_queue_hold_its_pulls(messages: int, holds: bool) -> None:
    progress: Progress[Piece] = Progress(0, load := Load())
    progress.add([Piece(0, messages - 1, messages, 1)])
    assert (why_to_hold(progress, load, FlowLimits(), is_ordered=False) is not None) is holds


@pytest.mark.parametrize(("size_bytes", "holds"), [(101 * MIB - 1, False), (101 * MIB, True)])
def test_c12_more_than_100_mib_of_a_queue_hold_its_pulls(size_bytes: int, holds: bool) -> None:
    """As in Java, whole MiB are compared."""
    progress: Progress[Piece] = Progress(0, load := Load())
    progress.add([Piece(0, 0, 1, size_bytes)])
    assert (why_to_hold(progress, load, FlowLimits(), is_ordered=False) is not None) is holds


@pytest.mark.parametrize(("last", "holds"), [(2_000, False), (2_001, True)])
def test_c12_a_span_of_more_than_2000_offsets_holds_pulls_unless_ordered(last: int, holds: bool) -> None:
    progress: Progress[Piece] = Progress(0, load := Load())
    pieces(progress, 0, last)
    assert (why_to_hold(progress, load, FlowLimits(), is_ordered=False) is not None) is holds
    assert why_to_hold(progress, load, FlowLimits(), is_ordered=True) is None


def test_c12_a_full_process_holds_every_queue() -> None:
    limits = FlowLimits(process_messages_max=5, process_bytes_max=10 * MIB)
    load = Load()
    one: Progress[Piece] = Progress(0, load)
    two: Progress[Piece] = Progress(0, load)
    many = pieces(one, *range(6))
    reason = why_to_hold(two, load, limits, is_ordered=False)
    assert reason is not None
    assert "6 messages wait in this process" in reason
    one.finish(many[0])
    assert why_to_hold(two, load, limits, is_ordered=False) is None
    two.add([Piece(0, 0, 0, 11 * MIB)])
    reason = why_to_hold(one, load, limits, is_ordered=False)
    assert reason is not None
    assert "MiB wait in this process" in reason


def test_a_queue_that_lost_its_end_forgets_what_was_pulled_of_it_and_keeps_the_rest() -> None:
    load = Load()
    progress: Progress[Piece] = Progress(0, load)
    first, second, third, fourth = pieces(progress, 0, 1, 2, 3)
    progress.finish(third)
    assert progress.rewind(2) == [fourth]
    assert (progress.safe_offset, progress.next_offset, progress.messages, load.messages) == (0, 2, 2, 2)
    progress.finish(second)
    assert progress.finish(fourth) == 0, "its end does not count any more"
    assert progress.finish(first) == 2
    assert (progress.messages, progress.size_bytes, load.size_bytes) == (0, 0, 0)


def test_a_limit_for_a_topic_is_shared_by_its_queues_and_stands_above_that_of_a_queue() -> None:
    limits = FlowLimits(topic_messages_max=100, topic_bytes_max=40 * MIB)
    assert limits_of_queue(limits, 8).queue_messages_max == 12
    assert limits_of_queue(limits, 8).queue_bytes_max == 5 * MIB
    assert limits_of_queue(limits, 1_000).queue_messages_max == 1, "never so little that nothing goes on"
    assert limits_of_queue(limits, 1_000).queue_bytes_max == MIB
    assert limits_of_queue(FlowLimits(), 8) == FlowLimits()


@pytest.mark.parametrize("name", [field.name for field in fields(FlowLimits)])
def test_a_limit_that_would_let_nothing_come_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} 0 must be 1 or more"):
        FlowLimits(**{name: 0})
