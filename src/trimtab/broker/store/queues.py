"""Consume queues: for each message of a queue, in order, where it lies in the log, how long it is, and the code of its tag.

An entry takes 24 bytes: RocketMQ's twenty and the checksum of the record. Entries that are not yet in a file live in `tail`;
a checkpoint moves those that point to durable log into files and syncs them, so memory stays small whatever the backlog.

A queue file has room for a fixed number of entries: first a table with one checksum per block of 64 entries, then the entries.
The checksums run on: each is over all entries of the file up to the end of its block. So any span is checked with one call, and
the sum at the end of the last, unfinished block stands in the checkpoint. A file of another queue does not fit, because the
first sum begins with the queue's own numbers. What lies behind the last checkpoint is ignored and written over.
"""

from collections.abc import Callable
from struct import Struct, pack
from typing import NamedTuple

from trimtab.broker.store.errors import StoreDamagedError
from trimtab.broker.store.handles import Handles
from trimtab.io.disk import Disk, opened
from trimtab.wire.hashing import crc32

DIRECTORY = "queues"
BLOCK_ENTRIES = 64

_ENTRY = Struct(">qiqI")
ENTRY_BYTES = _ENTRY.size
pack_entry = _ENTRY.pack
_SEED = Struct(">IIIq")
_ROW = Struct(">IIqqI")


class Entry(NamedTuple):
    """Where one message of a queue lies."""

    physical_offset: int
    size: int
    tags_code: int
    checksum: int

    @property
    def is_hole(self) -> bool:
        """Whether it only says that a rebuild found no message: see `Queue.fill`."""
        return self.size == 0


class QueueFiles(NamedTuple):
    """What all queues of a store share."""

    handles: Handles
    file_entries: int
    salt: int

    @property
    def table_bytes(self) -> int:
        return self.file_entries // BLOCK_ENTRIES * 4


class Write(NamedTuple):
    """Entries and block sums for one queue file."""

    name: str
    entries_at: int
    entries: bytes
    sums_at: int
    sums: bytes

    def run(self, disk: Disk) -> None:
        with opened(disk, self.name, create=True) as file:
            file.pwrite(self.entries, self.entries_at)
            if self.sums:
                file.pwrite(self.sums, self.sums_at)
            file.sync()


class Flush(NamedTuple):
    """What one checkpoint does for one queue."""

    queue: "Queue"
    writes: list[Write]
    filed: int
    running_sum: int


class Queue:
    """One queue. Offsets: min_offset <= filed <= end <= next_offset; entries from `filed` to `end` are in `tail`,
    those from `end` to `next_offset` are in `fresh`: given out but not yet written to the log.
    """

    __slots__ = (
        "_files",
        "end",
        "filed",
        "fresh",
        "fresh_bytes",
        "key_seed",
        "last_physical",
        "min_offset",
        "next_offset",
        "number",
        "queue_id",
        "running_sum",
        "tail",
        "topic",
        "topic_name",
    )

    def __init__(self, files: QueueFiles, topic: bytes, number: int, queue_id: int, *, at: int = 0) -> None:
        self._files = files
        self.topic = topic
        self.topic_name = topic.decode()
        self.number = number
        self.queue_id = queue_id
        self.key_seed = crc32(topic + b"#")
        self.min_offset = self.filed = self.end = self.next_offset = at
        self.tail = bytearray()
        self.fresh: list[bytes] = []
        self.fresh_bytes = 0
        self.running_sum = self._seed(at // files.file_entries)
        self.last_physical = -1

    def restart(self, offset: int, physical_offset: int) -> None:
        """Forgets everything and goes on at `offset`; for a rebuild. The block before it is filled with holes."""
        self.min_offset = self.filed = self.end = offset
        if offset % self._files.file_entries:
            self.filed = self.end = (offset - 1) // BLOCK_ENTRIES * BLOCK_ENTRIES
        self.tail = bytearray()
        self.running_sum = self._seed(self.filed // self._files.file_entries)
        self.fill(offset, physical_offset)

    def fill(self, offset: int, physical_offset: int) -> None:
        """Holes up to `offset`: messages that a rebuild did not find. Readers pass over them as over removed ones."""
        self.tail += pack_entry(physical_offset, 0, 0, 0) * (offset - self.end)
        self.end = self.next_offset = offset
        self.last_physical = physical_offset

    def push(self, entry: bytes, physical_offset: int) -> None:
        self.tail += entry
        self.end += 1
        self.last_physical = physical_offset

    def give(self, entries: list[bytes], records_bytes: int) -> None:
        """The next offsets are for messages with these entries, once they are written."""
        self.fresh += entries
        self.fresh_bytes += records_bytes
        self.next_offset += len(entries)

    def take_fresh(self) -> None:
        """The fresh entries' messages were written."""
        fresh = self.fresh
        self.tail += b"".join(fresh)
        self.end = self.next_offset
        self.last_physical = int.from_bytes(fresh[-1][:8])
        self.fresh, self.fresh_bytes = [], 0

    def drop_fresh(self) -> None:
        """They were not."""
        self.next_offset = self.end
        self.fresh, self.fresh_bytes = [], 0

    def visible_max(self, visible_end: int) -> int:
        """The offset after the last message that begins before `visible_end` of the log."""
        if self.last_physical < visible_end:
            return self.end
        return self.filed + self._tail_before(visible_end)

    def _tail_before(self, log_offset: int) -> int:
        """How many entries of the tail point before a place in the log."""
        return first_where(0, self.end - self.filed, lambda at: self._tail_physical(at) >= log_offset)

    def _tail_physical(self, at: int) -> int:
        physical_offset: int = _ENTRY.unpack_from(self.tail, at * ENTRY_BYTES)[0]
        return physical_offset

    def entry(self, offset: int) -> Entry:
        return Entry(*self.entries(offset, 1)[0])

    def entries(self, offset: int, count: int) -> list[tuple[int, int, int, int]]:
        """(physical offset, size, tags code, checksum) of each message; `offset` and `count` must lie inside the queue."""
        return list(_ENTRY.iter_unpack(self.raw_entries(offset, count)))

    def raw_entries(self, offset: int, count: int) -> bytes:
        assert self.min_offset <= offset <= offset + count <= self.end, (
            "the caller keeps to the queue's bounds"
        )
        if offset >= self.filed:
            at = (offset - self.filed) * ENTRY_BYTES
            return bytes(self.tail[at : at + count * ENTRY_BYTES])
        pieces = []
        stop = offset + count
        file_stop = min(stop, self.filed)
        while offset < file_stop:
            first_of_next = (offset // self._files.file_entries + 1) * self._files.file_entries
            upto = min(file_stop, first_of_next)
            pieces.append(self._filed_entries(offset, upto))
            offset = upto
        if stop > self.filed:
            pieces.append(bytes(self.tail[: (stop - self.filed) * ENTRY_BYTES]))
        return b"".join(pieces)

    def _filed_entries(self, first: int, stop: int) -> bytes:
        """Entries from one file, checked: whole blocks are read, and the sums before and after them must agree."""
        files = self._files
        number = first // files.file_entries
        base = number * files.file_entries
        first, stop, filed = first - base, stop - base, min(self.filed - base, files.file_entries)
        block = first // BLOCK_ENTRIES
        begin, end = block * BLOCK_ENTRIES, min(-(-stop // BLOCK_ENTRIES) * BLOCK_ENTRIES, filed)
        name = self.file_name(number)
        try:
            file = files.handles.get(name)
            raw = file.pread((end - begin) * ENTRY_BYTES, files.table_bytes + begin * ENTRY_BYTES)
            # The sums at the ends of the block before and of the last one; neither stands there before its block is whole.
            table_at = max(0, block - 1) * 4
            table = file.pread(end // BLOCK_ENTRIES * 4 - table_at, table_at)
            seed = int.from_bytes(table[:4]) if block else self._seed(number)
            expected = int.from_bytes(table[-4:]) if end % BLOCK_ENTRIES == 0 else self.running_sum
        except OSError as exc:
            raise self._damage(name, begin, f"it cannot be read: {exc}") from exc
        if len(raw) != (end - begin) * ENTRY_BYTES or crc32(raw, seed) != expected:
            raise self._damage(
                name, begin, f"entries {base + begin} to {base + end} are not what was written"
            )
        return raw[(first - begin) * ENTRY_BYTES : (stop - begin) * ENTRY_BYTES]

    def _damage(self, name: str, entry: int, what: str) -> StoreDamagedError:
        return StoreDamagedError(
            file=name,
            offset=self._files.table_bytes + entry * ENTRY_BYTES,
            what=f"{what} (queue {self.queue_id} of topic {self.topic.decode(errors='replace')})",
            advice="nothing is lost, the log has it all: stop the broker and make the queues anew with `trimtab store rebuild FOLDER`",
        )

    def _seed(self, file_number: int) -> int:
        return crc32(_SEED.pack(self.number, self.queue_id, file_number, self._files.salt))

    def file_name(self, file_number: int) -> str:
        return f"{DIRECTORY}/{self.number:08d}-{self.queue_id:06d}-{file_number:08d}"

    def file_names(self) -> list[str]:
        """The files that must be there: from the first entry kept to the last one filed. A file that goes on stays, even
        if all of it was removed: the sum of its first blocks is part of those to come.
        """
        entries = self._files.file_entries
        return [
            self.file_name(number)
            for number in range(self.min_offset // entries, (self.filed - 1) // entries + 1)
        ]

    def flush(self, durable: int) -> Flush | None:
        """What to write so that all entries that point before `durable` are in files."""
        stop = self.visible_max(durable)
        if stop == self.filed:
            return None
        writes = []
        offset, running_sum = self.filed, self.running_sum
        while offset < stop:
            number, position = divmod(offset, self._files.file_entries)
            if position == 0:
                running_sum = self._seed(number)
            upto = min(stop, (number + 1) * self._files.file_entries)
            at = (offset - self.filed) * ENTRY_BYTES
            raw = bytes(self.tail[at : at + (upto - offset) * ENTRY_BYTES])
            sums, sums_at = [], position // BLOCK_ENTRIES * 4
            if position and position % BLOCK_ENTRIES == 0:
                # There already, unless this is the first block after a restart.
                sums, sums_at = [running_sum], sums_at - 4
            running_sum = _add_block_sums(sums, raw, position, running_sum)
            writes.append(
                Write(
                    name=self.file_name(number),
                    entries_at=self._files.table_bytes + position * ENTRY_BYTES,
                    entries=raw,
                    sums_at=sums_at,
                    sums=pack(f">{len(sums)}I", *sums),
                )
            )
            offset = upto
        return Flush(self, writes, stop, running_sum)

    def flushed(self, flush: Flush) -> None:
        """After the checkpoint that holds it: forget the entries that are in files now."""
        del self.tail[: (flush.filed - self.filed) * ENTRY_BYTES]
        self.filed, self.running_sum = flush.filed, flush.running_sum

    def trim(self, log_start: int) -> list[str]:
        """Moves the beginning to the first message at or after `log_start`; gives the files that nothing needs any more."""
        if self.min_offset == self.end or self.entry(self.min_offset).physical_offset >= log_start:
            return []
        before = set(self.file_names())
        self.min_offset = first_where(
            self.min_offset, self.end, lambda offset: self.entry(offset).physical_offset >= log_start
        )
        return sorted(before.difference(self.file_names()))

    def row(self, flush: Flush | None = None) -> bytes:
        """The queue as a checkpoint keeps it, once `flush` is done."""
        filed, running_sum = (
            (self.filed, self.running_sum) if flush is None else (flush.filed, flush.running_sum)
        )
        return _ROW.pack(self.number, self.queue_id, min(self.min_offset, filed), filed, running_sum)


class Row(NamedTuple):
    """A queue in a checkpoint."""

    number: int
    queue_id: int
    min_offset: int
    filed: int
    running_sum: int


def rows(table: bytes) -> list[Row]:
    return [Row(*fields) for fields in _ROW.iter_unpack(table)]


def queue_from_row(files: QueueFiles, topic: bytes, row: Row) -> Queue:
    queue = Queue(files, topic, row.number, row.queue_id, at=row.filed)
    queue.min_offset, queue.running_sum = row.min_offset, row.running_sum
    return queue


def _add_block_sums(sums: list[int], raw: bytes, position: int, running_sum: int) -> int:
    """Adds the sums at the ends of the blocks that `raw` completes; gives the sum at its own end."""
    at = 0
    while at < len(raw):
        upto = min(len(raw), at + (BLOCK_ENTRIES - position % BLOCK_ENTRIES) * ENTRY_BYTES)
        running_sum = crc32(raw[at:upto], running_sum)
        position += (upto - at) // ENTRY_BYTES
        at = upto
        if position % BLOCK_ENTRIES == 0:
            sums.append(running_sum)
    return running_sum


def first_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first number from `low` on for which it holds, `high` if for none before; it must hold for all after the first."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
