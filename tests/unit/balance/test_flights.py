"""The lines in which flight recorders are published."""

from trimtab.balance.flights import bodies_of, line_of, lines_of
from trimtab.balance.recorder import Event
from trimtab.model import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 3)
EVENT = Event(at_ms=7, kind="acquired", cause="it is in my share", queue=QUEUE, offset=0, duration_ms=12, in_flight=2, other="b",
              detail="d")  # fmt: skip


def test_an_event_comes_back_from_its_line_as_it_was() -> None:
    lines, unreadable = lines_of(line_of("g", "me", 4, EVENT))
    assert unreadable == 0
    (line,) = lines
    assert (line.group, line.client_id, line.number) == ("g", "me", 4)
    assert line.message_queue == QUEUE
    back = Event(
        at_ms=line.at_ms, kind=line.kind, cause=line.cause, queue=line.message_queue, other=line.other, offset=line.offset,
        duration_ms=line.duration_ms, in_flight=line.in_flight, detail=line.detail,
    )  # fmt: skip
    assert back == EVENT


def test_an_event_about_no_queue_names_none() -> None:
    text = line_of("g", "me", 1, Event(at_ms=7, kind="joined"))
    assert text == b'{"v":1,"group":"g","client_id":"me","number":1,"at_ms":7,"kind":"joined"}\n'
    assert lines_of(text).lines[0].message_queue is None


def test_what_is_no_line_of_ours_is_passed_over_and_counted() -> None:
    good = line_of("g", "me", 1, EVENT)
    body = b"hello\n" + good + b'{"v":2}\n\n' + good.replace(b'"v":1', b'"v":2') + b"\xff\xfe\n" + good[:30]
    lines, unreadable = lines_of(body)
    assert [line.number for line in lines] == [1]
    assert unreadable == 5


def test_fields_of_a_later_writer_do_no_harm() -> None:
    text = line_of("g", "me", 1, EVENT).replace(b'"v":1', b'"v":1,"weather":"fine"')
    assert len(lines_of(text).lines) == 1


def test_bodies_are_bounded_and_no_line_is_cut_or_lost() -> None:
    lines = [line_of("g", "me", number, EVENT) for number in range(100)]
    bodies = bodies_of(lines, bytes_max=1_000)
    assert len(bodies) > 10
    assert all(len(body) <= 1_000 for body, _ in bodies)
    assert sum(count for _, count in bodies) == 100
    assert [line.number for body, _ in bodies for line in lines_of(body).lines] == list(range(100))


def test_a_line_larger_than_a_body_may_be_goes_alone() -> None:
    assert [count for _, count in bodies_of([b"x" * 50, b"y\n", b"z\n"], bytes_max=10)] == [1, 2]
