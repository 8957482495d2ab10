"""Small states that rot: the one before is used and said so, and without any the broker does not start."""

import random

import pytest

from tests.unit.broker.driver import Driver
from trimtab.broker.store import StoreDamagedError
from trimtab.sim.disk import SimDisk


def disk_with_states() -> SimDisk:
    """What two runs left, so that each state has two generations."""
    disk = SimDisk(random.Random(1))
    for _ in range(2):
        broker = Driver(disk=disk)
        core = broker.core
        client = broker.connect()
        client.send("T", n="1")
        core.find_or_create_group("G", broker.now)
        core.topics_changed()
        core.states.save_groups(core.groups.snapshot())
        core.offsets.commit("G", "T", 0, 1)
        broker.advance(60_000, 1_000)
        broker.stop()
    return disk


def damaged(disk: SimDisk, *names: str) -> SimDisk:
    image = disk.image()
    for name in names:
        assert name in image, sorted(image)
        image[name] = b"\x00" + image[name][1:]
    disk.load(image)
    return disk


@pytest.mark.parametrize("state", ["topics", "groups", "offsets"])
def test_a_broker_whose_state_cannot_be_read_does_not_start_and_names_file_and_remedy(state: str) -> None:
    disk = damaged(disk_with_states(), f"state/{state}.a", f"state/{state}.b")
    with pytest.raises(StoreDamagedError, match=rf"state/{state}\.a .*trimtab store rebuild"):
        Driver(disk=disk)


@pytest.mark.parametrize("slot", ["a", "b"])
def test_one_rotten_generation_is_replaced_by_the_other_and_said_so(slot: str) -> None:
    disk = damaged(disk_with_states(), f"state/offsets.{slot}")
    core = Driver(disk=disk).core
    assert core.offsets.get("G", "T", 0) == 1
    (note,) = core.states.notes
    assert f"state/offsets.{slot} is damaged" in note


def test_nothing_is_said_when_all_is_well() -> None:
    assert Driver(disk=disk_with_states()).core.states.notes == []
