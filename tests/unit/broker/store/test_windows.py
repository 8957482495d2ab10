"""Reading on: what is read ahead is what would have been read, no more is given than is asked for, and nothing that is gone."""

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.store.shared import NOW_MS, SMALL, open_store, put
from tests.unit.broker.store.test_reading import CountingDisk
from trimtab.broker.store import ReadStatus, Store
from trimtab.broker.store.windows import UNREAD, WINDOWS_BYTES_MAX, WINDOWS_MAX, Window, Windows
from trimtab.wire.messages import decode_messages


def reads(
    store: Store, messages_max: int, bytes_max: int = 1 << 18, offset: int = 0
) -> Iterator[list[bytes]]:
    """The bodies of one read after the other, up to the end of the queue."""
    while True:
        result = store.read("T", 0, offset, messages_max=messages_max, bytes_max=bytes_max)
        if result.status is not ReadStatus.FOUND:
            return
        messages = decode_messages(result.body)
        assert [one.queue_offset for one in messages] == list(range(offset, offset + result.count))
        assert result.next_offset == offset + result.count
        yield [one.body for one in messages]
        offset = result.next_offset


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 1)), max_size=60),
    st.integers(1, 5),
    st.integers(1, 3_000),
)
def test_a_queue_that_is_read_on_and_on_gives_every_message_once_within_both_limits(
    sent: list[tuple[int, int]], messages_max: int, bytes_max: int
) -> None:
    store = open_store()
    for size, queue_id in sent:
        put(store, b"x" * size, queue_id=queue_id)
    expected = [b"x" * size for size, queue_id in sent if queue_id == 0]
    pieces = list(reads(store, messages_max, bytes_max))
    assert [body for piece in pieces for body in piece] == expected
    assert all(len(piece) <= messages_max for piece in pieces)
    alone = [store.read("T", 0, 0, messages_max=messages_max, bytes_max=bytes_max).count] if expected else []
    assert [len(piece) for piece in pieces][:1] == alone


def test_who_reads_on_costs_fewer_reads_of_the_disk() -> None:
    disk = CountingDisk()
    store = open_store(disk, replace(SMALL, segment_bytes=1 << 20, checkpoint_bytes=1 << 20))
    for number in range(160):
        put(store, b"%d" % number)
    disk.reads = 0
    assert len(list(reads(store, 4))) == 40
    assert disk.reads < 20


def test_two_readers_of_a_queue_do_not_take_from_each_other() -> None:
    store = open_store()
    for number in range(60):
        put(store, b"%d" % number)
    fast, slow = reads(store, 3), reads(store, 2)
    taken: list[list[bytes]] = [[], []]
    for _ in range(9):
        taken[0] += next(fast)
        taken[0] += next(fast)
        taken[1] += next(slow)
    assert taken[0] == [b"%d" % number for number in range(54)]
    assert taken[1] == [b"%d" % number for number in range(18)]


def test_a_reader_who_reaches_the_end_goes_on_with_what_comes() -> None:
    store = open_store()
    for number in range(10):
        put(store, b"%d" % number)
    assert sum(map(len, reads(store, 4))) == 10
    put(store, b"10")
    assert list(reads(store, 4, offset=10)) == [[b"10"]]


def test_what_retention_let_go_is_not_given_out_though_it_was_read_ahead() -> None:
    store = open_store()
    for number in range(40):
        put(store, b"%d" % number * 20, at_ms=NOW_MS + number)
    reading = reads(store, 2)
    next(reading), next(reading)  # the second one reads ahead
    store.tick(10_000)
    store._housekeeping.checkpoint(final=True)
    assert store.retain(NOW_MS + SMALL.retention_ms + 30) > 0
    low = store.min_offset("T", 0)
    assert low > 4
    assert store.read("T", 0, 4, messages_max=2, bytes_max=1 << 18).status is ReadStatus.OFFSET_TOO_SMALL
    assert next(reads(store, 2, offset=low))[0] == b"%d" % low * 20


def test_a_deleted_topic_takes_with_it_what_was_read_ahead() -> None:
    store = open_store()
    for number in range(20):
        put(store, b"old %d" % number)
    reading = reads(store, 2)
    next(reading), next(reading)
    store.delete_topic("T")
    for number in range(20):
        put(store, b"new %d" % number)
    assert [body for piece in reads(store, 2) for body in piece] == [
        b"new %d" % number for number in range(20)
    ]


def test_damage_further_on_does_not_keep_the_messages_before_it() -> None:
    disk = CountingDisk()
    store = open_store(disk)
    places = [put(store, b"%d" % number * 9).physical_offset for number in range(20)]
    segment = max(name for name in disk.names("log") if int(name[-20:]) <= places[9])
    disk._files[segment][places[9] - int(segment[-20:]) + 100] ^= 1
    got = []
    for piece in reads(store, 2):
        got += piece
        if len(got) == 9:
            break
    assert got == [b"%d" % number * 9 for number in range(9)]


def test_windows_are_bounded_in_number_and_in_bytes() -> None:
    store = open_store()
    put(store)
    queue = store._queue("T", 0)
    assert queue is not None
    windows = Windows()
    for offset in range(WINDOWS_MAX + 10):
        windows.keep(queue, offset, UNREAD)
    assert windows.take(queue, 9, 0) is None
    assert windows.take(queue, 10, 0) is UNREAD
    large = Window(bytes(WINDOWS_BYTES_MAX // 2), (WINDOWS_BYTES_MAX // 2,))
    for offset in range(3):
        windows.keep(queue, offset, large)
    assert [windows.take(queue, offset, 0) is large for offset in range(3)] == [False, True, True]
