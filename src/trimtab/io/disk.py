"""The disk as a seam: numbered places in named files, and nothing else.

A name is `file` or `directory/file`, made by us from numbers and fixed words, never from anything that came over a wire. Data
is durable after `sync`; a name that was created, renamed or removed is durable after `sync_dir` of its directory. No mmap: a
full disk or a failed write must come back as an error from a call, not as a signal.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from trimtab.errors import TrimtabError

Bytes = bytes | bytearray | memoryview

_NAME = re.compile(r"(?:[a-z]{1,16}/)?[A-Za-z0-9_-]{1,64}(?:\.[a-z0-9]{1,8}){0,2}")
_LOCK = "LOCK"
_sync_data = getattr(os, "fdatasync", os.fsync)


class DiskError(TrimtabError):
    """The disk, or what is named as one, cannot be used as asked."""


class DiskLockedError(DiskError):
    """Another process has the directory open."""


class DiskFile(Protocol):
    """One open file."""

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Writes all of it or raises `OSError`; then some of it may have been written."""

    def pread(self, size: int, offset: int) -> bytes:
        """What is there, less than `size` at the end of the file."""

    def sync(self) -> None:
        """Back when everything written through any handle of this file is on stable storage."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A directory of files. Handles may be used from several threads; one handle must not be closed while in use."""

    def lock(self) -> None:
        """Keeps other processes out until `unlock`; `DiskLockedError` if one is in."""

    def unlock(self) -> None: ...

    def open(self, name: str, *, create: bool = False) -> DiskFile:
        """`FileNotFoundError` if it is not there and `create` does not say to make it."""

    def names(self, directory: str) -> list[str]:
        """Names of the files in a directory, sorted, as `open` takes them; none if there is no such directory."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync_dir(self, directory: str) -> None: ...

    def free_bytes(self) -> int: ...

    def total_bytes(self) -> int:
        """What it holds when it is full, of ours and of others."""


@contextmanager
def opened(disk: Disk, name: str, *, create: bool = False) -> Iterator[DiskFile]:
    """A file that is closed at the end of the block."""
    file = disk.open(name, create=create)
    try:
        yield file
    finally:
        file.close()


def directory_of(name: str) -> str:
    return name.rpartition("/")[0]


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DiskError(
            f"{name!r} is not a name that the store makes; use one directory and a plain file name"
        )
    return name


class RealFile:
    """A file descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pwrite(self, data: Bytes, offset: int) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written == len(data):
            return
        rest = memoryview(data)
        while written < len(rest):
            count = os.pwrite(self._fd, rest[written:], offset + written)
            if count == 0:
                raise OSError(errno.EIO, f"nothing was written at byte {offset + written}")
            written += count

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._fd, size - got, offset + got)
            if not data:
                break
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def sync(self) -> None:
        _sync_data(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class RealDisk:
    """A directory of the machine. It is made if it is not there, unless it is only to be read: then nothing at all is."""

    def __init__(self, root: str | Path, *, read_only: bool = False) -> None:
        self._root = os.path.realpath(root)
        self._flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC | os.O_NOFOLLOW
        self._is_read_only = read_only
        self._lock_fd = -1
        if not read_only:
            Path(self._root).mkdir(parents=True, exist_ok=True)

    def lock(self) -> None:
        """Readers keep each other not out; where no owner ever left the file to lock, there is none to keep out either."""
        try:
            fd = os.open(self._path(_LOCK), self._flags | (0 if self._is_read_only else os.O_CREAT), 0o600)
        except OSError as exc:
            if self._is_read_only and isinstance(exc, FileNotFoundError):
                return
            verb = "read" if self._is_read_only else "written to"
            raise DiskError(
                f"{self._root} cannot be {verb}: {exc.strerror}; give this user the right to, or name another directory"
            ) from exc
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if self._is_read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(fd)
            raise DiskLockedError(
                f"{self._root} is in use by another process; stop it or name another directory"
            ) from exc
        except OSError as exc:
            os.close(fd)
            raise DiskError(
                f"{self._root} cannot be locked: {exc.strerror}; name a directory on a disk of this machine"
            ) from exc
        self._lock_fd = fd

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            fd, self._lock_fd = self._lock_fd, -1
            os.close(fd)

    def open(self, name: str, *, create: bool = False) -> RealFile:
        path = self._path(name)
        if not create:
            return RealFile(os.open(path, self._flags))
        assert not self._is_read_only, "who only reads makes no files"
        parent = Path(path).parent
        if not parent.is_dir():
            parent.mkdir()
            self.sync_dir("")
        return RealFile(os.open(path, self._flags | os.O_CREAT, 0o600))

    def names(self, directory: str) -> list[str]:
        prefix = f"{directory}/" if directory else ""
        try:
            with os.scandir(Path(self._root, directory)) as entries:
                found = [prefix + entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if name != _LOCK)

    def rename(self, old: str, new: str) -> None:
        Path(self._path(old)).replace(self._path(new))

    def remove(self, name: str) -> None:
        Path(self._path(name)).unlink()

    def sync_dir(self, directory: str) -> None:
        fd = os.open(Path(self._root, directory), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self) -> int:
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def total_bytes(self) -> int:
        status = os.statvfs(self._root)
        # Without what is kept back for the system, so that free is 0 when it is full.
        return (status.f_blocks - status.f_bfree + status.f_bavail) * status.f_frsize

    def _path(self, name: str) -> str:
        path = os.path.realpath(Path(self._root, checked_name(name)))
        if os.path.commonpath((self._root, path)) != self._root:
            raise DiskError(f"{name!r} leads out of {self._root}; remove the link that does so")
        return path

    def __str__(self) -> str:
        return self._root


class MemoryFile:
    """A handle of a file in memory."""

    __slots__ = ("_data",)

    def __init__(self, data: bytearray) -> None:
        self._data = data

    def pwrite(self, data: Bytes, offset: int) -> None:
        if offset > len(self._data):
            self._data.extend(bytes(offset - len(self._data)))
        self._data[offset : offset + len(data)] = data

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(memoryview(self._data)[offset : offset + size])

    def sync(self) -> None:
        """Nothing in memory is durable, nothing needs to be."""

    def truncate(self, size: int) -> None:
        if size < len(self._data):
            del self._data[size:]
        else:
            self._data.extend(bytes(size - len(self._data)))

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        """The data stays."""


class MemoryDisk:
    """Files in memory, gone with the process: for tests and for brokers that need not remember."""

    def __init__(self, *, capacity_bytes: int = 1 << 40) -> None:
        self._files: dict[str, bytearray] = {}
        self._capacity_bytes = capacity_bytes
        self._locked = False

    def lock(self) -> None:
        if self._locked:
            raise DiskLockedError("this memory is in use by another store; close that one first")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        data = self._files.get(checked_name(name))
        if data is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file in memory", name)
            data = self._files[name] = bytearray()
        return MemoryFile(data)

    def names(self, directory: str) -> list[str]:
        return sorted(name for name in self._files if directory_of(name) == directory)

    def rename(self, old: str, new: str) -> None:
        self._files[checked_name(new)] = self._files.pop(old)

    def remove(self, name: str) -> None:
        del self._files[name]

    def sync_dir(self, directory: str) -> None:
        """Nothing to do."""

    def free_bytes(self) -> int:
        return max(0, self._capacity_bytes - sum(map(len, self._files.values())))

    def total_bytes(self) -> int:
        return self._capacity_bytes

    def __str__(self) -> str:
        return "memory"
