"""Looking for whole frames behind damage: in pieces, whatever the bytes look like."""

from tests.unit.broker.store.shared import open_store, put
from trimtab.broker.store import StoreSettings
from trimtab.broker.store.frames import HEAD_BYTES, MAGIC
from trimtab.broker.store.log import segment_name
from trimtab.broker.store.recovery import whole_frames_behind
from trimtab.io.disk import Bytes, MemoryDisk, MemoryFile

READ_BYTES_MAX = 1 << 20


class WatchedFile(MemoryFile):
    """Notes how much is read at once, and how often."""

    largest = 0
    reads = 0

    def pread(self, size: int, offset: int) -> bytes:
        data = super().pread(size, offset)
        WatchedFile.largest = max(WatchedFile.largest, len(data))
        WatchedFile.reads += 1
        return data


class WatchedDisk(MemoryDisk):
    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        file = super().open(name, create=create)
        return WatchedFile(file._data)


def log_with(damage: bytes) -> tuple[WatchedDisk, int, list[int]]:
    """A log whose second frame is replaced by other bytes of that length; its salt, and where whole frames stand behind."""
    disk = WatchedDisk()
    store = open_store(disk, StoreSettings(disk_free_bytes_min=0, checkpoint_bytes=1 << 30))
    begins = [0]
    for body in (b"first", bytes(len(damage)), b"third", b"fourth"):
        put(store, body)
        begins.append(store.written_end)
    salt = store._log.salt
    store.close()
    file = disk.open(segment_name(0))
    file.pwrite(damage[: begins[2] - begins[1]], begins[1])
    return disk, salt, begins[2:4]


def offsets_behind(damage: Bytes) -> None:
    disk, salt, behind = log_with(bytes(damage))
    WatchedFile.largest = WatchedFile.reads = 0
    found = [frame.head.offset for frame in whole_frames_behind(disk, [0], HEAD_BYTES, salt)]
    assert found == behind
    assert WatchedFile.largest <= READ_BYTES_MAX


def test_a_large_damaged_part_is_read_in_pieces() -> None:
    offsets_behind(bytes(9 << 20))
    assert WatchedFile.reads < 100


def test_bytes_that_look_like_frames_everywhere_are_not_read_again_and_again() -> None:
    offsets_behind(MAGIC * 100_000)
    assert WatchedFile.reads < 110_000, "one small read for each"


def test_a_frame_that_begins_in_the_last_bytes_of_a_piece_is_found() -> None:
    for shift in range(-8, 9):
        offsets_behind(bytes((1 << 20) + shift - 200))
