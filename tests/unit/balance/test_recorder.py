"""The flight recorder: bounded, counted, and the same after a journey."""

import msgspec
import pytest

from trimtab.balance.recorder import Kind, Recorder, read_flight
from trimtab.model import MessageQueue, Now

QUEUE = MessageQueue("orders", "broker-a", 3)


def at(ms: int) -> Now:
    return Now(monotonic_ms=ms, wall_ms=1_700_000_000_000 + ms)


def test_an_event_says_what_why_from_whom_how_long_and_how_much() -> None:
    recorder = Recorder("billing", "me")
    recorder.record(
        at(5), Kind.RELEASED, cause="b joined", queue=QUEUE, other="b", offset=17, duration_ms=40, in_flight=3
    )
    (event,) = read_flight(recorder.flight()).events
    assert (event.at_ms, event.kind, event.cause, event.queue, event.other) == (
        1_700_000_000_005, "released", "b joined", QUEUE, "b",
    )  # fmt: skip
    assert (event.offset, event.duration_ms, event.in_flight) == (17, 40, 3)


def test_the_newest_stay_and_all_are_counted() -> None:
    recorder = Recorder("billing", "me", events_max=3)
    for number in range(10):
        recorder.record(at(number), Kind.VIEW, detail=str(number))
    recorder.record(at(10), Kind.ACQUIRED, queue=QUEUE)
    assert [event.detail for event in recorder.events] == ["8", "9", ""]
    assert recorder.counts == {"view": 10, "acquired": 1}
    assert read_flight(recorder.flight()).left_out == 8


def test_what_travels_fits_and_leaves_out_the_oldest() -> None:
    recorder = Recorder("billing", "me")
    for number in range(200):
        recorder.record(at(number), Kind.VIEW, detail=f"{number}-" + "x" * 100)
    text = recorder.flight(bytes_max=5_000)
    flight = read_flight(text)
    assert len(text) <= 5_000
    assert flight.events[-1].detail.startswith("199-")
    assert flight.left_out == 200 - len(flight.events)
    assert len(flight.events) > 10


def test_nonsense_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_flight(b'{"group": 5}')
