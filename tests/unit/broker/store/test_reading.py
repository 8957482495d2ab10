from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.broker.store.shared import HOST, HOST_V6, NOW_MS, SMALL, bodies, message, open_store, put
from trimtab.broker.store import ReadResult, ReadStatus, Store, TimeRule
from trimtab.broker.store.errors import StoreSearchTooWideError
from trimtab.broker.store.frames import HEAD_BYTES
from trimtab.broker.store.reading import GAP_BYTES_MAX
from trimtab.io.disk import DiskFile, MemoryDisk
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import StoredMessage, decode_messages, encode_stored


def status(store: Store, offset: int, *, queue_id: int = 0) -> tuple[ReadStatus, int]:
    result = store.read("T", queue_id, offset, messages_max=10, bytes_max=1000)
    return result.status, result.next_offset


def test_statuses_are_those_of_rocketmq() -> None:
    store = open_store()
    assert status(store, 5) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    store.append(message(), NOW_MS, HOST)
    assert status(store, 5) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)
    store.write()
    put(store)
    assert status(store, 0) == (ReadStatus.FOUND, 2)
    assert status(store, 2) == (ReadStatus.OFFSET_OVERFLOW_ONE, 2)
    assert status(store, 3) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 2)
    assert status(store, -1) == (ReadStatus.OFFSET_TOO_SMALL, 0)


def test_statuses_after_retention() -> None:
    store = aged_store()
    low, high = store.min_offset("T", 0), store.max_offset("T", 0)
    assert 0 < low < high
    assert status(store, low - 1) == (ReadStatus.OFFSET_TOO_SMALL, low)
    assert status(store, high + 1) == (ReadStatus.OFFSET_OVERFLOW_BADLY, high)
    assert status(store, low)[0] is ReadStatus.FOUND


def aged_store() -> Store:
    store = open_store()
    for number in range(40):
        put(store, b"%d" % number * 40, at_ms=NOW_MS + number)
    store.tick(10_000)
    store._housekeeping.checkpoint(final=True)
    assert store.retain(NOW_MS + SMALL.retention_ms + 20) > 0
    return store


def test_a_read_keeps_to_both_limits_and_gives_at_least_one() -> None:
    store = open_store()
    size = put(store, b"x" * 100).size
    for _ in range(9):
        put(store, b"x" * 100)
    assert store.read("T", 0, 0, messages_max=3, bytes_max=1 << 20).count == 3
    assert store.read("T", 0, 0, messages_max=100, bytes_max=3 * size).count == 3
    assert store.read("T", 0, 0, messages_max=100, bytes_max=3 * size - 1).count == 2
    assert store.read("T", 0, 0, messages_max=100, bytes_max=1).count == 1


class CountingDisk(MemoryDisk):
    reads = 0

    def open(self, name: str, *, create: bool = False) -> DiskFile:  # type: ignore[override]
        return CountingFile(super().open(name, create=create), self)


class CountingFile:
    def __init__(self, file: DiskFile, disk: CountingDisk) -> None:
        self._file = file
        self._disk = disk
        self.pwrite, self.sync, self.truncate = file.pwrite, file.sync, file.truncate
        self.size, self.close = file.size, file.close

    def pread(self, size: int, offset: int) -> bytes:
        self._disk.reads += 1
        return self._file.pread(size, offset)


def reads_of(act: Callable[[], object], disk: CountingDisk) -> int:
    before = disk.reads
    act()
    return disk.reads - before


def test_a_dense_span_is_one_read_and_scattered_messages_are_several() -> None:
    disk = CountingDisk()
    store = Store.open(disk)
    for number in range(200):
        put(store, b"x" * 100, queue_id=number % 4, write=number % 20 == 19)
    assert reads_of(lambda: bodies(store), disk) == 1
    store = Store.open(CountingDisk())
    for number in range(20):
        put(store, b"x" * GAP_BYTES_MAX, queue_id=number % 2)
    assert len(bodies(store)) == 10


def test_neighbours_in_the_log_go_out_as_they_are() -> None:
    store = open_store()
    for number in range(5):
        put(store, b"%d" % number, write=False)
    store.write()
    result = store.read("T", 0, 0, messages_max=5, bytes_max=1 << 20)
    assert result.body == store._log.read(HEAD_BYTES, len(result.body))
    assert [one.queue_offset for one in decode_messages(result.body)] == [0, 1, 2, 3, 4]


def test_tags_are_filtered_without_touching_the_log() -> None:
    disk = CountingDisk()
    store = Store.open(disk)
    for number in range(100):
        put(store, b"%d" % number, tag="red" if number % 10 == 0 else "blue")
    result = store.read(
        "T", 0, 0, messages_max=3, bytes_max=1 << 20, accept=lambda code: code == tags_code("red")
    )
    assert [one.body for one in decode_messages(result.body)] == [b"0", b"10", b"20"]
    assert result.next_offset == 21

    def nothing() -> ReadResult:
        return store.read("T", 0, 0, messages_max=3, bytes_max=1 << 20, accept=lambda code: False)

    assert reads_of(nothing, disk) == 0
    assert (nothing().status, nothing().next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 100)


def test_a_filter_on_messages_sees_what_the_tags_let_through() -> None:
    store = open_store()
    for number in range(50):
        put(store, b"%d" % number, tag="red" if number % 2 else "blue")
    seen: list[bytes] = []

    def accept(one: StoredMessage) -> bool:
        seen.append(one.body)
        return one.body.endswith(b"7")

    result = store.read(
        "T",
        0,
        0,
        messages_max=4,
        bytes_max=1 << 20,
        accept=lambda code: code == tags_code("red"),
        accept_message=accept,
    )
    assert [one.body for one in decode_messages(result.body)] == [b"7"]
    assert all(int(body) % 2 for body in seen)


def test_a_message_is_found_by_its_place_and_only_by_that() -> None:
    store = open_store()
    appended = put(store, b"here")
    found = store.message_at(appended.physical_offset)
    assert found is not None
    assert found.body == b"here"
    for offset in (-1, 0, appended.physical_offset + 1, appended.end, 1 << 62, -(1 << 62)):
        assert store.message_at(offset) is None


def test_a_body_that_looks_like_a_message_is_none() -> None:
    store = open_store()
    inner_at = store._log.next_offset + 88
    forged = message(b"forged")
    put(store, encode_stored(forged, 0, inner_at, NOW_MS, HOST) + bytes(100))
    assert store.message_at(inner_at) is None


def test_what_is_not_visible_is_not_found_by_its_place() -> None:
    store = open_store()
    appended = put(store, b"here", write=False)
    assert store.message_at(appended.physical_offset) is None
    assert store.entry("T", 0, 0) is None


TIMES = [10, 20, 20, 20, 40, 50]


@pytest.mark.parametrize("host", [HOST, HOST_V6])
@pytest.mark.parametrize(
    ("time", "nearest", "lower", "upper"),
    [
        (5, 0, 0, 0),
        (10, 0, 0, 0),
        (14, 0, 1, 0),
        (15, 0, 1, 0),
        (16, 1, 1, 0),
        (20, 2, 1, 3),
        (30, 3, 4, 3),
        (31, 4, 4, 3),
        (50, 5, 5, 5),
        (60, 5, 6, 5),
    ],
)
def test_a_time_means_an_offset(time: int, nearest: int, lower: int, upper: int, host: bytes) -> None:
    store = open_store()
    for at_ms in TIMES:
        store.append(message(born_host=host), at_ms, HOST)
        store.write()
    assert store.offset_by_time("T", 0, time) == nearest
    assert store.offset_by_time("T", 0, time, TimeRule.LOWER) == lower
    assert store.offset_by_time("T", 0, time, TimeRule.UPPER) == upper
    assert store.earliest_store_ms("T", 0) == 10


def test_time_in_an_empty_queue() -> None:
    store = open_store()
    assert store.offset_by_time("T", 0, 5) == 0
    assert store.earliest_store_ms("T", 0) == -1


def test_a_key_is_searched_in_so_many_files_newest_first_and_the_answer_says_where_it_ended() -> None:
    store = open_store(settings=replace(SMALL, query_index_files_max=3))
    for number in range(60):
        put(store, b"%d" % number * 100, key=f"k{number}", at_ms=NOW_MS + number * 1000)
        store.tick(number * 10_000)
    assert [one.body for one in store.query_by_key("T", "k59", 1)] == [b"59" * 100]
    with pytest.raises(StoreSearchTooWideError, match="newest 3 of") as caught:
        store.query_by_key("T", "k0", 1)
    assert "ask for a time around it" in str(caught.value)
    assert store.query_by_key("T", "k0", 1, NOW_MS, NOW_MS + 999)[0].queue_offset == 0
    assert store.query_by_key("T", "k0", 1, NOW_MS, oldest_first=True)[0].queue_offset == 0


def test_keys_are_found_newest_first_within_time_and_number() -> None:
    store = open_store()
    for number in range(100):
        put(store, b"%d" % number, key="all even" if number % 2 == 0 else "all", at_ms=NOW_MS + number * 1000)
    put(store, b"other", topic="U", key="all")
    assert [one.body for one in store.query_by_key("T", "even", 3)] == [b"98", b"96", b"94"]
    assert len(store.query_by_key("T", "all", 1000)) == 64
    between = store.query_by_key("T", "even", 64, NOW_MS + 10_000, NOW_MS + 14_999)
    assert [one.body for one in between] == [b"14", b"12", b"10"]
    assert store.query_by_key("T", "none", 64) == []
    assert [one.body for one in store.query_by_key("U", "all", 64)] == [b"other"]
