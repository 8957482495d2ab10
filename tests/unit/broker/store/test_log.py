from zlib import crc32

import pytest

from tests.unit.broker.store.shared import HOST, NOW_MS, SMALL, message
from trimtab.broker.store import StoreDamagedError
from trimtab.broker.store.frames import HEAD_BYTES
from trimtab.broker.store.handles import Handles
from trimtab.broker.store.log import Log, segment_name
from trimtab.io.disk import MemoryDisk
from trimtab.wire.messages import encode_stored


def open_log(disk: MemoryDisk) -> Log:
    log = Log(disk, Handles(disk, 4), SMALL, salt=1)
    log.attach(0, 0)
    log.settle(0, 0, 0)
    return log


def add(log: Log, body: bytes = b"x") -> tuple[int, bytes]:
    offset = log.next_offset
    record = encode_stored(message(body), 0, offset, NOW_MS, HOST)
    log.add([record], [crc32(record)], log.next_offset + len(record))
    return offset, record


def sync(log: Log) -> None:
    job = log.begin_sync()
    job.run()
    log.finish_sync(job)


def test_records_lie_where_they_were_promised_side_by_side() -> None:
    log = open_log(MemoryDisk())
    (one_at, one), (two_at, two) = add(log), add(log, b"yy")
    log.write()
    assert one_at == HEAD_BYTES
    assert two_at == one_at + len(one)
    assert log.read(one_at, len(one) + len(two)) == one + two


def test_a_full_segment_is_followed_by_one_named_after_its_first_byte() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    places = []
    for _ in range(6):
        places.append(add(log, b"x" * 700))
        log.write()
    assert len(log.bases) == 3
    assert disk.names("log") == [segment_name(base) for base in log.bases]
    assert [log.read(at, len(record)) for at, record in places] == [record for _, record in places]
    assert len(log.read(log.start, log.end)) == log.end, "a read may cross segments"


def test_a_frame_larger_than_a_segment_has_one_of_its_own() -> None:
    log = open_log(MemoryDisk())
    at, record = add(log, b"x" * 5000)
    log.write()
    add(log)
    log.write()
    assert log.read(at, len(record)) == record
    assert len(log.bases) == 2


def test_durable_follows_the_sync_that_was_begun() -> None:
    log = open_log(MemoryDisk())
    add(log)
    log.write()
    first = log.end
    job = log.begin_sync()
    add(log)
    log.write()
    job.run()
    assert log.durable == 0
    log.finish_sync(job)
    assert log.durable == first < log.end
    sync(log)
    assert log.durable == log.end


def test_a_segment_that_went_on_during_a_sync_is_synced_again() -> None:
    log = open_log(MemoryDisk())
    add(log)
    log.write()
    job = log.begin_sync()
    add(log, b"in the same segment, after the sync began")
    log.write()
    add(log, b"x" * 3000)
    log.write()
    assert len(log.bases) == 2
    job.run()
    log.finish_sync(job)
    assert len(log.begin_sync().files) == 2


def test_reading_outside_is_damage_and_not_a_short_answer() -> None:
    log = open_log(MemoryDisk())
    add(log)
    log.write()
    for offset, size in ((0, log.end + 1), (-1, 1), (log.end, 1)):
        with pytest.raises(StoreDamagedError, match="log"):
            log.read(offset, size)


def test_nothing_added_is_nothing_written() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.write()
    assert log.end == 0
    assert disk.names("log") == []


def test_old_segments_are_dropped_whole() -> None:
    log = open_log(MemoryDisk())
    for _ in range(6):
        add(log, b"x" * 700)
        log.write()
    first, second = log.bases[:2]
    assert log.drop_before(second) == [segment_name(first)]
    assert log.start == second
    with pytest.raises(StoreDamagedError):
        log.read(first, 1)
