"""The commit log: every message of every queue, in the order of arrival.

Log offsets count bytes from the store's first day on. They run on over segment files without gaps: a segment is named after
the offset of its first byte, a frame (see `frames`) never crosses into the next. `add` gathers records, `write` puts them to
disk as one frame with one call. What is written is not yet durable: `begin_sync` gives the work for the sync thread,
`finish_sync` takes note of its success.

    start <= durable <= end <= next_offset
"""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from trimtab.broker.store.errors import StoreDamagedError, StoreWriteError
from trimtab.broker.store.frames import HEAD_BYTES, read_head, seal
from trimtab.broker.store.handles import Handles
from trimtab.broker.store.settings import StoreSettings
from trimtab.io.disk import Disk, DiskFile, opened

DIRECTORY = "log"


def segment_name(base: int) -> str:
    return f"{DIRECTORY}/{base:020d}"


class SyncJob(NamedTuple):
    """What one sync has to do: run in any thread, it touches no state of the log."""

    disk: Disk
    files: tuple[DiskFile, ...]
    directory_changed: bool
    end: int
    chain: int

    def run(self) -> None:
        for file in self.files:
            file.sync()
        if self.directory_changed:
            self.disk.sync_dir(DIRECTORY)


class Log:
    """See above. `recovery` opens it; nothing may be added before that."""

    def __init__(self, disk: Disk, handles: Handles, settings: StoreSettings, salt: int) -> None:
        self._disk = disk
        self._handles = handles
        self._settings = settings
        self.salt = salt
        self.bases: list[int] = []
        self.start = 0
        self.end = 0
        self.durable = 0
        self.durable_chain = 0
        self.next_offset = HEAD_BYTES
        self.holes: list[tuple[int, int]] = []
        self._chain = 0
        self.records: list[bytes] = []
        """What is to be written next. Who adds to it moves `next_offset`."""
        self.checksums: list[int] = []
        """Of the records."""
        self._writer: DiskFile | None = None
        self._unsynced: list[DiskFile] = []
        self._directory_changed = False

    def add(self, records: list[bytes], checksums: list[int], end: int) -> None:
        """Takes records that were laid out for `next_offset` and on, up to `end`."""
        self.records += records
        self.checksums += checksums
        self.next_offset = end

    def write(self) -> None:
        """What was added, as one frame. On `StoreWriteError` none of it is in the log and the offsets are free again."""
        if not self.checksums:
            return
        head, table, check = seal(
            self.checksums,
            payload_bytes=self.next_offset - self.end - HEAD_BYTES,
            offset=self.end,
            previous=self._chain,
            durable=self.durable,
            salt=self.salt,
        )
        frame = b"".join((head, *self.records, table))
        self.records, self.checksums = [], []
        try:
            self._put(frame)
        except OSError as exc:
            self.discard()
            raise StoreWriteError(
                f"the disk did not take {len(frame)} bytes for the log: {exc}; make room or mend the disk"
            ) from exc
        self.end += len(frame)
        self.next_offset = self.end + HEAD_BYTES
        self._chain = check

    def discard(self) -> None:
        """Forgets what was added and not written."""
        self.records, self.checksums = [], []
        self.next_offset = self.end + HEAD_BYTES

    def _put(self, frame: bytes) -> None:
        writer = self._writer
        if writer is None or self.end - self.bases[-1] + len(frame) > self._settings.segment_bytes:
            writer = self._roll()
        position = self.end - self.bases[-1]
        try:
            writer.pwrite(frame, position)
        except OSError:
            # A part of it may stand there. The next frame goes over it, and the chain keeps the rest from being taken
            # for frames; cutting it off only keeps the file tidy.
            self._cut_quietly(writer, position)
            raise

    def _cut_quietly(self, writer: DiskFile, position: int) -> None:
        try:
            writer.truncate(position)
        except OSError:
            return

    def _roll(self) -> DiskFile:
        """The file for the next frame: a new segment, unless the last one is still empty."""
        if self._writer is not None and self.end == self.bases[-1]:
            return self._writer
        self._writer = None
        writer = self._disk.open(segment_name(self.end), create=True)
        self._directory_changed = True
        if not self.bases or self.bases[-1] != self.end:
            self.bases.append(self.end)
        self._writer = writer
        self._unsynced.append(writer)
        return writer

    def begin_sync(self) -> SyncJob:
        job = SyncJob(self._disk, tuple(self._unsynced), self._directory_changed, self.end, self._chain)
        self._directory_changed = False
        return job

    def finish_sync(self, job: SyncJob) -> None:
        """After the job's success: its part of the log is durable."""
        self.durable, self.durable_chain = job.end, job.chain
        # The last one was being written to when the job began; even a write that failed since then leaves traces in it.
        finished, self._unsynced = self._unsynced[: len(job.files) - 1], self._unsynced[len(job.files) - 1 :]
        for file in finished:
            file.close()

    def put_off_sync(self, job: SyncJob) -> None:
        """The job could not be begun: all of it is left for the next one."""
        self._directory_changed |= job.directory_changed

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the log; `StoreDamagedError` if they should be there and are not."""
        index = bisect_right(self.bases, offset) - 1
        if index < 0 or offset < self.start or offset + size > self.end:
            raise StoreDamagedError(
                file=segment_name(self.bases[max(index, 0)]) if self.bases else DIRECTORY,
                offset=offset,
                what=f"bytes {offset} to {offset + size} of the log are outside of {self.start} to {self.end}",
                advice="stop the broker; `trimtab store verify FOLDER` shows more, `trimtab store rebuild FOLDER` makes the queues anew",
            )
        last = index + 1 == len(self.bases)
        if last or offset + size <= self.bases[index + 1]:
            return self._read_segment(index, offset, size)
        pieces = []
        while size:
            segment_end = self.bases[index + 1] if index + 1 < len(self.bases) else self.end
            count = min(size, segment_end - offset)
            pieces.append(self._read_segment(index, offset, count))
            offset, size, index = offset + count, size - count, index + 1
        return b"".join(pieces)

    def _read_segment(self, index: int, offset: int, size: int) -> bytes:
        base = self.bases[index]
        name = segment_name(base)
        try:
            data = self._handles.get(name).pread(size, offset - base)
        except OSError as exc:
            raise StoreDamagedError(
                file=name,
                offset=offset - base,
                what=f"it cannot be read: {exc}",
                advice="put the file back from a backup or mend the disk",
            ) from exc
        if len(data) != size:
            raise StoreDamagedError(
                file=name,
                offset=offset - base + len(data),
                what=f"the file ends {size - len(data)} bytes too early",
                advice="put the file back from a backup",
            )
        return data

    def attach(self, start: int, durable: int, *, removes: bool = True) -> None:
        """Finds the segments from `start` on and judges their shape, as far as it was known to be durable."""
        found = self.segments_found()
        for base in found:
            if base < start and removes:  # retention was cut short
                self._disk.remove(segment_name(base))
        self.bases = [base for base in found if base >= start]
        self.start = start
        if self.bases[:1] != [start] and durable > start:
            raise StoreDamagedError(
                file=segment_name(start),
                offset=0,
                what="the first file of the log is missing",
                advice="put the file back from a backup",
            )
        for base, following in pairwise(self.bases):
            self._judge_segment(base, min(following, durable))
        if self.bases:
            self._judge_segment(self.bases[-1], durable)

    def segments_found(self) -> list[int]:
        numbers = [name.rpartition("/")[2] for name in self._disk.names(DIRECTORY)]
        return [int(number) for number in numbers if len(number) == 20 and number.isdecimal()]

    def _judge_segment(self, base: int, must_reach: int) -> None:
        name = segment_name(base)
        size = self.segment_size(base)
        if base + size < must_reach and not self._is_hole(base + size):
            raise StoreDamagedError(
                file=name,
                offset=size,
                what=f"the file ends {must_reach - base - size} bytes too early, or the file after it is missing",
                advice="put the files back from a backup",
            )
        head = read_head(self._handles.get(name).pread(HEAD_BYTES, 0), 0, base)
        if must_reach > base and head is None and not self._is_hole(base):
            raise StoreDamagedError(
                file=name,
                offset=0,
                what=f"it does not begin with the log's byte {base}",
                advice="put the right file back from a backup",
            )

    def _is_hole(self, offset: int) -> bool:
        return any(begin <= offset < end for begin, end in self.holes)

    def segment_size(self, base: int) -> int:
        return self._handles.get(segment_name(base)).size()

    def cut(self, end: int) -> None:
        """Takes everything from `end` on away, for good; only recovery may, only for what was never durable."""
        while self.bases and self.bases[-1] >= end and self.bases[-1] > self.start:
            self._remove_segment(self.bases.pop())
        self._disk.sync_dir(DIRECTORY)
        if not self.bases:
            return
        with opened(self._disk, segment_name(self.bases[-1])) as file:
            file.truncate(end - self.bases[-1])
            file.sync()

    def settle(self, durable: int, end: int, chain: int) -> None:
        """Begins at `end`. What lies above `durable` is written again and synced: the system may hold it in memory only,
        and after a sync that failed once it would not even try to write it by itself.
        """
        self.end, self.next_offset, self._chain = end, end + HEAD_BYTES, chain
        for base, following in pairwise([*self.bases, end]):
            if following >= durable:
                self._write_again(base, max(base, durable), following)
        if end > durable:
            self._disk.sync_dir(DIRECTORY)
        self.durable, self.durable_chain = end, chain
        if self.bases:
            self._writer = self._disk.open(segment_name(self.bases[-1]))
            self._unsynced.append(self._writer)

    def _write_again(self, base: int, offset: int, end: int) -> None:
        with opened(self._disk, segment_name(base)) as file:
            if file.size() > end - base:  # a write failed there, and the log went on in the next segment
                file.truncate(end - base)
            end = min(end, base + file.size())  # less only where a rebuild found a hole
            while offset < end:
                data = file.pread(min(1 << 20, end - offset), offset - base)
                file.pwrite(data, offset - base)
                offset += len(data)
            file.sync()

    def drop_before(self, start: int) -> list[str]:
        """Forgets the segments before `start`, which is where a segment begins; gives the names of their files."""
        assert start in self.bases, "the log is shortened by whole segments, and never by the last one"
        dropped = [segment_name(base) for base in self.bases if base < start]
        self.bases = [base for base in self.bases if base >= start]
        self.start = start
        self.holes = [hole for hole in self.holes if hole[1] > start]
        for name in dropped:
            self._handles.drop(name)
        return dropped

    def _remove_segment(self, base: int) -> None:
        self._handles.drop(segment_name(base))
        self._disk.remove(segment_name(base))

    def close(self) -> None:
        for file in self._unsynced:
            file.close()
        self._unsynced, self._writer = [], None
