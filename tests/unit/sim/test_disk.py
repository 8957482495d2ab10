from collections.abc import Callable
from random import Random

import pytest

from trimtab.io.disk import DiskLockedError, opened
from trimtab.sim.disk import PowerCut, SimDisk


def outcomes(act: Callable[[SimDisk], None], seeds: int = 200) -> set[tuple[tuple[str, bytes], ...]]:
    found = set()
    for seed in range(seeds):
        disk = SimDisk(Random(seed))
        act(disk)
        disk.cut_power()
        found.add(tuple(disk.image().items()))
    return found


def test_what_was_synced_stays() -> None:
    def act(disk: SimDisk) -> None:
        with opened(disk, "a", create=True) as file:
            file.pwrite(b"x" * 2000, 0)
            file.sync()
        disk.sync_dir("")

    assert outcomes(act) == {(("a", b"x" * 2000),)}


def test_what_was_not_synced_may_be_lost_torn_or_there() -> None:
    def act(disk: SimDisk) -> None:
        with opened(disk, "a", create=True) as file:
            file.pwrite(b"x" * 1024, 0)
        disk.sync_dir("")

    bodies = {files[0][1] for files in outcomes(act)}
    assert bodies == {b"", b"x" * 1024, b"\0" * 1024, b"x" * 512 + b"\0" * 512, b"\0" * 512 + b"x" * 512}


def test_a_name_that_was_not_synced_may_be_gone() -> None:
    def act(disk: SimDisk) -> None:
        with opened(disk, "a", create=True) as file:
            file.pwrite(b"x", 0)
            file.sync()

    assert outcomes(act) == {(), (("a", b"x"),)}


def test_a_rename_happens_as_a_whole_or_not_at_all() -> None:
    def act(disk: SimDisk) -> None:
        for name in ("a", "b"):
            with opened(disk, name, create=True) as file:
                file.pwrite(name.encode(), 0)
                file.sync()
        disk.sync_dir("")
        disk.rename("a", "b")

    assert outcomes(act) == {(("a", b"a"), ("b", b"b")), (("b", b"a"),)}


def test_an_overwritten_sector_is_old_or_new() -> None:
    def act(disk: SimDisk) -> None:
        with opened(disk, "a", create=True) as file:
            file.pwrite(b"old" * 100, 0)
            file.sync()
            disk.sync_dir("")
            file.pwrite(b"new" * 100, 0)

    assert outcomes(act) == {(("a", b"old" * 100),), (("a", b"new" * 100),)}


def test_a_failed_sync_tells_once_and_leaves_doubt() -> None:
    lost = set()
    for seed in range(50):
        disk = SimDisk(Random(seed))

        def fail(call: str, name: str) -> None:
            if call == "sync":
                raise OSError(5, "simulated")

        with opened(disk, "a", create=True) as file:
            disk.sync_dir("")
            file.pwrite(b"x", 0)
            disk.before = fail
            with pytest.raises(OSError, match="simulated"):
                file.sync()
            disk.before = None
            file.sync()
            assert file.pread(1, 0) == b"x", "the running system still sees it"
        disk.cut_power()
        lost.add(disk.image()["a"])
    assert {b"", b"x"} <= lost <= {b"", b"\0", b"x"}


def test_a_kill_loses_nothing_but_handles_and_lock() -> None:
    disk = SimDisk(Random(1))
    disk.lock()
    with pytest.raises(DiskLockedError):
        disk.lock()
    file = disk.open("a", create=True)
    file.pwrite(b"x", 0)
    disk.kill()
    disk.lock()
    assert disk.open("a").pread(9, 0) == b"x"
    with pytest.raises(AssertionError, match="dead"):
        file.pread(1, 0)


def test_a_power_cut_is_not_caught_as_an_error() -> None:
    disk = SimDisk(Random(1))

    def cut(call: str, name: str) -> None:
        raise PowerCut

    disk.before = cut
    with pytest.raises(PowerCut):
        disk.open("a", create=True)
    assert not issubclass(PowerCut, Exception)


def test_a_full_disk_takes_a_part() -> None:
    disk = SimDisk(Random(3), capacity_bytes=100)
    with opened(disk, "a", create=True) as file:
        file.pwrite(b"x" * 90, 0)
        with pytest.raises(OSError, match="full"):
            file.pwrite(b"y" * 20, 90)


def test_a_bit_flips() -> None:
    disk = SimDisk(Random(1))
    disk.load({"a": b"\0\0"})
    disk.flip("a", 9)
    assert disk.image() == {"a": b"\0\x02"}
