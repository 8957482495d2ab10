"""A disk that forgets what was not synced, and fails when told to.

Each file has what is durable, what the running system sees, and the writes in between. A power cut draws one legal outcome: each
unsynced write is lost, lands, or lands torn at sectors, in any mix, with zeros where a file grew without its data; of the
unsynced creations, renames and removals in a directory some first ones survive. What was synced stays, bit by bit. A sync that
fails does as Linux does: the error is told once, the pages count as clean from then on, and nobody knows what was written.

`before` is called before every call that touches the disk, with the call's name and the file's; whatever it raises is the
call's outcome. `PowerCut` is no `Exception`, so no code under test can catch it by mistake.
"""

import errno
from collections.abc import Callable, Mapping

from trimtab.io.chance import Chance
from trimtab.io.disk import Bytes, DiskLockedError, checked_name, directory_of

SECTOR_BYTES = 512

Before = Callable[[str, str], None]


class PowerCut(BaseException):
    """The lights are out: nothing after this call happens."""


class _Inode:
    __slots__ = ("durable", "seen", "unsynced")

    def __init__(self) -> None:
        self.durable = bytearray()
        self.seen = bytearray()
        self.unsynced: list[tuple[int, bytes | None]] = []  # (place, data), or (size, None) for a truncation


_Change = tuple[tuple[str, _Inode | None], ...]
"""What one creation, renaming or removal does to names; all of it or nothing."""


def _put(data: bytearray, at: int, piece: Bytes) -> None:
    if len(data) < at:
        data.extend(bytes(at - len(data)))
    data[at : at + len(piece)] = piece


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


class SimFile:
    """A handle; it dies with the process that opened it."""

    def __init__(self, disk: "SimDisk", name: str, inode: _Inode, life: int) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode
        self._life = life

    def pwrite(self, data: Bytes, offset: int) -> None:
        try:
            self._call("pwrite")
            self._disk.claim(max(0, offset + len(data) - len(self._inode.seen)))
        except (OSError, PowerCut):
            # A part of it may have been written before.
            self._write(bytes(data)[: self._disk.chance.randrange(len(data) + 1)], offset)
            raise
        self._write(bytes(data), offset)

    def _write(self, data: bytes, offset: int) -> None:
        if data:
            _put(self._inode.seen, offset, data)
            self._inode.unsynced.append((offset, data))

    def pread(self, size: int, offset: int) -> bytes:
        self._call("pread")
        return bytes(self._inode.seen[offset : offset + size])

    def sync(self) -> None:
        inode = self._inode
        try:
            self._call("sync")
        except OSError:
            self._disk.settle(inode)
            inode.unsynced.clear()
            raise
        for at, data in inode.unsynced:
            if data is None:
                _resize(inode.durable, at)
            else:
                _put(inode.durable, at, data)
        inode.unsynced.clear()

    def truncate(self, size: int) -> None:
        self._call("truncate")
        _resize(self._inode.seen, size)
        self._inode.unsynced.append((size, None))

    def size(self) -> int:
        self._call("size")
        return len(self._inode.seen)

    def close(self) -> None:
        """Closing makes nothing durable."""

    def _call(self, call: str) -> None:
        assert self._life == self._disk.life, f"{self._name} was opened by a process that is dead"
        self._disk.call(call, self._name)


class SimDisk:
    """See above. `chance` decides what a power cut leaves."""

    def __init__(self, chance: Chance, *, capacity_bytes: int = 1 << 40) -> None:
        self.chance = chance
        self.capacity_bytes = capacity_bytes
        self.before: Before | None = None
        self.calls = 0
        self.life = 0
        self._files: dict[str, _Inode] = {}
        self._durable_files: dict[str, _Inode] = {}
        self._unsynced_names: dict[str, list[_Change]] = {}
        self._locked = False

    def call(self, call: str, name: str) -> None:
        self.calls += 1
        if self.before is not None:
            self.before(call, name)

    def claim(self, more_bytes: int) -> None:
        if more_bytes > self.free_bytes():
            raise OSError(errno.ENOSPC, "the simulated disk is full")

    def lock(self) -> None:
        if self._locked:
            raise DiskLockedError("the simulated disk is in use; close the store that has it")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def open(self, name: str, *, create: bool = False) -> SimFile:
        self.call("open", checked_name(name))
        inode = self._files.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such simulated file", name)
            inode = self._files[name] = _Inode()
            self._note(name, ((name, inode),))
        return SimFile(self, name, inode, self.life)

    def names(self, directory: str) -> list[str]:
        self.call("names", directory)
        return sorted(name for name in self._files if directory_of(name) == directory)

    def rename(self, old: str, new: str) -> None:
        self.call("rename", new)
        inode = self._files[new] = self._files.pop(old)
        self._note(new, ((old, None), (new, inode)))

    def remove(self, name: str) -> None:
        self.call("remove", name)
        del self._files[name]
        self._note(name, ((name, None),))

    def _note(self, name: str, change: _Change) -> None:
        self._unsynced_names.setdefault(directory_of(name), []).append(change)

    def sync_dir(self, directory: str) -> None:
        self.call(
            "sync_dir", directory
        )  # if it fails, the changes wait on: a journal does not forget, it stops
        self._keep_names(self._unsynced_names.pop(directory, []))

    def _keep_names(self, changes: list[_Change]) -> None:
        for change in changes:
            for name, inode in change:
                if inode is None:
                    self._durable_files.pop(name, None)
                else:
                    self._durable_files[name] = inode

    def _settle_names(self, directory: str) -> None:
        changes = self._unsynced_names.pop(directory, [])
        self._keep_names(changes[: self.chance.randrange(len(changes) + 1)])

    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - sum(len(inode.seen) for inode in self._files.values()))

    def total_bytes(self) -> int:
        return self.capacity_bytes

    def settle(self, inode: _Inode) -> None:
        """What became of the unsynced writes of a file."""
        for at, data in inode.unsynced:
            fate = self.chance.randrange(10)
            if fate < 3:
                continue  # never left the memory
            if data is None:
                _resize(inode.durable, at)
            elif fate < 6:
                _put(inode.durable, at, data)
            else:
                self._tear(inode.durable, at, data)

    def _tear(self, durable: bytearray, at: int, data: bytes) -> None:
        """Some sectors land; where the file grew and data is missing there are zeros."""
        end = at + len(data)
        _resize(durable, max(len(durable), end))
        for begin in range(at - at % SECTOR_BYTES, end, SECTOR_BYTES):
            if self.chance.randrange(2):
                first, last = max(at, begin), min(end, begin + SECTOR_BYTES)
                durable[first:last] = data[first - at : last - at]

    def cut_power(self) -> None:
        """Only what a disk would hold is left."""
        for directory in sorted(self._unsynced_names):
            self._settle_names(directory)
        self._files = dict(self._durable_files)
        for name in sorted(self._files):
            inode = self._files[name]
            self.settle(inode)
            inode.unsynced.clear()
            inode.seen = bytearray(inode.durable)
        self.kill()

    def kill(self) -> None:
        """The process is gone, the system runs on: nothing is lost, handles and lock are."""
        self.life += 1
        self._locked = False
        self.before = None

    def flip(self, name: str, bit: int) -> None:
        """One bit rots, on the disk and in the system's eyes."""
        inode = self._files[name]
        for data in (inode.seen, inode.durable):
            if bit // 8 < len(data):
                data[bit // 8] ^= 1 << bit % 8

    def image(self) -> dict[str, bytes]:
        """Every file as it is durable."""
        return {name: bytes(inode.durable) for name, inode in sorted(self._durable_files.items())}

    def load(self, image: Mapping[str, bytes]) -> None:
        """Puts files there, durable, in place of all others."""
        self._unsynced_names.clear()
        self._durable_files.clear()
        for name, data in image.items():
            inode = self._durable_files[name] = _Inode()
            inode.durable, inode.seen = bytearray(data), bytearray(data)
        self._files = dict(self._durable_files)
        self.kill()

    def __str__(self) -> str:
        return "simulated disk"
