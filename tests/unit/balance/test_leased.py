"""Leased handover: nobody holds a queue twice, whatever happens, and everything is held again soon."""

import pytest

from tests.unit.balance.leased_world import World
from trimtab.balance.leased_effects import Happened
from trimtab.balance.recorder import Kind


def settled(world: World, ms: int = 3_000) -> World:
    world.run(ms)
    assert world.is_balanced(), world.holdings()
    return world


def group_of(count: int, seed: int = 0, *, is_stable: bool = False, queues: int = 16) -> World:
    world = World(seed, queues=queues)
    for number in range(count):
        world.join(f"m{number}", is_stable=is_stable)
        world.run(200)
    return settled(world, 5_000)


def test_members_that_join_share_evenly() -> None:
    assert sorted(group_of(3).holdings().values()) == [5, 5, 6]


def test_a_join_moves_only_what_the_newcomer_gets() -> None:
    world = group_of(4)
    before = world.moves
    world.join("newcomer")
    settled(world)
    assert world.moves - before <= 4


def test_a_leave_moves_only_what_the_leaver_had() -> None:
    world = group_of(4)
    before = world.moves
    world.members["m1"].stop()
    settled(world)
    assert world.moves - before == 4


def test_a_handover_leaves_a_queue_unheld_for_the_handler_and_a_moment() -> None:
    world = group_of(4)
    world.join("newcomer")
    settled(world)
    taken = [
        (at, effect.queue)
        for at, effect in world.members["newcomer"].events
        if isinstance(effect, Happened) and effect.kind is Kind.ACQUIRED
    ]
    given = {
        effect.queue: at
        for member in world.members.values()
        for at, effect in member.events
        if isinstance(effect, Happened) and effect.kind is Kind.DRAINING
    }
    assert taken
    assert max(at - given[queue] for at, queue in taken) <= 30 + 300


def test_a_crash_is_taken_over_when_the_dead_one_must_have_stopped() -> None:
    world = group_of(4)
    world.members["m2"].crash()
    world.run(8_000)
    assert sum(world.holdings().values()) == 12
    settled(world, 4_000)


def test_a_crash_is_taken_over_by_a_newcomer_that_never_saw_the_dead_one() -> None:
    """The others have all that they should have, and the one that needs the queues cannot prove who is absent."""
    world = group_of(4)
    world.members["m2"].crash()
    world.run(1_000)
    world.join("newcomer")
    settled(world, 12_000)


def test_a_stopped_process_that_wakes_up_finds_itself_fenced() -> None:
    world = group_of(4)
    sleeper = world.members["m2"]
    sleeper.pause(90_000)
    world.run(90_000)
    mine = sleeper.machine.held()
    assert len(mine) == 4
    assert not any(sleeper.machine.may_hand_out(queue, world.now_ms) for queue in mine), (
        "checked before a message"
    )
    settled(world, 10_000)


def test_a_rolling_restart_with_stable_ids_moves_nothing() -> None:
    world = group_of(8, is_stable=True)
    before = dict(world.holder)
    for number in range(8):
        world.run(12_000)  # the others have not looked for a while
        world.members[f"m{number}"].stop()
        world.run(1_500)
        world.join(f"m{number}", is_stable=True)
        world.run(5_000)
    settled(world)
    assert world.holder == before


def test_a_broker_that_restarts_and_forgets_all_leases_moves_nothing() -> None:
    world = group_of(4)
    before = dict(world.holder)
    world.restart(world.brokers["broker-0"], 2_000)
    settled(world, 12_000)
    assert world.holder == before


def test_more_members_than_queues_leave_the_rest_idle() -> None:
    world = group_of(6, queues=4)
    assert sorted(world.holdings().values()) == [0, 0, 1, 1, 1, 1]
    holder = next(name for name, count in world.holdings().items() if count)
    world.members[holder].stop()
    settled(world, 5_000)


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_nobody_holds_a_queue_twice_and_all_are_held_in_the_end(seed: int) -> None:
    world = World(seed, queues=12, brokers=2, delay_ms_max=300)
    chance = world.chance
    for number in range(4):
        world.join(f"m{number}", is_stable=chance.random() < 0.3)
    for step in range(25):
        world.run(chance.randrange(4_000))
        alive = [member for member in world.members.values() if member.is_alive]
        member = chance.choice(alive)
        event = chance.choice(["join", "stop", "crash", "pause", "restart", "cut", "back"])
        if event == "join" and len(alive) < 8:
            world.join(f"n{step}")
        elif event in ("stop", "crash") and sum(not one.is_leaving for one in alive) > 2:
            member.stop() if event == "stop" else member.crash()
        elif event == "pause":
            member.pause(chance.choice([500, 5_000, 20_000, 70_000]))
        elif event == "restart":
            world.restart(world.brokers[chance.choice(sorted(world.brokers))], chance.randrange(100, 6_000))
        elif event == "cut":
            member.cut.add(chance.choice(sorted(world.brokers)))
        else:
            member.cut.clear()
    for member in world.members.values():
        member.cut.clear()
    world.run(150_000)
    assert world.is_balanced(), world.holdings()
