"""Looking at every byte of a store that is not in use, and changing none.

The log is the truth: every frame is checked and every record read. Then the rest is held against it: offsets of a queue follow
each other, queue entries say what the log says, every key leads to its message and every entry of the index to a key.
"""

from dataclasses import dataclass
from typing import NamedTuple

from trimtab.broker.store.checkpoint import Checkpoint
from trimtab.broker.store.errors import StoreDamagedError, StoreError
from trimtab.broker.store.frames import Frame
from trimtab.broker.store.index import Chunk, chunk_entries, decode_head, key_hash_of
from trimtab.broker.store.layout import load_layout
from trimtab.broker.store.log import segment_name
from trimtab.broker.store.opening import load_checkpoint, tags_code_by_tag
from trimtab.broker.store.parts import Parts, make_parts
from trimtab.broker.store.progress import DIRECTORY as STATE
from trimtab.broker.store.progress import LoadedState, StateFile, StateStatus, state_names
from trimtab.broker.store.queues import Entry, Queue, queue_from_row, rows
from trimtab.broker.store.reading import keys_of
from trimtab.broker.store.recovery import Scan, TagsCodeOf, whole_frames_behind
from trimtab.broker.store.settings import StoreSettings
from trimtab.io.disk import Disk, opened
from trimtab.wire.messages import StoredMessage

_BLOCK = 1024
_FINDINGS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """`harmless`: nothing that was acknowledged is affected, or the next start mends it by itself."""

    file: str
    offset: int
    what: str
    harmless: bool = False

    def __str__(self) -> str:
        return f"{self.file} at byte {self.offset}: {self.what}{' (harmless)' if self.harmless else ''}"


def verify(disk: Disk, *, tags_code_of: TagsCodeOf = tags_code_by_tag) -> list[Finding]:
    """Everything that is wrong with a store, at most a thousand findings; none if all is well. The store must not be open:
    `DiskError` if it is, `StoreError` if it cannot be read. A disk to read from is enough.
    """
    disk.lock()
    try:
        return _verify(disk, tags_code_of)
    except OSError as exc:
        raise StoreError(
            f"the store on {disk} cannot be read: {exc}; give this user the right to read it, or mend the disk"
        ) from exc
    finally:
        disk.unlock()


def _verify(disk: Disk, tags_code_of: TagsCodeOf) -> list[Finding]:
    notes: list[str] = []
    try:
        layout = load_layout(disk)
        if layout is None:
            return [Finding("LAYOUT", 0, "there is none: this is not a store, or an empty one")]
        parts = make_parts(disk, StoreSettings(), layout)
        checkpoint = load_checkpoint(parts.state, notes, required=True)
        assert checkpoint is not None, "required"
        parts.log.holes = list(checkpoint.holes)
        parts.log.attach(checkpoint.start, checkpoint.durable, removes=False)
    except StoreDamagedError as exc:
        return [Finding(exc.file, exc.offset, exc.what)]
    except StoreError as exc:
        return [Finding("LAYOUT", 0, str(exc))]
    scrub = _Scrub(parts, checkpoint, tags_code_of)
    scrub.findings += [Finding("state/checkpoint", 0, note) for note in notes]
    scrub.findings += [
        Finding(f"{STATE}/{name}", 0, loaded.note) for name, loaded in doubtful_states(disk).items()
    ]
    scrub.run()
    parts.handles.close()
    return scrub.findings


def doubtful_states(disk: Disk) -> dict[str, LoadedState]:
    """States of the broker that are not certainly what was saved last, but for the store's own."""
    loaded = {name: StateFile(disk, name).load() for name in state_names(disk) if name != "checkpoint"}
    return {name: state for name, state in loaded.items() if state.status is not StateStatus.OK}


class _Chunks(NamedTuple):
    """Keys of the log that the current chunk of the index should have, and the chunks still to come."""

    wanted: set[tuple[int, int]]
    left: list[Chunk]


class _Watched:
    """A queue while the log goes by: the next offset, and a piece of its entries."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.next_offset: int | None = None
        self._entries: list[tuple[int, int, int, int]] = []
        self._first = 0

    def entry(self, offset: int) -> Entry | None:
        """None for what is in no file."""
        queue = self.queue
        if not queue.min_offset <= offset < queue.filed:
            return None
        if not self._first <= offset < self._first + len(self._entries):
            self._entries = queue.entries(offset, min(_BLOCK, queue.filed - offset))
            self._first = offset
        return Entry(*self._entries[offset - self._first])

    def has_only_holes(self, begin: int, end: int) -> bool:
        """Whether a rebuild wrote down, for each of these offsets, that there is no message."""
        entries = map(self.entry, range(begin, end))
        return begin <= end and all(entry is not None and entry.is_hole for entry in entries)


class _Scrub:
    def __init__(self, parts: Parts, checkpoint: Checkpoint, tags_code_of: TagsCodeOf) -> None:
        self._parts = parts
        self._checkpoint = checkpoint
        self._tags_code_of = tags_code_of
        self.findings: list[Finding] = []
        self._watched: dict[tuple[bytes, int], _Watched] = {}
        self._since = {topic.name: topic.since for topic in checkpoint.topics}
        self._chunks = _Chunks(set(), [])

    def run(self) -> None:
        self._take_queues()
        self._take_chunks()
        start: int | None = self._checkpoint.start
        while start is not None and len(self.findings) < _FINDINGS_MAX:
            scan = Scan(self._parts.disk, self._parts.log.bases, start, self._parts.log.salt, None)
            for frame in scan.frames():
                self._check_frame(frame)
            start = self._after_tear(scan)
        self._check_chunks(self._checkpoint.indexed)
        self._check_ends()

    def _after_tear(self, scan: Scan) -> int | None:
        """Where to go on after a damaged place; None at the end."""
        if scan.torn is None:
            if scan.end < self._checkpoint.durable:
                self._find(segment_name(scan.end), 0, f"the log ends at {scan.end}, before its durable mark")
            return None
        log = self._parts.log
        behind = list(whole_frames_behind(self._parts.disk, log.bases, scan.end, log.salt))
        known = max([self._checkpoint.durable, *(frame.head.durable for frame in behind)])
        file, offset = segment_name(scan.torn.base), max(0, scan.end - scan.torn.base)
        if scan.end >= known:
            self._find(file, offset, "a write was not finished; the next start cuts it off", harmless=True)
            return None
        end = behind[0].head.offset if behind else known
        passed = any(begin <= scan.end < stop for begin, stop in log.holes)
        self._find(file, offset, f"bytes {scan.end} to {end} of the log are damaged", harmless=passed)
        return behind[0].head.offset if behind else None

    def _take_queues(self) -> None:
        names = {topic.number: topic.name for topic in self._checkpoint.topics}
        for row in rows(self._checkpoint.queues):
            queue = queue_from_row(self._parts.files, names[row.number], row)
            self._watched[queue.topic, queue.queue_id] = _Watched(queue)

    def _take_chunks(self) -> None:
        expected = self._checkpoint.start
        for name in self._parts.disk.names("index"):
            with opened(self._parts.disk, name) as file:
                chunk = decode_head(file.pread(1 << 16, 0), name, self._parts.log.salt)
            if chunk is None:
                self._find(name, 0, "the head of this index file is damaged")
                continue
            if chunk.log_from >= self._checkpoint.indexed or chunk.log_to <= self._checkpoint.start:
                continue
            if chunk.log_from > expected:
                self._find(name, 0, f"the index file for byte {expected} of the log on is missing")
            expected = chunk.log_to
            self._chunks.left.append(chunk)
        if expected < self._checkpoint.indexed:
            self._find("index", 0, f"the index file for byte {expected} of the log on is missing")

    def _check_frame(self, frame: Frame) -> None:
        self._check_chunks(frame.head.offset)
        for message, checksum in zip(frame.messages, frame.checksums, strict=True):
            topic = message.topic.encode()
            since = self._since.get(topic, self._checkpoint.deleted.get(topic, 0))
            if message.physical_offset < since:
                continue
            watched = self._watched.get((topic, message.queue_id))
            if watched is None and message.physical_offset < self._checkpoint.durable:
                self._find_at(
                    message, f"the checkpoint does not know queue {message.queue_id} of {message.topic}"
                )
            if watched is not None:
                self._check_message(watched, message, checksum)
            if message.physical_offset < self._checkpoint.indexed:
                for key in keys_of(message.properties_bytes):
                    self._chunks.wanted.add((key_hash_of(topic, key), message.physical_offset))

    def _check_message(self, watched: _Watched, message: StoredMessage, checksum: int) -> None:
        expected, offset = watched.next_offset, message.queue_offset
        watched.next_offset = offset + 1
        if not message.crc_matches:
            self._find_at(message, f"the body of {message} does not fit its own checksum")
        try:
            if expected is not None and not watched.has_only_holes(expected, offset):
                self._find_at(message, f"offset {offset} of {message} where {expected} should be")
            entry = watched.entry(offset)
        except StoreDamagedError as exc:
            self._find_damage(exc)
            return
        told = Entry(message.physical_offset, message.stored_size, self._tags_code_of(message), checksum)
        if entry is not None and entry != told:
            self._find_at(message, f"its queue entry says {entry}, the log says {told}")
        if entry is None and message.physical_offset < self._checkpoint.durable:
            self._find_at(message, f"{message} is not in its queue, which ends at {watched.queue.filed}")

    def _check_ends(self) -> None:
        for watched in self._watched.values():
            end, queue = watched.next_offset, watched.queue
            begin = queue.min_offset if end is None else end
            try:
                if begin >= queue.filed or watched.has_only_holes(begin, queue.filed):
                    continue
            except StoreDamagedError as exc:
                self._find_damage(exc)
                continue
            if end is None:
                self._find(queue.file_name(0), 0, "the queue has entries, the log has no messages for it")
            else:
                self._find(queue.file_name(0), 0, f"the queue ends at {queue.filed}, its messages at {end}")

    def _check_chunks(self, log_offset: int) -> None:
        """Chunks that end before a place in the log, held against the keys that went by."""
        while self._chunks.left and self._chunks.left[0].log_to <= log_offset:
            chunk = self._chunks.left.pop(0)
            begin = max(chunk.log_from, self._checkpoint.start)
            wanted = {pair for pair in self._chunks.wanted if pair[1] < chunk.log_to}
            self._chunks.wanted.difference_update(wanted)
            there = set()
            with opened(self._parts.disk, chunk.name) as file:
                for entry in chunk_entries(file.pread(file.size(), 0)):
                    if isinstance(entry, int):
                        self._find(chunk.name, 0, f"bucket {entry} of this index file is damaged")
                    elif entry[1] >= begin:
                        there.add(entry)
            missing = wanted.difference(there)
            if missing:
                self._find(chunk.name, 0, f"{len(missing)} keys are not in it")

    def _find_at(self, message: StoredMessage, what: str) -> None:
        base = max(base for base in self._parts.log.bases if base <= message.physical_offset)
        self._find(segment_name(base), message.physical_offset - base, what)

    def _find_damage(self, exc: StoreDamagedError) -> None:
        """Once, however many messages it is about."""
        if Finding(exc.file, exc.offset, exc.what) not in self.findings:
            self._find(exc.file, exc.offset, exc.what)

    def _find(self, file: str, offset: int, what: str, *, harmless: bool = False) -> None:
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append(Finding(file, offset, what, harmless))
