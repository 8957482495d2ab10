"""Finding messages by key: the hash of `topic#key` leads to places in the log, newest first.

Keys are gathered in 256 buckets by the low byte of their hash. When a checkpoint finds enough of them, or enough log since the
last time, the gathered ones become a chunk file: a head with the range of log and time that it covers and the place and
checksum of each bucket, then the buckets. A search reads one bucket of each chunk whose time fits, up to a number. Hashes collide, so whoever
searches looks at the messages themselves. Like the queues, the index can be made anew from the log at any time.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct, pack, unpack_from
from sys import byteorder
from typing import NamedTuple

from trimtab.broker.store.errors import StoreDamagedError
from trimtab.broker.store.handles import Handles
from trimtab.broker.store.queues import first_where
from trimtab.io.disk import Disk, opened
from trimtab.wire.hashing import crc32

DIRECTORY = "index"
BUCKETS = 256
CHUNK_ENTRIES_MIN = 1 << 16

_ENTRY = Struct(">IqII")  # hash, place in the log, seconds since 1970, checksum of the record
ENTRY_BYTES = _ENTRY.size
_SECONDS = slice(3, None, ENTRY_BYTES // 4)
"""Of all entries of a bucket, where it is seen as words of four bytes in the machine's own order."""
_pack_entry = _ENTRY.pack
_MAGIC = b"trix"
_VERSION = 1
_HEAD = Struct(">4sIqqqqI")  # magic, version, log from, log to, oldest ms, newest ms, entries
_TABLE = Struct(f">{BUCKETS}I{BUCKETS}I")  # entries per bucket, checksum per bucket
_HEAD_BYTES = _HEAD.size + _TABLE.size + 4
_NEVER_MS = 1 << 62


class Chunk(NamedTuple):
    """What is known of a chunk file without reading it again."""

    name: str
    log_from: int
    log_to: int
    oldest_ms: int
    newest_ms: int


class Gathered:
    """Keys in memory."""

    __slots__ = ("buckets", "entries", "log_from", "newest_ms", "oldest_ms")

    def __init__(self, log_from: int) -> None:
        self.log_from = log_from
        self.buckets = [bytearray() for _ in range(BUCKETS)]
        self.entries = 0
        self.oldest_ms = _NEVER_MS
        self.newest_ms = 0

    def split(self, log_offset: int) -> "Gathered":
        """Takes out and gives back what points to `log_offset` or behind it: at a busy broker some ten thousand entries, while others wait."""
        behind = Gathered(log_offset)
        for number, bucket in enumerate(self.buckets):
            at = _first_behind(bucket, log_offset)
            behind.buckets[number] = bucket[at:]
            behind.entries += (len(bucket) - at) // ENTRY_BYTES
            del bucket[at:]
        self.entries -= behind.entries
        behind.look_at_times()
        return behind

    def look_at_times(self) -> None:
        """From when to when the entries are, to the second: a file that claimed more would be read for nothing."""
        words = {word for bucket in self.buckets for word in set(memoryview(bucket).cast("I")[_SECONDS])}
        if words:
            seconds = [int.from_bytes(word.to_bytes(4, byteorder)) for word in words]
            self.oldest_ms, self.newest_ms = min(seconds) * 1000, max(seconds) * 1000 + 999


class KeysOfSome(NamedTuple):
    """What messages of one topic that were stored at one time are found by, and where they lie."""

    keys_of_each: Sequence[Sequence[bytes]]
    key_seed: int
    """The checksum of `topic#`."""
    physical_offsets: Sequence[int]
    checksums: Sequence[int]
    store_ms: int


class ChunkWrite(NamedTuple):
    """A chunk on its way to disk."""

    chunk: Chunk
    gathered: Gathered
    salt: int

    def run(self, disk: Disk) -> None:
        with opened(disk, self.chunk.name, create=True) as file:
            file.truncate(0)
            file.pwrite(encode_chunk(self.chunk, self.gathered, self.salt), 0)
            file.sync()
        disk.sync_dir(DIRECTORY)


class Index:
    """See above. `covered` is how far the chunk files reach in the log."""

    def __init__(self, handles: Handles, salt: int) -> None:
        self._handles = handles
        self._salt = salt
        self.chunks: list[Chunk] = []
        self.covered = 0
        self._gathered = Gathered(0)
        self._on_its_way: ChunkWrite | None = None

    def add(
        self, keys: Sequence[bytes], key_seed: int, physical_offset: int, checksum: int, store_ms: int
    ) -> None:
        """Remembers a message under each of its keys; `key_seed` is the checksum of `topic#`."""
        self.add_all([KeysOfSome((keys,), key_seed, (physical_offset,), (checksum,), store_ms)])

    def add_all(self, several: Iterable[KeysOfSome]) -> None:
        """The same for many, in the order of the log."""
        gathered = self._gathered
        buckets = gathered.buckets
        for keys_of_each, key_seed, physical_offsets, checksums, store_ms in several:
            entries = sum(map(len, keys_of_each))
            if not entries:
                continue
            gathered.entries += entries
            gathered.oldest_ms = min(gathered.oldest_ms, store_ms)
            gathered.newest_ms = max(gathered.newest_ms, store_ms)
            seconds = store_ms // 1000 & 0xFFFFFFFF
            for keys, physical_offset, checksum in zip(
                keys_of_each, physical_offsets, checksums, strict=True
            ):
                for key in keys:
                    key_hash = crc32(key, key_seed)
                    buckets[key_hash & 0xFF] += _pack_entry(key_hash, physical_offset, seconds, checksum)

    def sources(self, begin_ms: int, end_ms: int) -> list[Chunk | Gathered]:
        """Where messages of that time may be found, newest first: what is in memory, then files."""
        gathered = [] if self._on_its_way is None else [self._on_its_way.gathered]
        every: list[Chunk | Gathered] = [self._gathered, *gathered, *reversed(self.chunks)]
        return [one for one in every if one.oldest_ms <= end_ms and begin_ms <= one.newest_ms]

    def candidates(
        self, source: Chunk | Gathered, key_hash: int, begin_ms: int, end_ms: int
    ) -> Iterator[tuple[int, int]]:
        """Places in the log where a message with the key may lie and the records' checksums, newest first."""
        number = key_hash & 0xFF
        bucket = self._bucket(source, number) if isinstance(source, Chunk) else bytes(source.buckets[number])
        return _search(bucket, pack(">I", key_hash), begin_ms, end_ms)

    def _bucket(self, chunk: Chunk, number: int) -> bytes:
        """One bucket of a chunk file, checked."""
        try:
            file = self._handles.get(chunk.name)
            head = file.pread(_HEAD_BYTES, 0)
            if decode_head(head, chunk.name, self._salt) != chunk:
                raise _damage(chunk.name, 0, "its head has changed")
            table = _TABLE.unpack_from(head, _HEAD.size)
            at = _HEAD_BYTES + sum(table[:number]) * ENTRY_BYTES
            bucket = file.pread(table[number] * ENTRY_BYTES, at)
        except OSError as exc:
            raise _damage(chunk.name, 0, f"it cannot be read: {exc}") from exc
        if crc32(bucket, number) != table[BUCKETS + number]:
            raise _damage(chunk.name, at, f"bucket {number} has changed")
        return bucket

    def seal(self, durable: int, checkpoint_bytes: int, *, force: bool = False) -> ChunkWrite | None:
        """A chunk of what was gathered, if it is worth a file and all of it points to durable log."""
        if self._on_its_way is not None:  # the last checkpoint failed
            return self._on_its_way
        gathered = self._gathered
        much = gathered.entries >= CHUNK_ENTRIES_MIN or durable - gathered.log_from >= checkpoint_bytes
        if durable == gathered.log_from or not (much or force):
            return None
        self._gathered = gathered.split(durable)
        chunk = Chunk(
            f"{DIRECTORY}/{gathered.log_from:020d}",
            gathered.log_from,
            durable,
            gathered.oldest_ms,
            gathered.newest_ms,
        )
        self._on_its_way = ChunkWrite(chunk, gathered, self._salt)
        return self._on_its_way

    def filed(self, write: ChunkWrite) -> None:
        """After the checkpoint that holds the chunk."""
        assert write is self._on_its_way, "one chunk at a time"
        self._on_its_way = None
        self.chunks.append(write.chunk)
        self.covered = write.chunk.log_to

    def attach(self, disk: Disk, start: int, covered: int) -> list[str]:
        """Takes over the chunk files up to `covered`, removes what is older or newer; says what is missing."""
        complaints = []
        expected = None
        for name in disk.names(DIRECTORY):
            with opened(disk, name) as file:
                chunk = decode_head(file.pread(_HEAD_BYTES, 0), name, self._salt)
            log_from = int(name.rpartition("/")[2])
            if log_from >= covered or (chunk is not None and chunk.log_to <= start):
                disk.remove(name)
                continue
            if chunk is None:
                complaints.append(
                    f"{name} is damaged; keys of that part of the log are not found until a rebuild"
                )
                continue
            if chunk.log_from > (start if expected is None else expected):
                complaints.append(
                    f"a file of the index before {name} is missing; keys of that part are not found until a rebuild"
                )
            expected = chunk.log_to
            self.chunks.append(chunk)
        if covered > (start if expected is None else expected):
            complaints.append("the last file of the index is missing; its keys are not found until a rebuild")
        self.covered = covered
        self._gathered = Gathered(covered)
        return complaints

    def drop_before(self, start: int) -> list[str]:
        """Forgets chunks that cover nothing from `start` on; gives the names of their files."""
        dropped = [chunk.name for chunk in self.chunks if chunk.log_to <= start]
        self.chunks = [chunk for chunk in self.chunks if chunk.log_to > start]
        for name in dropped:
            self._handles.drop(name)
        return dropped


def _first_behind(bucket: bytearray, log_offset: int) -> int:
    """Where the entries begin that point to `log_offset` or behind it; all stand in the order of the log."""

    def is_behind(number: int) -> bool:
        at = number * ENTRY_BYTES
        return int.from_bytes(bucket[at + 4 : at + 12]) >= log_offset

    return ENTRY_BYTES * first_where(0, len(bucket) // ENTRY_BYTES, is_behind)


def key_hash_of(topic: bytes, key: bytes) -> int:
    return crc32(key, crc32(topic + b"#"))


def encode_chunk(chunk: Chunk, gathered: Gathered, salt: int) -> bytes:
    buckets = gathered.buckets
    head = _HEAD.pack(
        _MAGIC, _VERSION, chunk.log_from, chunk.log_to, chunk.oldest_ms, chunk.newest_ms, gathered.entries
    ) + _TABLE.pack(
        *(len(bucket) // ENTRY_BYTES for bucket in buckets),
        *(crc32(bucket, number) for number, bucket in enumerate(buckets)),
    )
    return b"".join((head, crc32(head, salt).to_bytes(4), *buckets))


def decode_head(head: bytes, name: str, salt: int) -> Chunk | None:
    """None unless every byte of it is as it was written."""
    head = head[:_HEAD_BYTES]
    if len(head) != _HEAD_BYTES or crc32(head[:-4], salt) != int.from_bytes(head[-4:]):
        return None
    magic, version, log_from, log_to, oldest_ms, newest_ms, _ = _HEAD.unpack_from(head)
    if magic != _MAGIC or version != _VERSION or name != f"{DIRECTORY}/{log_from:020d}":
        return None
    return Chunk(name, log_from, log_to, oldest_ms, newest_ms)


def chunk_entries(data: bytes) -> Iterator[tuple[int, int] | int]:
    """For a check of a whole file: (hash, place in the log) of each entry, or the number of a bucket that has changed."""
    table = unpack_from(f">{2 * BUCKETS}I", data, _HEAD.size)
    at = _HEAD_BYTES
    for number in range(BUCKETS):
        bucket = data[at : at + table[number] * ENTRY_BYTES]
        at += len(bucket)
        if crc32(bucket, number) != table[BUCKETS + number]:
            yield number
            continue
        for key_hash, physical_offset, _, _ in _ENTRY.iter_unpack(bucket):
            yield key_hash, physical_offset


def _search(bucket: bytes, needle: bytes, begin_ms: int, end_ms: int) -> Iterator[tuple[int, int]]:
    at = bucket.rfind(needle)
    while at >= 0:
        if at % ENTRY_BYTES == 0:
            _, physical_offset, seconds, checksum = _ENTRY.unpack_from(bucket, at)
            if begin_ms // 1000 <= seconds <= end_ms // 1000:
                yield physical_offset, checksum
        at = bucket.rfind(needle, 0, at + len(needle) - 1)


def _damage(name: str, offset: int, what: str) -> StoreDamagedError:
    return StoreDamagedError(
        file=name,
        offset=offset,
        what=what,
        advice="messages are not affected; stop the broker and make the index anew with `trimtab store rebuild FOLDER`",
    )
