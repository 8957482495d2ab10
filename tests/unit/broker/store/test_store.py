from random import Random

import pytest

from tests.unit.broker.store.shared import HOST, NOW_MS, SMALL, bodies, message, open_store, put
from trimtab.broker.store import (
    AppendedTogether,
    Grown,
    StateStatus,
    Store,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreSettings,
    StoreSettingsError,
)
from trimtab.broker.store.opening import tags_code_by_tag
from trimtab.broker.store.scrub import verify
from trimtab.errors import InvalidMessageError
from trimtab.io.disk import MemoryDisk
from trimtab.sim.disk import SimDisk
from trimtab.wire.messages import Storable, StorableTogether, StoredMessage


def test_offsets_are_given_at_once_and_follow_each_other() -> None:
    store = open_store()
    given = [put(store, queue_id=number % 2, write=False) for number in range(6)]
    assert [one.queue_offset for one in given] == [0, 0, 1, 1, 2, 2]
    assert [one.physical_offset for one in given[1:]] == [one.end for one in given[:-1]]


def test_everything_is_there_after_a_clean_close() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(300):
        put(store, b"%d" % number, queue_id=number % 3, topic=f"T{number % 2}", key=f"k{number}")
    store.close()
    assert verify(disk) == []
    store = open_store(disk)
    assert store.report == []
    assert bodies(store, topic="T0", queue_id=0) == [b"%d" % number for number in range(0, 300, 6)]
    assert store.query_by_key("T1", "k7", 1)[0].body == b"7"
    assert put(store, topic="T0", queue_id=0).queue_offset == 50


def test_closing_twice_is_closing_once_and_nothing_goes_on_after_it() -> None:
    store = open_store()
    put(store)
    store.close()
    store.close()
    store.tick(1)
    assert isinstance(store.refusal, StoreClosedError)
    with pytest.raises(StoreClosedError):
        put(store)


def test_what_was_appended_is_written_by_close() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    put(store, b"late", write=False)
    store.close()
    assert bodies(open_store(disk)) == [b"late"]


def test_a_batch_that_grows_large_is_written_in_pieces() -> None:
    store = open_store(settings=StoreSettings(frame_bytes_max=4096, disk_free_bytes_min=0))
    for _ in range(10):
        put(store, b"x" * 1000, write=False)
    assert store.written_end > 0
    store.write()
    assert len(bodies(store)) == 10


def test_a_message_that_is_too_large_leaves_no_trace() -> None:
    store = open_store(settings=StoreSettings(record_bytes_max=2000, disk_free_bytes_min=0))
    put(store, b"one", write=False)
    with pytest.raises(InvalidMessageError, match="2000"):
        put(store, b"x" * 2000)
    put(store, b"two")
    assert bodies(store) == [b"one", b"two"]


def test_a_deleted_topic_begins_anew() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(5):
        put(store, b"old", key="k")
    put(store, b"other", topic="U")
    assert store.delete_topic("T")
    assert not store.delete_topic("T")
    assert store.topics() == ["U"]
    assert store.max_offset("T", 0) == 0
    assert store.query_by_key("T", "k", 9) == []
    assert put(store, b"new", key="k").queue_offset == 0
    store.close()
    assert verify(disk) == []
    for rebuild in (False, True):
        store = Store.open(disk, SMALL, rebuild=rebuild)
        assert bodies(store) == [b"new"]
        assert [one.body for one in store.query_by_key("T", "k", 9)] == [b"new"]
        assert bodies(store, topic="U") == [b"other"]
        store.close()


def test_files_of_a_deleted_topic_go_after_two_checkpoints() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    put(store)
    store.tick(10_000)
    assert len(disk.names("queues")) == 1
    store.delete_topic("T")
    assert disk.names("queues") == []


def test_old_messages_go_by_whole_segments() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(60):
        put(store, b"%d" % number * 50, at_ms=NOW_MS + number, key=f"k{number}")
    store.tick(10_000)
    segments = len(disk.names("log"))
    assert store.retain(NOW_MS + SMALL.retention_ms) == 0
    store._housekeeping.checkpoint(final=True)
    freed = store.retain(NOW_MS + SMALL.retention_ms + 30)
    assert freed > 0
    assert len(disk.names("log")) < segments
    low = store.min_offset("T", 0)
    assert 0 < low <= 30
    assert bodies(store, low)[0] == b"%d" % low * 50
    assert store.query_by_key("T", "k0", 1) == []
    assert store.query_by_key("T", f"k{low}", 1)[0].queue_offset == low
    assert store.message_at(40) is None
    store.close()
    assert verify(disk) == []
    store = open_store(disk)
    assert store.min_offset("T", 0) == low
    assert put(store).queue_offset == 60


HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def segments_after_600_hours(wrong_ms: int) -> int:
    """What is left of a message an hour, kept for 72 hours; the clock is wrong by that much for a while."""
    store = open_store()
    for hour in range(600):
        now_ms = NOW_MS + hour * HOUR_MS
        stored_ms = now_ms + (wrong_ms if 40 <= hour < 80 else 0)
        put(store, b"x" * 100, at_ms=stored_ms)
        store.tick(hour * 3_000)
        store.retain(now_ms)
    return store.stats().segments


@pytest.mark.parametrize("wrong_days", [1, 10, 3650], ids=lambda days: f"{days} days ahead")
def test_a_clock_that_was_once_ahead_does_not_end_retention(wrong_days: int) -> None:
    assert segments_after_600_hours(wrong_days * DAY_MS) == segments_after_600_hours(0)


def test_a_clock_that_was_once_behind_does_not_take_young_messages_away() -> None:
    store = open_store()
    for number in range(200):
        stored_ms = 0 if 100 <= number < 120 else NOW_MS + number
        put(store, b"x" * 100, at_ms=stored_ms)
        store.tick(number * 3_000)
        store.retain(NOW_MS + number)
    assert store.retain(NOW_MS + 200) == 0
    assert store.min_offset("T", 0) == 0


def test_a_queue_whose_messages_are_all_gone_keeps_counting() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(5):
        put(store, topic="quiet", at_ms=NOW_MS)
    for _ in range(60):
        put(store, b"x" * 100, at_ms=NOW_MS + 1000)
    store._housekeeping.checkpoint(final=True)
    store.retain(NOW_MS + SMALL.retention_ms + 1001)
    store.retain(NOW_MS + SMALL.retention_ms + 1001)
    assert store.min_offset("quiet", 0) == store.max_offset("quiet", 0) == 5
    for rebuild in (False, True):
        store.close()
        store = Store.open(disk, SMALL, rebuild=rebuild)
        assert store.min_offset("quiet", 0) == store.max_offset("quiet", 0) == 5
    assert put(store, topic="quiet").queue_offset == 5


def test_size_bounds_the_log() -> None:
    settings = StoreSettings(
        segment_bytes=2048, checkpoint_bytes=2048, retention_ms=0, retention_bytes=8192, disk_free_bytes_min=0
    )
    store = open_store(settings=settings)
    for number in range(400):
        put(store, b"x" * 100)
        store.tick(number * 10_000)
        store.retain(NOW_MS)
    stats = store.stats()
    assert stats.log_end - stats.log_start < 8192 + 3 * 2048
    assert store.min_offset("T", 0) > 300


def test_memory_holds_only_what_no_checkpoint_has() -> None:
    store = open_store()
    for _ in range(2000):
        put(store)
    queue = store._queues[b"T", 0]
    assert len(queue.tail) < 100 * 24
    assert queue.filed > 1900


def test_states_are_saved_and_loaded() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    told: list[StoreError | None] = []
    assert store.load_state("offsets").status is StateStatus.ABSENT
    store.save_state("offsets", b"{}", told.append)
    assert told == [None]
    store.close()
    assert open_store(disk).load_state("offsets").data == b"{}"


def test_a_disk_without_room_refuses_before_anything_is_lost() -> None:
    disk = MemoryDisk(capacity_bytes=1 << 30)
    store = Store.open(disk, StoreSettings(disk_free_bytes_min=2 << 30))
    assert isinstance(store.refusal, StoreFullError)
    assert store.refusal.retriable
    with pytest.raises(StoreFullError, match="memory"):
        store.append(message(), NOW_MS, HOST)


def test_the_tags_code_may_be_something_else() -> None:
    def deliver_time(one: StoredMessage) -> int:
        return one.store_timestamp + 5 if one.topic == "SCHEDULE" else tags_code_by_tag(one)

    disk = MemoryDisk()
    store = Store.open(disk, SMALL, tags_code_of=deliver_time)
    store.append(message(topic="SCHEDULE"), NOW_MS, HOST, NOW_MS + 5)
    store.close()
    for rebuild in (False, True):
        store = Store.open(disk, SMALL, tags_code_of=deliver_time, rebuild=rebuild)
        entry = store.entry("SCHEDULE", 0, 0)
        assert entry is not None
        assert entry.tags_code == NOW_MS + 5
        store.close()
    assert verify(disk, tags_code_of=deliver_time) == []
    assert verify(disk) != []


def test_what_it_has_shows_in_its_repr() -> None:
    store = open_store()
    put(store)
    assert "queues=1" in repr(store)
    assert store.queue_ids("T") == [0]
    assert store.stats().topics == 1


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"flush": "perhaps"}, "flush"),
        ({"segment_bytes": 1}, "segment_bytes"),
        ({"queue_file_entries": 65}, "multiple of 64"),
        ({"open_files_max": 0}, "open_files_max"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, object], says: str) -> None:
    with pytest.raises(StoreSettingsError, match=says):
        StoreSettings(**values)  # type: ignore[arg-type]


def test_a_read_with_odd_limits_gives_one_message() -> None:
    store = open_store()
    put(store, b"one")
    put(store, b"two")
    for messages_max, bytes_max in ((0, 0), (-1, -1), (1, -(1 << 40))):
        assert store.read("T", 0, 0, messages_max=messages_max, bytes_max=bytes_max).count == 1


def test_names_from_anywhere_do_no_harm() -> None:
    store = open_store()
    put(store)
    for topic in ("\ud800", "", "../..", "T\0", "x" * 10_000):
        assert store.read(topic, 0, 0, messages_max=1, bytes_max=1).count == 0
        assert store.query_by_key(topic, "\ud800", 1) == []
        assert store.max_offset(topic, -1) == 0
        assert store.queue_ids(topic) == []
    with pytest.raises(InvalidMessageError, match="UTF-8"):
        store.append(Storable(b"\xff", b"", b"", 0, NOW_MS, HOST), NOW_MS, HOST)


def test_what_grew_is_told_once_and_summed_by_queue() -> None:
    store = open_store()
    first = put(store, b"one")
    second = put(store, b"two!", write=False)
    other = put(store, queue_id=1)
    assert store.take_grown() == [
        Grown("T", 0, 2, first.size + second.size),
        Grown("T", 1, 1, other.size),
    ]
    assert store.take_grown() == []


def test_messages_that_come_together_are_stored_all_or_none() -> None:
    store = open_store()

    def put_together(*messages: tuple[bytes, bytes]) -> AppendedTogether:
        some, properties = [body for body, _ in messages], [of_it for _, of_it in messages]
        zeros = [0] * len(some)
        queues = [(0, len(some) - 1), (3, 1)]
        times = [NOW_MS] * len(some)
        several = StorableTogether(b"T", queues, HOST, some, properties, zeros, zeros, times, zeros)
        return store.append_together(several, NOW_MS, HOST, zeros, [(b"k",), *[()] * (len(some) - 1)])

    put(store, b"before", write=False)
    with pytest.raises(InvalidMessageError, match="properties"):
        put_together((b"good", b""), (b"bad", bytes(40_000)))
    appended = put_together((b"1", b"KEYS\x01k"), (b"2", b""), (b"other", b""))
    assert appended.queue_offsets == [1, 2, 0]
    store.write()
    assert bodies(store) == [b"before", b"1", b"2"]
    assert bodies(store, queue_id=3) == [b"other"]
    assert [store.message_at(place).body for place in appended.physical_offsets] == [b"1", b"2", b"other"]  # type: ignore[union-attr]
    assert [message.body for message in store.query_by_key("T", "k", 9)] == [b"1"]


def test_a_batch_appended_before_the_store_failed_is_not_written_after_it() -> None:
    store = open_store()
    put(store, b"one")
    put(store, b"two", write=False)
    store._fail(StoreReadOnlyError("broken"))
    end = store.written_end
    with pytest.raises(StoreReadOnlyError, match="broken"):
        store.write()
    assert store.written_end == end
    assert store.write() == end, "what was refused is forgotten"
    assert bodies(store) == [b"one"]
    store.close()


def test_a_close_that_cannot_sync_says_so() -> None:
    disk = SimDisk(Random(1))
    store = Store.open(disk, SMALL)
    put(store, write=False)

    def fail(call: str, name: str) -> None:
        if call == "sync":
            raise OSError(5, "simulated")

    disk.before = fail
    with pytest.raises(StoreReadOnlyError, match="simulated"):
        store.close()
    disk.before = None
    disk.lock()
