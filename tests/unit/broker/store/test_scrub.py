from random import Random

import msgspec

from tests.unit.broker.store.shared import SMALL, bodies, open_store, put
from trimtab.broker.store import Store
from trimtab.broker.store.checkpoint import decode_checkpoint
from trimtab.broker.store.layout import load_layout
from trimtab.broker.store.log import segment_name
from trimtab.broker.store.mending import mend
from trimtab.broker.store.progress import StateFile
from trimtab.broker.store.queues import ENTRY_BYTES
from trimtab.broker.store.recovery import Scan
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


def sentences(disk: MemoryDisk) -> list[str]:
    return [str(finding) for finding in verify(disk)]


def cut_off(disk: MemoryDisk, size: int) -> None:
    """Takes the last bytes of the log away, which were durable."""
    with opened(disk, disk.names("log")[-1]) as file:
        file.truncate(file.size() - size)


def test_a_store_that_was_rebuilt_after_it_lost_its_end_is_fine_and_stays_fine() -> None:
    disk = MemoryDisk()
    filled(disk)
    cut_off(disk, 300)
    assert sentences(disk)
    mend(disk)
    assert sentences(disk) == []
    store = open_store(disk)
    assert put(store, b"new", queue_id=0).queue_offset == 50, "what was given out is not given out again"
    store.abandon()
    assert sentences(disk) == []
    open_store(disk).close()
    assert sentences(disk) == []


def test_a_rebuilt_store_that_is_damaged_again_is_found_out() -> None:
    disk = MemoryDisk()
    filled(disk)
    cut_off(disk, 300)
    mend(disk)
    store = open_store(disk)
    for _ in range(30):
        put(store, b"new")
    store.close()
    rebuilt = {name: bytes(data) for name, data in disk._files.items()}
    cut_off(disk, 300)
    assert "durable" in sentences(disk)[0] or "too early" in sentences(disk)[0]
    disk._files.update({name: bytearray(data) for name, data in rebuilt.items()})
    change(disk, disk.names("queues")[0], 4 + 7 * ENTRY_BYTES)
    assert disk.names("queues")[0] in sentences(disk)[0]


def test_entries_for_messages_that_the_log_lost_are_no_holes() -> None:
    disk = MemoryDisk()
    filled(disk)
    state = StateFile(disk, "checkpoint")
    checkpoint = decode_checkpoint(state.load().data or b"")
    cut = next(
        frame.head.offset
        for frame in Scan(disk, [int(name[4:]) for name in disk.names("log")], 0, _salt(disk), None).frames()
        if frame.messages[0].queue_offset == 40
    )
    state.save(
        msgspec.msgpack.encode(
            msgspec.structs.replace(
                checkpoint, durable=cut, indexed=min(cut, checkpoint.indexed), holes=((0, 1),)
            )
        )
    )
    base = max(int(name[4:]) for name in disk.names("log") if int(name[4:]) <= cut)
    for name in disk.names("log"):
        if int(name[4:]) > base:
            disk.remove(name)
    with opened(disk, segment_name(base)) as file:
        file.truncate(cut - base)
    assert any("the queue ends at 50, its messages at 40" in sentence for sentence in sentences(disk))


def _salt(disk: MemoryDisk) -> int:
    layout = load_layout(disk)
    assert layout is not None
    return layout.salt


def test_without_a_checkpoint_a_topic_that_was_made_again_is_told_from_its_past() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for queue_id in (0, 1, 0, 1, 2):
        put(store, b"old", queue_id=queue_id)
    store.delete_topic("T")
    put(store, b"other", topic="U")
    for number in range(4):
        put(store, b"new %d" % number, queue_id=number % 2, key=f"k{number}")
    store.close()
    for name in disk.names("state"):
        disk.remove(name)
    assert "made again" in " ".join(mend(disk))
    assert sentences(disk) == []
    store = open_store(disk)
    assert [bodies(store, queue_id=queue_id) for queue_id in (0, 1)] == [
        [b"new 0", b"new 2"],
        [b"new 1", b"new 3"],
    ]
    assert bodies(store, topic="U") == [b"other"]
    assert [one.body for one in store.query_by_key("T", "k3", 9)] == [b"new 3"]
    put(store, b"new 4")
    store.close()
    assert sentences(disk) == []


def test_a_message_of_the_new_topic_that_came_before_its_past_was_noticed_is_kept() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    put(store, b"old", queue_id=0)
    store.delete_topic("T")
    put(store, b"new 1", queue_id=1)
    put(store, b"new 0", queue_id=0)
    store.close()
    for name in disk.names("state"):
        disk.remove(name)
    mend(disk)
    assert sentences(disk) == []
    store = open_store(disk)
    assert [bodies(store, queue_id=queue_id) for queue_id in (0, 1)] == [[b"new 0"], [b"new 1"]]


def test_random_damage_is_mended_so_that_nothing_is_left_to_find() -> None:
    seed = Random().randrange(1 << 32)
    chance = Random(seed)
    for _ in range(60):
        try:
            damage_and_mend(chance)
        except BaseException as exc:
            exc.add_note(f"seed {seed}")
            raise


def damage_and_mend(chance: Random) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(chance.randrange(20, 200)):
        put(store, b"%d" % number, topic=chance.choice("AB"), queue_id=number % 2, key=f"k{number}")
        if chance.random() < 0.03:
            store.delete_topic("A")
    store.close()
    for _ in range(chance.randrange(1, 4)):
        data = disk._files[chance.choice([name for name in disk._files if name != "LAYOUT"])]
        if chance.random() < 0.5:
            del data[chance.randrange(len(data) + 1) :]
        elif data:
            data[chance.randrange(len(data))] ^= 1
    mend(disk)
    assert [str(finding) for finding in verify(disk) if not finding.harmless] == []
    store = open_store(disk)
    put(store, topic="A")
    put(store, topic="B")
    store.close()
    assert [str(finding) for finding in verify(disk) if not finding.harmless] == []
