from random import Random

from tests.unit.broker.store.shared import SMALL, open_store, put
from trimtab.broker.store import Store
from trimtab.broker.store.queues import ENTRY_BYTES
from trimtab.broker.store.scrub import verify
from trimtab.io.disk import MemoryDisk, opened
from trimtab.sim.disk import SimDisk


def filled(disk: MemoryDisk) -> None:
    store = open_store(disk)
    for number in range(100):
        put(store, b"%d" % number, queue_id=number % 2, key=f"k{number}")
    store.close()


def change(disk: MemoryDisk, name: str, at: int) -> None:
    with opened(disk, name) as file:
        before = file.pread(1, at)
        file.pwrite(bytes([before[0] ^ 1]), at)


def test_a_sound_store_has_no_findings() -> None:
    disk = MemoryDisk()
    filled(disk)
    assert verify(disk) == []


def test_an_empty_directory_is_no_store() -> None:
    assert "not a store" in verify(MemoryDisk())[0].what


def test_a_changed_byte_in_the_log_is_named_and_the_rest_is_still_checked() -> None:
    disk = MemoryDisk()
    filled(disk)
    first, second = disk.names("log")[:2]
    change(disk, first, 300)
    change(disk, second, 500)
    findings = verify(disk)
    assert {first, second} <= {finding.file for finding in findings}
    assert not any(finding.harmless for finding in findings)
    assert first in str(findings[0])


def test_a_changed_queue_entry_is_named() -> None:
    disk = MemoryDisk()
    filled(disk)
    name = disk.names("queues")[0]
    change(disk, name, 4 + 7 * ENTRY_BYTES)
    assert {finding.file for finding in verify(disk)} == {name}


def test_a_changed_index_is_named() -> None:
    disk = MemoryDisk()
    filled(disk)
    name = disk.names("index")[0]
    with opened(disk, name) as file:
        size = file.size()
    change(disk, name, size - 1)
    assert {finding.file for finding in verify(disk)} == {name}


def test_a_lost_checkpoint_is_named() -> None:
    disk = MemoryDisk()
    filled(disk)
    change(disk, "state/checkpoint.a", 30)
    assert "checkpoint.a" in verify(disk)[0].what
    change(disk, "state/checkpoint.b", 30)
    assert "both generations" in verify(disk)[0].what


def test_an_unfinished_write_is_harmless_and_stays_for_the_next_start() -> None:
    disk = SimDisk(Random(1))
    store = Store.open(disk, SMALL)
    put(store)
    store.close()
    image = disk.image()
    name = next(name for name in image if name.startswith("log/"))
    image[name] += b"trim, and then the power went"
    disk.load(image)
    findings = verify(disk)
    assert [finding.harmless for finding in findings] == [True]
    assert disk.image() == image, "a check changes nothing"
    store = Store.open(disk, SMALL)
    assert "cut off" in store.report[0]
    store.close()
    assert verify(disk) == []
