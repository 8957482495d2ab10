"""Natural batching decides what leaves together."""

from collections import deque

from trimtab.client.lanes import Outcome, Parcel, next_load, overdue


def parcel(body: bytes = b"x", *, batchable: bool = True, deadline: float = 10.0) -> Parcel:
    return Parcel(body, "", 0, 0, 0, batchable, deadline, lambda _outcome: None)


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


def test_parcels_that_waited_too_long_never_leave() -> None:
    waiting = deque([parcel(b"old", deadline=1.0), parcel(b"new", deadline=9.0)])
    assert bodies(overdue(waiting, 1.0)) == [b"old"]
    assert bodies(list(waiting)) == [b"new"]


def test_an_outcome_is_a_place_or_an_error() -> None:
    assert Outcome(0, "id", 7).error is None
