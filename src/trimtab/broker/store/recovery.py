"""Opening a store: believe the checkpoint, look through the log from there on, and never cut what was durable.

The log is read frame by frame from where the checkpoint ends. Each whole frame is dispatched again to queues and index. The
first frame that is not whole ends the log, if it can be a torn tail. It cannot be one below the checkpoint's durable mark,
nor below the `durable` of any whole frame behind it: then the store is refused, with file and offset, and nothing is changed.
What lies above the durable mark is written and synced once more before anybody may see it.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from trimtab.broker.store.checkpoint import Checkpoint
from trimtab.broker.store.errors import StoreDamagedError
from trimtab.broker.store.frames import (
    CHECKSUM_BYTES,
    HEAD_BYTES,
    MAGIC,
    Frame,
    Head,
    is_true_head,
    read_frame,
    read_head,
)
from trimtab.broker.store.log import segment_name
from trimtab.broker.store.parts import Parts
from trimtab.broker.store.queues import DIRECTORY as QUEUES
from trimtab.broker.store.queues import Queue, pack_entry, queue_from_row, rows
from trimtab.broker.store.reading import keys_of
from trimtab.io.disk import Disk, DiskFile, opened
from trimtab.wire.messages import STORED_BYTES_MIN, StoredMessage

_CHUNK_BYTES = 1 << 20

TagsCodeOf = Callable[[StoredMessage], int]


class Torn(NamedTuple):
    """Where the whole frames end although the file goes on, or the next one does not follow."""

    offset: int
    base: int


class Scan:
    """Whole frames from a place in the log on. After the last one `end` is where they end and `torn` says whether
    anything is behind it.
    """

    def __init__(self, disk: Disk, bases: list[int], start: int, salt: int, chain: int | None) -> None:
        self._disk = disk
        self._bases = bases
        self._salt = salt
        self.end = start
        self.chain = chain
        self.torn: Torn | None = None

    def frames(self) -> Iterator[Frame]:
        for index, base in enumerate(self._bases):
            following = self._bases[index + 1] if index + 1 < len(self._bases) else None
            if following is not None and following <= self.end:
                continue
            if base > self.end:
                self.torn = Torn(self.end, base)
                return
            with opened(self._disk, segment_name(base)) as file:
                yield from self._segment(file, base, following)
            if self.torn is not None:
                return

    def _segment(self, file: DiskFile, base: int, following: int | None) -> Iterator[Frame]:
        """What is left of a segment where the next one begins is the rest of a write that failed."""
        size = file.size()
        data, data_at = b"", 0  # a piece of the file and where it begins
        while self.end - base < size and self.end != following:
            position = self.end - base
            at = position - data_at
            if not 0 <= at <= len(data) - HEAD_BYTES:
                data, data_at, at = file.pread(_CHUNK_BYTES, position), position, 0
            head = read_head(data, at, self.end)
            if head is not None and len(data) - at < head.total_bytes <= size - position:
                wanted = max(_CHUNK_BYTES, head.total_bytes)
                if wanted > _CHUNK_BYTES and not _is_worth_reading(file, position, head, size, self._salt):
                    wanted = 0
                data, data_at, at = file.pread(wanted, position), position, 0
            whole = head is not None and len(data) - at >= head.total_bytes
            frame = read_frame(data, at, head, self._salt) if head is not None and whole else None
            if frame is None or (self.chain is not None and frame.head.previous != self.chain):
                self.torn = Torn(self.end, base)
                return
            self.chain = frame.head.check
            yield frame
            self.end = frame.end


def whole_frames_behind(disk: Disk, bases: list[int], offset: int, salt: int) -> Iterator[Frame]:
    """Every whole frame that stands anywhere behind `offset`, found by its first four bytes."""
    for index, base in enumerate(bases):
        following = bases[index + 1] if index + 1 < len(bases) else None
        if following is not None and following <= offset:
            continue
        with opened(disk, segment_name(base)) as file:
            size, position = file.size(), max(base, offset + 1) - base
            magics = _Magics(file, size)
            while (found := magics.next_from(position)) is not None:
                frame = _frame_at(file, base, found, size, salt)
                if frame is not None:
                    yield frame
                position = found + (1 if frame is None else frame.head.total_bytes)


class _Magics:
    """Finds the first bytes of frames, a piece of the file at a time."""

    def __init__(self, file: DiskFile, size: int) -> None:
        self._file = file
        self._size = size
        self._piece = b""
        self._piece_at = 0

    def next_from(self, position: int) -> int | None:
        """The first place at `position` or behind it; None if there is none."""
        while position + HEAD_BYTES <= self._size:
            if not self._piece_at <= position <= self._piece_at + len(self._piece) - len(MAGIC):
                self._piece, self._piece_at = self._file.pread(_CHUNK_BYTES, position), position
                if len(self._piece) < len(MAGIC):
                    return None
            found = self._piece.find(MAGIC, position - self._piece_at)
            if found >= 0:
                return self._piece_at + found
            position = self._piece_at + len(self._piece) - len(MAGIC) + 1
        return None


def _frame_at(file: DiskFile, base: int, position: int, size: int, salt: int) -> Frame | None:
    head = read_head(file.pread(HEAD_BYTES, position), 0, base + position)
    if head is None or not _is_worth_reading(file, position, head, size, salt):
        return None
    return read_frame(file.pread(head.total_bytes, position), 0, head, salt)


def _is_worth_reading(file: DiskFile, position: int, head: Head, size: int, salt: int) -> bool:
    """Judges a frame by its two ends, so that a head of chance bytes does not have hundreds of megabytes read for it."""
    if head.total_bytes > size - position or head.records * STORED_BYTES_MIN > head.payload_bytes:
        return False
    table = file.pread(head.records * CHECKSUM_BYTES, position + HEAD_BYTES + head.payload_bytes)
    return is_true_head(head, file.pread(HEAD_BYTES, position), table, salt)


class Recovery:
    """Brings log, catalog and index to life. `report` says in sentences what was found."""

    def __init__(self, parts: Parts, tags_code_of: TagsCodeOf) -> None:
        self._disk = parts.disk
        self._log = parts.log
        self._catalog = parts.catalog
        self._index = parts.index
        self._files = parts.files
        self._tags_code_of = tags_code_of
        self.dirty: dict[Queue, None] = {}
        self.report: list[str] = []

    def recover(self, checkpoint: Checkpoint) -> None:
        log = self._log
        log.holes = list(checkpoint.holes)
        log.attach(checkpoint.start, checkpoint.durable)
        self._take_catalog(checkpoint)
        self.report += self._index.attach(self._disk, checkpoint.start, checkpoint.indexed)
        begin = min(checkpoint.durable, checkpoint.indexed)
        chain = checkpoint.chain if begin == checkpoint.durable else None
        scan = Scan(self._disk, log.bases, begin, log.salt, chain)
        for frame in scan.frames():
            self._dispatch(frame, checkpoint)
        if scan.torn is not None:
            self._judge_tear(scan.torn, checkpoint.durable)
            log.cut(scan.end)
            self.report.append(
                f"an unfinished write was cut off the log at byte {scan.end}; it was never acknowledged"
            )
        log.settle(checkpoint.durable, scan.end, scan.chain or 0)

    def _judge_tear(self, torn: Torn, durable: int) -> None:
        behind = whole_frames_behind(self._disk, self._log.bases, torn.offset, self._log.salt)
        known = max([durable, *(frame.head.durable for frame in behind)])
        if torn.offset < known:
            raise StoreDamagedError(
                file=segment_name(torn.base),
                offset=max(0, torn.offset - torn.base),
                what=f"the log is not readable there, although it was durable up to byte {known}",
                advice="put the file back from a backup, or lose what is damaged with `trimtab store rebuild FOLDER`",
            )

    def _take_catalog(self, checkpoint: Checkpoint) -> None:
        catalog = self._catalog
        catalog.next_number = checkpoint.next_number
        catalog.topics = {topic.name: topic for topic in checkpoint.topics}
        catalog.deleted = dict(checkpoint.deleted)
        names = {topic.number: topic.name for topic in checkpoint.topics}
        needed = set()
        for row in rows(checkpoint.queues):
            queue = queue_from_row(self._files, names[row.number], row)
            catalog.take(queue)
            needed.update(queue.file_names())
        there = self._disk.names(QUEUES)
        missing = sorted(needed.difference(there))
        if missing:
            raise StoreDamagedError(
                file=missing[0],
                offset=0,
                what=f"the file is missing, with {len(missing) - 1} others",
                advice="nothing is lost, the log has it all: `trimtab store rebuild FOLDER`",
            )
        for name in there:
            if name not in needed:  # of a deleted topic, or from behind the checkpoint
                self._disk.remove(name)

    def _dispatch(self, frame: Frame, checkpoint: Checkpoint) -> None:
        for message, checksum in zip(frame.messages, frame.checksums, strict=True):
            physical_offset = message.physical_offset
            queue = self._catalog.of_record(message.topic.encode(), message.queue_id, physical_offset)
            if queue is None:
                continue
            if physical_offset >= checkpoint.durable:
                if message.queue_offset != queue.next_offset:
                    raise self._out_of_order(queue, message)
                self.push(queue, message, checksum)
            if physical_offset >= checkpoint.indexed:
                self.index_keys(queue, message, checksum)

    def push(self, queue: Queue, message: StoredMessage, checksum: int) -> None:
        entry = pack_entry(
            message.physical_offset, message.stored_size, self._tags_code_of(message), checksum
        )
        queue.push(entry, message.physical_offset)
        queue.next_offset = queue.end
        self.dirty[queue] = None

    def index_keys(self, queue: Queue, message: StoredMessage, checksum: int) -> None:
        keys = keys_of(message.properties_bytes)
        if keys:
            self._index.add(keys, queue.key_seed, message.physical_offset, checksum, message.store_timestamp)

    def _out_of_order(self, queue: Queue, message: StoredMessage) -> StoreDamagedError:
        base = max(base for base in self._log.bases if base <= message.physical_offset)
        return StoreDamagedError(
            file=segment_name(base),
            offset=message.physical_offset - base,
            what=f"message {message.queue_offset} of {message.topic}:{message.queue_id} follows {queue.next_offset - 1}",
            advice="files of different times were mixed; put them back from one backup, or make the queues anew with `trimtab store rebuild FOLDER`",
        )
