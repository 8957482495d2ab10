import pytest

from trimtab.broker.store.progress import StateFile, StateStatus
from trimtab.io.disk import MemoryDisk, opened


def test_nothing_saved_is_absent() -> None:
    assert StateFile(MemoryDisk(), "offsets").load() == (StateStatus.ABSENT, None, "")


def test_the_last_one_saved_is_loaded() -> None:
    disk = MemoryDisk()
    state = StateFile(disk, "offsets")
    for data in (b"one", b"two", b"", b"four"):
        state.save(data)
        assert StateFile(disk, "offsets").load() == (StateStatus.OK, data, "")
    assert disk.names("state") == ["state/offsets.a", "state/offsets.b"]


def test_a_new_object_goes_on_where_the_old_one_ended() -> None:
    disk = MemoryDisk()
    for data in (b"one", b"two", b"three"):
        StateFile(disk, "offsets").save(data)
    assert StateFile(disk, "offsets").load().data == b"three"


@pytest.mark.parametrize("rotten", ["a", "b"])
@pytest.mark.parametrize("how", ["flip", "empty", "remove"])
def test_a_rotten_generation_falls_back_and_says_so(rotten: str, how: str) -> None:
    disk = MemoryDisk()
    state = StateFile(disk, "offsets")
    for data in (b"one", b"two", b"three"):
        state.save(data)
    name = f"state/offsets.{rotten}"
    if how == "remove":
        disk.remove(name)
    else:
        with opened(disk, name) as file:
            file.pwrite(b"!", 25) if how == "flip" else file.truncate(0)
    loaded = StateFile(disk, "offsets").load()
    assert loaded.status is StateStatus.PREVIOUS
    assert loaded.data == (b"two" if rotten == "b" else b"three")
    assert name in loaded.note


def test_both_rotten_is_damaged() -> None:
    disk = MemoryDisk()
    state = StateFile(disk, "offsets")
    state.save(b"one")
    with opened(disk, "state/offsets.b") as file:
        file.truncate(3)
    loaded = StateFile(disk, "offsets").load()
    assert loaded.status is StateStatus.DAMAGED
    assert loaded.data is None
    assert "both generations" in loaded.note


def test_a_file_of_another_state_does_not_fit() -> None:
    disk = MemoryDisk()
    StateFile(disk, "topics").save(b"t")
    disk.rename("state/topics.b", "state/groups.b")
    assert StateFile(disk, "groups").load().status is StateStatus.DAMAGED
