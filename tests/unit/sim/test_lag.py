"""Issue 7, `lag`: bounded moves for the whole group, less lag than with others, calm in a steady state, quiet in a restart."""

import os

import pytest

from trimtab.sim import SimReport, run

SEEDS = range(20 if os.environ.get("TRIMTAB_FULL") == "1" else 4)
EVEN = 1.25
HOURS = 24 if os.environ.get("TRIMTAB_FULL") == "1" else 2


@pytest.mark.parametrize("broker_kind", ["apache", "ours"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_group_makes_no_more_moves_in_a_round_than_are_allowed(seed: int, broker_kind: str) -> None:
    report = run("hot-queue", strategy="lag", seed=seed, broker_kind=broker_kind)
    assert report.violations == ()
    assert report.moved > 0 or (report.lag_max_mean or 0) < EVEN, "where load is even by chance nothing moves"
    assert report.moves_in_10_s_max <= 2


@pytest.mark.parametrize("broker_kind", ["apache", "ours"])
@pytest.mark.parametrize("strategy", ["lag", "sticky"])
def test_a_rolling_restart_with_stable_ids_moves_nothing(strategy: str, broker_kind: str) -> None:
    report = run("rolling-restart", strategy=strategy, seed=1, broker_kind=broker_kind)
    assert (report.moved, report.delivered_twice) == (0, 0)


def with_others(scenario: str, seed: int) -> tuple[SimReport, SimReport, SimReport]:
    by_lag, by_number, by_pages = (
        run(scenario, strategy=name, seed=seed) for name in ("lag", "sticky", "AVG")
    )
    return by_lag, by_number, by_pages


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pile_in_some_queues_is_worked_off_sooner_and_spread_better_than_by_avg_and_sticky(
    seed: int,
) -> None:
    by_lag, *others = with_others("hot-queue", seed)
    for other in others:
        assert (by_lag.drain_s or 0) < 0.8 * (other.drain_s or 0)
        assert (by_lag.lag_max_mean or 0) < 0.8 * (other.lag_max_mean or 0)


def test_slow_members_get_less_and_the_pile_is_worked_off_sooner_than_by_avg_and_sticky() -> None:
    by_lag, *others = with_others("uneven-members", 0)
    for other in others:
        assert (by_lag.drain_s or 0) < 0.6 * (other.drain_s or 0)
        assert (by_lag.lag_max_mean or 0) < (other.lag_max_mean or 0)
    assert by_lag.moves_in_10_s_max <= 2


def test_nothing_moves_in_a_steady_state_for_a_day() -> None:
    report = run("steady", strategy="lag", members=4, queues=16, hours=HOURS)
    assert report.violations == ()
    assert report.simulated_s >= HOURS * 3600
    assert report.moved == 0


@pytest.mark.parametrize(("scenario", "seed"), [("join", 1), ("leave", 2), ("join", 3), ("leave", 4)])
def test_on_brokers_of_ours_sticky_makes_exactly_the_fewest_moves(scenario: str, seed: int) -> None:
    report = run(scenario, members=6, queues=44, seed=seed, broker_kind="ours")
    assert report.moved == report.moved_min
    assert report.t_converge_s < 2
