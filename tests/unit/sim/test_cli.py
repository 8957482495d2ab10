"""`trimtab sim` on the command line."""

import json

import pytest
from click.testing import CliRunner, Result

from trimtab.cli.main import main
from trimtab.sim import swarm
from trimtab.sim.broker import Granted, SimBroker
from trimtab.sim.scenarios import SCENARIOS


def sim(*words: str) -> Result:
    return CliRunner().invoke(main, ["sim", *words])


def test_a_run_as_json_has_the_names_of_the_metrics() -> None:
    answer = sim("run", "join", "--members", "3", "--queues", "9", "--json")
    assert answer.exit_code == 0
    report = json.loads(answer.stdout)
    assert {
        "moved",
        "moved_min",
        "max_mean",
        "double_held_s",
        "unheld_s",
        "delivered_twice",
        "lost",
        "idle",
        "t_detect_s",
        "t_converge_s",
        "t_first_s",
    } <= set(report)
    assert (report["scenario"], report["members"], report["queues"], report["lost"]) == ("join", 3, 9, 0)


def test_who_is_idle_and_how_soon_a_change_is_seen_are_in_the_report() -> None:
    """peers 3.5: `idle`, `t_detect`, `t_converge`, `t_first`."""
    report = json.loads(sim("run", "more-members-than-queues", "--json").stdout)
    assert report["idle"] > 0
    assert json.loads(sim("run", "join", "--json").stdout)["idle"] == 0
    crashed = json.loads(sim("run", "crash", "--json").stdout)
    left = json.loads(sim("run", "leave", "--json").stdout)
    assert 0 < left["t_detect_s"] <= left["t_converge_s"] < crashed["t_detect_s"] <= crashed["t_converge_s"]
    assert 0 < left["t_first_s"] < 10


def test_a_run_for_people_ends_with_the_digest_of_its_trace() -> None:
    first, second = sim("run", "leave"), sim("run", "leave")
    assert "digest:" in first.stdout
    assert first.stdout == second.stdout


def test_the_run_of_a_swarm_seed_can_be_seen_again() -> None:
    assert json.loads(sim("run", "--seed", "5", "--json").stdout)["digest"] == swarm.run_seed(5).digest


def test_compare_has_a_row_for_every_mode_and_strategy() -> None:
    lines = sim("compare", "join").stdout.splitlines()
    assert lines[0].split()[:4] == ["mode", "strategy", "moved", "moved/min"]
    assert {tuple(line.split()[:2]) for line in lines[1:]} >= {
        ("classic", "AVG"),
        ("leased", "sticky"),
        ("leased", "lag"),
    }


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_comparison_with_a_broken_promise_fails_and_says_whose_it_is(
    monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    monkeypatch.setattr(SimBroker, "lock", lambda _, __, queues: Granted(list(queues), {}))
    answer = sim("compare", "join", "--members", "2", "--queues", "4", *form)
    assert answer.exit_code == 1
    assert "is held twice" in answer.stdout
    assert form or "broken by leased sticky: after" in answer.stdout


def test_all_scenarios_are_listed() -> None:
    names = [row["name"] for row in json.loads(sim("list", "--json").stdout)]
    assert names == list(SCENARIOS)


def test_a_swarm_without_a_broken_promise_ends_well() -> None:
    answer = sim("swarm", "--seeds", "2")
    assert (answer.exit_code, "0 broke a promise" in answer.stdout) == (0, True)


def test_a_swarm_with_a_broken_promise_fails_names_the_seed_and_makes_it_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SimBroker, "lock", lambda _, __, queues: Granted(list(queues), {}))
    answer = sim("swarm", "--seeds", "1")
    assert answer.exit_code == 1
    assert "trimtab sim run --seed 0" in answer.stdout
    assert "is held twice" in answer.stdout
    assert "seed 0 made small: 2 members" in answer.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run", "joins"), "did you mean 'join'"),
        (("run", "join", "--strategy", "stiky"), "did you mean 'sticky'"),
        (("run", "join", "--mode", "classic", "--strategy", "sticky"), "needs leases"),
        (("run", "join", "--queues", "1", "--brokers", "3"), "cannot be on 3 brokers"),
        (("run", "--members", "5"), "leave --members out, or name a scenario"),
        (("run", "--mode", "classic", "--seed", "3"), "leave --mode out"),
        (("run", "--broker-kind", "apache"), "leave --broker-kind out"),
        (("run", "--rate", "0"), "leave --rate out"),
        (("run", "--handler-ms", "5"), "leave --handler-ms out"),
        (("run", "--new-ids"), "leave --stable-ids out"),
        (("compare", "nothing"), "unknown scenario"),
    ],
)  # fmt: skip
def test_bad_input_is_named(words: tuple[str, ...], text: str) -> None:
    answer = sim(*words)
    assert answer.exit_code not in (0, 1)
    assert text in answer.output


@pytest.mark.parametrize("words", [("run", "join", "--members", "x"), ("swarm", "--seeds", "0")])
def test_numbers_are_numbers(words: tuple[str, ...]) -> None:
    assert sim(*words).exit_code == 2
