"""Natural batching decides what leaves together."""

from collections import deque

from trimtab.client.lanes import Lane, Parcel, next_load, overdue, receipts_of
from trimtab.client.routes import Route
from trimtab.model import Message, MessageQueue
from trimtab.wire.bodies import TopicRouteData
from trimtab.wire.send_frames import SendFrames


def parcel(body: bytes = b"x", *, batchable: bool = True, deadline: float = 10.0, number: int = 0) -> Parcel:
    message = Message("T", body)
    return Parcel("T", body, b"", 0, message, f"U{number}", 0, is_batchable=batchable, deadline=deadline)


def bodies(load: list[Parcel]) -> list[bytes]:
    return [one.body for one in load]


def test_what_gathered_leaves_together_in_order() -> None:
    waiting = deque(parcel(b"%d" % number) for number in range(5))
    assert bodies(next_load(waiting, 1_000, 1 << 20)) == [b"0", b"1", b"2", b"3", b"4"]
    assert not waiting


def test_a_message_that_cannot_travel_in_company_leaves_alone_in_its_turn() -> None:
    waiting = deque([parcel(b"a"), parcel(b"b"), parcel(b"alone", batchable=False), parcel(b"c")])
    assert bodies(next_load(waiting, 1_000, 1 << 20)) == [b"a", b"b"]
    assert bodies(next_load(waiting, 1_000, 1 << 20)) == [b"alone"]
    assert bodies(next_load(waiting, 1_000, 1 << 20)) == [b"c"]


def test_a_load_is_bounded_in_messages_and_bytes_but_never_empty() -> None:
    waiting = deque(parcel(bytes(100)) for _ in range(10))
    assert len(next_load(waiting, 3, 1 << 20)) == 3
    assert len(next_load(waiting, 1_000, 250)) == 2
    assert len(next_load(waiting, 1_000, 1)) == 1


def lane_of(*parcels: Parcel) -> Lane:
    queue = MessageQueue("T", "b", 0)
    frames = SendFrames(group="g", topic="T", queue_id=0, default_topic="TBW102", default_topic_queues=4)
    route = Route("T", TopicRouteData(queue_datas=(), broker_datas=()))
    lane = Lane(queue, queue, route, "h:1", frames, load_bytes_max=1 << 20)
    for one in parcels:
        lane.put(one)
    return lane


def test_parcels_that_waited_too_long_never_leave() -> None:
    lane = lane_of(parcel(b"old", deadline=1.0), parcel(b"new", deadline=9.0))
    assert bodies(overdue(lane, 0.9)) == []
    assert bodies(overdue(lane, 1.0)) == [b"old"]
    assert bodies(list(lane.waiting)) == [b"new"]


def test_one_with_less_time_than_those_before_it_is_seen_wherever_it_stands() -> None:
    lane = lane_of(parcel(b"a", deadline=5.0), parcel(b"again", deadline=2.0), parcel(b"b", deadline=6.0))
    assert lane.earliest_deadline() == 2.0
    assert bodies(overdue(lane, 3.0)) == [b"again"]
    assert bodies(list(lane.waiting)) == [b"a", b"b"]
    assert lane.earliest_deadline() == 5.0


def test_every_message_of_a_load_gets_the_receipt_of_its_place() -> None:
    queue = MessageQueue("T", "b", 3)
    receipts = receipts_of([parcel(number=n) for n in range(3)], queue, "SEND_OK", ["I0", "I1", "I2"], 70)
    found = [(r.message_id, r.offset_message_id, r.queue_offset) for r in receipts if not isinstance(r, list)]
    assert found == [("U0", "I0", 70), ("U1", "I1", 71), ("U2", "I2", 72)]


def test_an_explicit_batch_gets_a_receipt_for_each_of_its_messages() -> None:
    batch = parcel()
    batch.batch_ids = ("A", "B")
    (receipts,) = receipts_of([batch], MessageQueue("T", "b", 0), "SEND_OK", ["I0"], 5)
    assert isinstance(receipts, list)
    assert [(r.message_id, r.offset_message_id, r.queue_offset) for r in receipts] == [
        ("A", "I0", 5),
        ("B", "", 6),
    ]


def test_what_was_withdrawn_never_leaves_and_is_not_kept() -> None:
    parcels = [parcel(b"%d" % number) for number in range(1_000)]
    lane = lane_of(*parcels)
    for one in parcels[:700]:
        lane.withdraw(one)
    assert len(lane.waiting) <= 500
    assert bodies(next_load(lane.waiting, 2, 1 << 20)) == [b"700", b"701"]
    for one in lane.waiting:
        one.is_withdrawn = True
    assert next_load(lane.waiting, 2, 1 << 20) == []
