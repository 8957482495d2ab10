"""The real servers and clients on virtual time: what users run keeps the promises that its machines make."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.balance.holdings import Holding
from trimtab.balance.leased import LeasedRebalance
from trimtab.sim.shells import Stage, StageReport, run_on_stage
from trimtab.sim.shells.stage import Player

ROOT = Path(__file__).parents[3]


async def group_of(stage: Stage, count: int, mode: str = "leased") -> list[Player]:
    members = [await stage.join(mode=mode) for _ in range(count)]
    await stage.settle()
    await stage.sleep(5)
    return members


def nothing_is_broken(report: StageReport) -> bool:
    assert report.violations == ()
    assert report.lost == 0
    return report.delivered >= report.sent > 0


# --- planned changes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("broker_kind", "minutes"), [("ours", 30), ("apache", 10)])
def test_members_that_come_and_go_for_long_deliver_nothing_twice(broker_kind: str, minutes: int) -> None:
    async def play(stage: Stage) -> None:
        await group_of(stage, 3)
        for turn in range(12):
            await stage.sleep(minutes * 5)
            if turn % 2:
                await stage.join()
            else:
                await stage.leave(stage.members[turn % len(stage.members)])
            await stage.settle(10)

    report = run_on_stage(play, seed=3, brokers=1, queues=4, per_s=2.0, broker_kind=broker_kind)
    assert nothing_is_broken(report)
    assert report.simulated_s >= minutes * 60
    assert (report.delivered_twice, report.held_twice) == (0, 0)


def test_a_rolling_restart_with_stable_ids_moves_nothing() -> None:
    async def play(stage: Stage) -> None:
        for number in range(3):
            await stage.join(client_id=f"billing-{number}")
        await stage.settle()
        before = stage.ledger.shares(with_retries=True)
        for number in range(3):
            await stage.leave(stage.members[0])
            await stage.sleep(1)
            await stage.join(client_id=f"billing-{number}")
            await stage.settle()
        assert sorted(before.values()) == sorted(stage.ledger.shares(with_retries=True).values())

    report = run_on_stage(play, seed=1)
    assert nothing_is_broken(report)
    assert report.delivered_twice == 0


@pytest.mark.parametrize("mode", ["leased", "classic"])
def test_the_end_waits_once_for_a_handler_that_hangs(mode: str) -> None:
    waited_s: list[float] = []

    async def play(stage: Stage) -> None:
        (member,) = await group_of(stage, 1, mode)
        began_s = stage.passed_s
        await stage.leave(member)
        waited_s.append(stage.passed_s - began_s)

    run_on_stage(play, seed=1, handler_s=3_600.0)
    assert 29 < waited_s[0] < 35, "30 s are given to handlers"


def test_classic_mode_loses_nothing_and_settles() -> None:
    async def play(stage: Stage) -> None:
        members = await group_of(stage, 3, mode="classic")
        await stage.leave(members[0])
        await stage.settle()
        stage.crash(members[1])
        await stage.settle()
        await stage.join(mode="classic")
        await stage.settle()

    report = run_on_stage(play, seed=2)
    assert report.lost == 0


# --- accidents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("broker_kind", "at_most_s"), [("ours", 5), ("apache", 15)])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_crash_is_taken_over_in_time(broker_kind: str, at_most_s: int, comes_back: bool) -> None:
    took_s = 0.0

    async def play(stage: Stage) -> None:
        nonlocal took_s
        members = await group_of(stage, 3)
        stage.crash(members[1])
        if comes_back:
            await stage.sleep(1)
            await stage.join()
        took_s = await stage.settle()

    report = run_on_stage(play, seed=5, broker_kind=broker_kind)
    assert nothing_is_broken(report)
    assert took_s <= at_most_s
    assert report.held_twice == 0
    finished_in_half_a_second = 20 * 0.5
    assert report.delivered_twice <= finished_in_half_a_second + 5


def test_a_machine_that_vanishes_is_missed_after_two_minutes() -> None:
    took_s = 0.0

    async def play(stage: Stage) -> None:
        nonlocal took_s
        members = await group_of(stage, 2)
        stage.crash(members[0], is_silent=True)
        took_s = await stage.settle(200)

    assert nothing_is_broken(run_on_stage(play, seed=6, brokers=1, per_s=5.0))
    assert 90 < took_s < 160


def handled_by(stage: Stage, name: str) -> int:
    return sum(f"{name}: handles" in line for line in stage.ledger.lines)


def slept(pause_s: float, *, is_taken_over: bool) -> StageReport:
    async def play(stage: Stage) -> None:
        members = await group_of(stage, 3)
        stage.pause(members[0])
        await stage.sleep(pause_s)
        assert stage.ledger.shares(with_retries=False)[members[0].name] == 0
        held = sum(stage.ledger.shares(with_retries=False).values())
        assert (held == 16) is is_taken_over
        stage.go_on(members[0])
        await stage.settle()
        await stage.sleep(10)
        assert handled_by(stage, members[0].name) > 0

    return run_on_stage(play, seed=7)


@pytest.mark.parametrize(("pause_s", "is_taken_over"), [(90, False), (180, True)])
def test_a_member_that_stood_still_hands_out_nothing_that_is_not_its_own(
    pause_s: float, is_taken_over: bool
) -> None:
    """For 90 s it is listed, and nobody takes its queues; after 120 s brokers miss it and the others do."""
    assert nothing_is_broken(slept(pause_s, is_taken_over=is_taken_over))


def test_a_member_and_a_broker_that_do_not_find_each_other_for_a_while() -> None:
    async def play(stage: Stage) -> None:
        members = await group_of(stage, 3)
        stage.network.part(members[0].process, stage.brokers["broker-0"], 30.0)
        await stage.sleep(35)
        await stage.settle()

    assert nothing_is_broken(run_on_stage(play, seed=8))


def test_cut_connections_are_made_again() -> None:
    async def play(stage: Stage) -> None:
        members = await group_of(stage, 3)
        for member in members:
            assert stage.network.cut(member.process, stage.brokers["broker-1"])
            await stage.sleep(0.5)
        await stage.settle()

    assert nothing_is_broken(run_on_stage(play, seed=9))


def test_a_broker_that_is_killed_comes_back_with_everything() -> None:
    async def play(stage: Stage) -> None:
        await group_of(stage, 3)
        stage.kill(stage.brokers["broker-0"])
        await stage.sleep(3)
        await stage.start_broker("broker-0")
        await stage.sleep(20)
        await stage.settle()

    assert nothing_is_broken(run_on_stage(play, seed=10))


# --- one seed is one run -------------------------------------------------------------------------------------


async def a_bit_of_everything(stage: Stage) -> None:
    members = await group_of(stage, 3)
    stage.crash(members[0])
    await stage.join()
    stage.network.cut(members[1].process, stage.brokers["broker-0"])
    await stage.sleep(15)
    await stage.leave(members[2])
    await stage.settle()


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = (run_on_stage(a_bit_of_everything, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.digest != other.digest


def test_a_trace_is_the_same_in_another_process_and_under_any_hash_seed() -> None:
    code = "from tests.unit.sim.test_shells import *; print(run_on_stage(a_bit_of_everything, seed=4).digest)"
    traces = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT,
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(traces) == 1


# --- the checks checked --------------------------------------------------------------------------------------


def test_a_member_that_does_not_look_at_its_lease_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holding, "may_hand_out", lambda *_: True)
    monkeypatch.setattr(LeasedRebalance, "_fences", lambda *_: [])
    report = slept(180, is_taken_over=True)
    assert any("is held twice" in broken for broken in report.violations)
