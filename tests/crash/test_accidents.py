"""What people and file systems do to files: each case is refused with a sentence that says which file, or is mended."""

from collections.abc import Callable
from random import Random

import pytest

from tests.crash.images import SETTINGS, Sents, make_store, send, show
from trimtab.broker.store import (
    ReadStatus,
    StateStatus,
    Store,
    StoreDamagedError,
    StoreError,
    StoreLayoutError,
)
from trimtab.broker.store.scrub import verify
from trimtab.io.disk import DiskLockedError
from trimtab.sim.disk import SimDisk

Image = dict[str, bytes]


def closed_store(*, seed: int = 1, messages: int = 60) -> tuple[SimDisk, Image, Sents]:
    disk = SimDisk(Random(seed))
    store, sents = make_store(disk, messages=messages)
    store.close()
    return disk, disk.image(), sents


def segments(image: Image) -> list[str]:
    return sorted(name for name in image if name.startswith("log/"))


def reopen(disk: SimDisk, image: Image, *, rebuild: bool = False) -> Store:
    disk.load(image)
    return Store.open(disk, SETTINGS, chance=Random(1), rebuild=rebuild)


def assert_all_there(store: Store, sents: Sents) -> None:
    for (topic, queue_id), sent in sents.items():
        assert store.max_offset(topic, queue_id) == len(sent)
        for offset, message in enumerate(sent):
            assert show(store, topic, queue_id, offset) == message.body


def swap(image: Image, one: str, other: str) -> None:
    image[one], image[other] = image[other], image[one]


def without_a_segment(image: Image) -> str:
    del image[segments(image)[1]]
    return segments(image)[0]


def without_the_first_segment(image: Image) -> str:
    first = segments(image)[0]
    del image[first]
    return first


def without_the_last_segment(image: Image) -> str:
    del image[segments(image)[-1]]
    return segments(image)[-1]


def with_a_short_segment(image: Image) -> str:
    name = segments(image)[1]
    image[name] = image[name][:-1]
    return name


def with_a_short_last_segment(image: Image) -> str:
    name = segments(image)[-1]
    image[name] = image[name][:-1]
    return name


def with_an_empty_segment(image: Image) -> str:
    name = segments(image)[2]
    image[name] = b""
    return name


def with_swapped_segments(image: Image) -> str:
    swap(image, segments(image)[0], segments(image)[1])
    return segments(image)[0]


def with_a_duplicate_segment(image: Image) -> str:
    image[segments(image)[1]] = image[segments(image)[0]]
    return segments(image)[1]


def without_a_queue_file(image: Image) -> str:
    name = next(name for name in image if name.startswith("queues/"))
    del image[name]
    return name


@pytest.mark.parametrize(
    "happens",
    [
        without_a_segment,
        without_the_first_segment,
        without_the_last_segment,
        with_a_short_segment,
        with_a_short_last_segment,
        with_an_empty_segment,
        with_swapped_segments,
        with_a_duplicate_segment,
        without_a_queue_file,
    ],
)
def test_a_file_that_is_missing_cut_or_exchanged_is_named_and_nothing_is_changed(
    happens: Callable[[Image], str],
) -> None:
    disk, image, _ = closed_store()
    damaged = dict(image)
    name = happens(damaged)
    with pytest.raises(StoreDamagedError) as caught:
        reopen(disk, damaged)
    assert caught.value.file == name or name in str(caught.value)
    assert "backup" in caught.value.advice or "rebuild" in caught.value.advice
    log_after = {name: data for name, data in disk.image().items() if name.startswith("log/")}
    assert log_after == {name: data for name, data in damaged.items() if name.startswith("log/")}


def test_a_segment_of_another_store_is_noticed() -> None:
    disk, image, _ = closed_store()
    other = SimDisk(Random(1))
    store = Store.open(other, SETTINGS, chance=Random(99))
    chance = Random(1)
    for number in range(60):
        send(store, {}, number, chance)
        if number % 3 == 2:
            store.write()
    store.close()
    image[segments(image)[1]] = other.image()[segments(image)[1]]
    disk.load(image)
    assert verify(disk), "every frame carries the store's own number"


def test_swapped_queue_files_are_noticed_when_they_are_read() -> None:
    disk, image, _ = closed_store()
    names = [name for name in image if name.startswith("queues/")]
    swap(image, names[0], names[1])
    store = reopen(disk, image)
    with pytest.raises(StoreDamagedError, match=names[0]):
        store.read("alpha", 0, 0, messages_max=1, bytes_max=1)
    assert {finding.file for finding in verify(_closed(store, disk))} >= set(names[:2])


def _closed(store: Store, disk: SimDisk) -> SimDisk:
    store.close()
    return disk


def test_a_damaged_queue_file_is_rebuilt_from_the_log() -> None:
    disk, image, sents = closed_store()
    for name in [name for name in image if name.startswith(("queues/", "index/"))]:
        del image[name]
    store = reopen(disk, image, rebuild=True)
    assert_all_there(store, sents)
    assert store.query_by_key("alpha", "key0", 3)[0].body == sents["alpha", 0][0].body
    store.close()
    assert verify(disk) == []
    store = Store.open(disk, SETTINGS)
    assert_all_there(store, sents)


@pytest.mark.parametrize("slots", ["a", "b"])
def test_one_lost_checkpoint_is_replaced_by_the_one_before(slots: str) -> None:
    disk, image, sents = closed_store()
    image[f"state/checkpoint.{slots}"] = b""
    store = reopen(disk, image)
    assert_all_there(store, sents)
    assert any("checkpoint" in sentence for sentence in store.report)
    store.close()
    assert verify(disk) == []


def test_without_any_checkpoint_only_a_rebuild_opens_the_store() -> None:
    disk, image, sents = closed_store()
    image["state/checkpoint.a"] = image["state/checkpoint.b"] = b"\0" * 100
    with pytest.raises(StoreDamagedError, match="rebuild"):
        reopen(disk, image)
    store = reopen(disk, image, rebuild=True)
    assert_all_there(store, sents)
    store.close()
    assert verify(disk) == []


def test_a_lost_segment_leaves_a_hole_and_the_rest_goes_on_after_a_rebuild() -> None:
    disk, image, sents = closed_store()
    lost = segments(image)[1]
    begin, end = int(lost[4:]), int(segments(image)[2][4:])
    del image[lost]
    store = reopen(disk, image, rebuild=True)
    assert any("passed over" in sentence for sentence in store.report)
    for (topic, queue_id), sent in sents.items():
        assert store.max_offset(topic, queue_id) == len(sent)
        for offset, message in enumerate(sent):
            result = store.read(topic, queue_id, offset, messages_max=1, bytes_max=1)
            if begin <= message.physical_offset < end:
                assert result.status is not ReadStatus.FOUND or result.next_offset > offset + 1
            else:
                assert show(store, topic, queue_id, offset) == message.body
    store.close()
    assert all(finding.harmless for finding in verify(disk))
    store = Store.open(disk, SETTINGS)
    send(store, sents, 60, Random(1))
    store.write()
    assert show(store, "alpha", 0, len(sents["alpha", 0]) - 1) == sents["alpha", 0][-1].body


def test_offsets_whose_messages_are_lost_are_not_given_out_again() -> None:
    disk, image, sents = closed_store()
    del image[segments(image)[-1]]
    store = reopen(disk, image, rebuild=True)
    for key, sent in sents.items():
        assert store.max_offset(*key) == len(sent)
    before = len(sents["alpha", 0])
    send(store, sents, 60, Random(1))
    store.write()
    assert show(store, "alpha", 0, before) == sents["alpha", 0][before].body


def test_another_layout_is_refused() -> None:
    disk, image, _ = closed_store()
    image["LAYOUT"] = image["LAYOUT"].replace(b'"layout":1', b'"layout":2')
    with pytest.raises(StoreLayoutError, match="version 2"):
        reopen(disk, image)


def test_a_log_without_a_layout_is_refused() -> None:
    disk, image, _ = closed_store()
    del image["LAYOUT"]
    with pytest.raises(StoreLayoutError, match="no LAYOUT"):
        reopen(disk, image)


def test_empty_state_files_say_that_they_are_damaged() -> None:
    disk, image, _ = closed_store()
    image["state/progress.a"] = image["state/progress.b"] = b""
    store = reopen(disk, image)
    assert store.load_state("progress").status is StateStatus.DAMAGED
    assert store.load_state("never").status is StateStatus.ABSENT


def test_an_older_state_file_does_not_pass_for_the_newest() -> None:
    disk, image, _ = closed_store()
    image["state/progress.b"] = image["state/progress.a"]
    store = reopen(disk, image)
    assert store.load_state("progress").status is StateStatus.PREVIOUS


def test_two_stores_cannot_have_one_directory() -> None:
    disk, image, _ = closed_store()
    reopen(disk, image)
    with pytest.raises(DiskLockedError):
        Store.open(disk, SETTINGS)


def test_a_refused_start_can_be_tried_again() -> None:
    disk, image, sents = closed_store()
    broken = dict(image)
    with_a_short_segment(broken)
    for _ in range(2):
        with pytest.raises(StoreError):
            reopen(disk, broken)
    assert_all_there(reopen(disk, image), sents)


def test_the_rest_of_a_failed_write_at_the_end_of_a_segment_is_passed_over() -> None:
    """Found by seed 303633: the write failed, its truncation was lost, and the log had gone on in the next segment."""
    disk, image, sents = closed_store()
    image[segments(image)[1]] += b"trim and what else was to be written"
    store = reopen(disk, image)
    assert_all_there(store, sents)
    store.close()
    assert verify(disk) == []
    assert_all_there(reopen(disk, disk.image(), rebuild=True), sents)
