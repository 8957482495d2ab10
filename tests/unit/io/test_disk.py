import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.io.disk import Disk, DiskError, DiskLockedError, MemoryDisk, RealDisk, checked_name, opened

Maker = Callable[[Path], Disk]


@pytest.fixture(params=[RealDisk, lambda path: MemoryDisk()], ids=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    maker: Maker = request.param
    return maker(tmp_path / "store")


def test_what_is_written_is_read(disk: Disk) -> None:
    with opened(disk, "log/0", create=True) as file:
        file.pwrite(b"world", 5)
        file.pwrite(bytearray(b"hello"), 0)
        assert file.pread(100, 0) == b"helloworld"
        assert file.pread(3, 4) == b"owo"
        assert file.pread(5, 10) == b""
        assert file.size() == 10
        file.truncate(4)
        assert file.pread(100, 0) == b"hell"
        file.truncate(6)
        assert file.pread(100, 0) == b"hell\0\0"
        file.sync()


def test_two_handles_see_one_file(disk: Disk) -> None:
    with opened(disk, "a", create=True) as one, opened(disk, "a") as other:
        one.pwrite(b"x" * 2000, 0)
        assert other.size() == 2000
        other.pwrite(b"y", 1999)
        assert one.pread(2, 1998) == b"xy"


def test_names_come_and_go(disk: Disk) -> None:
    assert disk.names("log") == []
    for name in ("log/2", "log/1", "top"):
        disk.open(name, create=True).close()
    assert disk.names("log") == ["log/1", "log/2"]
    assert disk.names("") == ["top"]
    disk.rename("log/1", "log/3")
    disk.remove("log/2")
    disk.sync_dir("log")
    assert disk.names("log") == ["log/3"]
    with pytest.raises(FileNotFoundError):
        disk.open("log/1")


def test_one_lock_at_a_time(disk: Disk, tmp_path: Path) -> None:
    disk.lock()
    other = RealDisk(tmp_path / "store") if isinstance(disk, RealDisk) else disk
    with pytest.raises(DiskLockedError, match=r"close|stop"):
        other.lock()
    disk.unlock()
    other.lock()
    assert disk.names("") == [], "the lock is not one of the store's files"
    other.unlock()


def test_there_is_room(disk: Disk) -> None:
    assert disk.free_bytes() > 0


@given(st.text(max_size=80) | st.from_regex(r"[./%a-z~\\\0-]{1,20}", fullmatch=True))
def test_a_name_never_leads_anywhere_else(text: str) -> None:
    try:
        name = checked_name(text)
    except DiskError:
        return
    assert ".." not in name.split("/")
    assert not name.startswith(("/", "."))
    assert name.count("/") <= 1
    assert "\0" not in name


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../b", "a/b/c", "", ".", "a\0b", "x" * 200, "a/", "a//b", "log/.x"]
)
def test_a_path_is_refused(disk: Disk, name: str, tmp_path: Path) -> None:
    with pytest.raises(DiskError):
        disk.open(name, create=True)
    assert sorted(path.name for path in tmp_path.iterdir()) in ([], ["store"])


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "store")
    (tmp_path / "store" / "log").symlink_to(tmp_path)
    with pytest.raises(DiskError, match="leads out"):
        disk.open("log/x", create=True)
    (tmp_path / "store" / "a").symlink_to(tmp_path / "store" / "b")
    with pytest.raises(FileNotFoundError):
        disk.open("a")


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, bytes(data)[:3], offset))
    with opened(RealDisk(tmp_path), "a", create=True) as file:
        file.pwrite(b"0123456789", 5)
        assert file.pread(100, 0) == b"\0" * 5 + b"0123456789"


def test_a_write_that_does_not_get_on_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: 0)
    with (
        opened(RealDisk(tmp_path), "a", create=True) as file,
        pytest.raises(OSError, match="nothing was written"),
    ):
        file.pwrite(b"abc", 0)


def test_a_short_read_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pread
    with opened(RealDisk(tmp_path), "a", create=True) as file:
        file.pwrite(b"0123456789", 0)
        monkeypatch.setattr(os, "pread", lambda fd, size, offset: whole(fd, min(size, 4), offset))
        assert file.pread(8, 1) == b"12345678"
        assert file.pread(80, 1) == b"123456789"


def test_memory_has_an_end() -> None:
    disk = MemoryDisk(capacity_bytes=10)
    with opened(disk, "a", create=True) as file:
        file.pwrite(b"1234567", 0)
    assert disk.free_bytes() == 3


def test_a_disk_to_read_from_changes_nothing_and_makes_nothing(tmp_path: Path) -> None:
    with opened(RealDisk(tmp_path / "store"), "log/0", create=True) as file:
        file.pwrite(b"hello", 0)
    reading = RealDisk(tmp_path / "store", read_only=True)
    reading.lock()
    with opened(reading, "log/0") as file:
        assert file.pread(10, 0) == b"hello"
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.pwrite(b"x", 0)
    reading.unlock()
    assert [entry.name for entry in (tmp_path / "store").iterdir()] == ["log"]
    RealDisk(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()


def test_readers_share_a_directory_and_keep_its_owner_out(tmp_path: Path) -> None:
    owner = RealDisk(tmp_path)
    owner.lock()
    one, other = RealDisk(tmp_path, read_only=True), RealDisk(tmp_path, read_only=True)
    with pytest.raises(DiskLockedError, match="in use"):
        one.lock()
    owner.unlock()
    one.lock()
    other.lock()
    with pytest.raises(DiskLockedError, match="in use"):
        owner.lock()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_directory_that_cannot_be_locked_is_named_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    def refuse(path: str, *_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    disk = RealDisk(tmp_path, read_only=read_only)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DiskError, match=f"{tmp_path} cannot be .*: Read-only file system; "):
        disk.lock()
