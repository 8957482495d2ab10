import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.broker.store import StoreDamagedError
from trimtab.broker.store.handles import Handles
from trimtab.broker.store.queues import ENTRY_BYTES, Queue, QueueFiles, Row, pack_entry, queue_from_row, rows
from trimtab.io.disk import MemoryDisk


def files_on(disk: MemoryDisk, *, file_entries: int = 128) -> QueueFiles:
    return QueueFiles(Handles(disk, 4), file_entries, salt=3)


def fill(queue: Queue, count: int) -> None:
    for _ in range(count):
        offset = queue.end
        queue.push(pack_entry(offset * 100, 90, -offset, offset), offset * 100)
        queue.next_offset = queue.end


def flush(queue: Queue, disk: MemoryDisk, durable: int = 1 << 60) -> None:
    plan = queue.flush(durable)
    if plan is not None:
        for write in plan.writes:
            write.run(disk)
        queue.flushed(plan)


def offsets(queue: Queue, first: int, count: int) -> list[int]:
    return [entry[0] // 100 for entry in queue.entries(first, count)]


@given(
    rounds=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 700)), min_size=1, max_size=6),
    spans=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=10),
)
def test_entries_are_the_same_in_memory_and_in_files(
    rounds: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    disk = MemoryDisk()
    queue = Queue(files_on(disk), b"T", 1, 2)
    for count, durable in rounds:
        fill(queue, count)
        flush(queue, disk, durable * 100)
        assert queue.filed <= max(durable, queue.filed)
    for one, other in spans:
        first, stop = sorted((min(one, queue.end), min(other, queue.end)))
        assert offsets(queue, first, stop - first) == list(range(first, stop))


@given(first=st.integers(0, 300), more=st.integers(0, 300))
def test_a_queue_comes_back_from_its_row(first: int, more: int) -> None:
    disk = MemoryDisk()
    queue = Queue(files_on(disk), b"T", 1, 2)
    fill(queue, first)
    flush(queue, disk)
    (row,) = rows(queue.row())
    assert row == Row(1, 2, 0, first, queue.running_sum)
    again = queue_from_row(files_on(disk), b"T", row)
    fill(again, more)
    flush(again, disk)
    assert offsets(again, 0, first + more) == list(range(first + more))


@given(offset=st.integers(0, 300), count=st.integers(0, 200), batches=st.integers(1, 3))
def test_a_queue_may_begin_anywhere_again(offset: int, count: int, batches: int) -> None:
    disk = MemoryDisk()
    queue = Queue(files_on(disk), b"T", 1, 2)
    queue.restart(offset, 0)
    for _ in range(batches):
        fill(queue, count)
        flush(queue, disk)
    assert queue.min_offset == offset
    assert set(queue.file_names()) == set(disk.names("queues"))
    assert offsets(queue, offset, count * batches) == list(range(offset, offset + count * batches))
    (row,) = rows(queue.row())
    again = queue_from_row(files_on(disk), b"T", row)
    fill(again, 70)
    flush(again, disk)
    assert offsets(again, offset, count * batches + 70) == list(range(offset, again.end))


def test_only_what_points_to_durable_log_is_filed() -> None:
    disk = MemoryDisk()
    queue = Queue(files_on(disk), b"T", 1, 2)
    fill(queue, 10)
    assert queue.visible_max(0) == 0
    assert queue.visible_max(301) == 4
    assert queue.visible_max(10_000) == 10
    flush(queue, disk, 301)
    assert queue.filed == 4
    assert len(queue.tail) == 6 * ENTRY_BYTES
    assert queue.flush(301) is None


@pytest.mark.parametrize("entries", [10, 64, 100, 128, 300])
def test_a_changed_byte_is_noticed_wherever_it_is(entries: int) -> None:
    disk = MemoryDisk()
    queue = Queue(files_on(disk), b"T", 1, 2)
    fill(queue, entries)
    flush(queue, disk)
    name = queue.file_name(0)
    table_bytes = queue._files.table_bytes
    for position in range(table_bytes, table_bytes + min(entries, 128) * ENTRY_BYTES, 37):
        with_file = disk.open(name)
        before = with_file.pread(1, position)
        with_file.pwrite(bytes([before[0] ^ 4]), position)
        with pytest.raises(StoreDamagedError, match="rebuild"):
            queue.entries(0, entries)
        with_file.pwrite(before, position)
    assert offsets(queue, 0, entries) == list(range(entries))


def test_the_file_of_another_queue_does_not_fit() -> None:
    disk = MemoryDisk()
    queue, other = (Queue(files_on(disk), b"T", 1, queue_id) for queue_id in (0, 1))
    for one in (queue, other):
        fill(one, 64)
        flush(one, disk)
    disk.rename(other.file_name(0), queue.file_name(0))
    queue._files.handles.close()
    with pytest.raises(StoreDamagedError):
        queue.entries(0, 1)


def test_a_missing_file_is_damage() -> None:
    disk = MemoryDisk()
    queue = Queue(files_on(disk), b"T", 1, 0)
    fill(queue, 5)
    flush(queue, disk)
    disk.remove(queue.file_name(0))
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        queue.entries(0, 1)


@given(count=st.integers(1, 400), kept=st.integers(0, 500))
def test_trimming_moves_the_beginning_and_gives_up_whole_files(count: int, kept: int) -> None:
    disk = MemoryDisk()
    queue = Queue(files_on(disk), b"T", 1, 0)
    fill(queue, count)
    flush(queue, disk)
    for name in queue.trim(kept * 100):
        disk.remove(name)
    assert queue.min_offset == min(kept, count)
    assert disk.names("queues") == queue.file_names()
    fill(queue, 80)
    flush(queue, disk)
    assert offsets(queue, queue.min_offset, queue.end - queue.min_offset) == list(
        range(queue.min_offset, queue.end)
    )
