"""`trimtab sim`: a group, its brokers and the network between them on virtual time, with the balance code that clients run."""

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.amounts import Amount
from trimtab.cli.suggesting import Suggesting

if TYPE_CHECKING:
    from trimtab.sim import SimReport

COMPARED = (
    ("classic", "AVG"), ("classic", "AVG_BY_CIRCLE"), ("classic", "CONSISTENT_HASH"), ("classic", "rendezvous"),
    ("leased", "AVG"), ("leased", "sticky"), ("leased", "lag"),
)  # fmt: skip
TITLES = (
    "mode", "strategy", "moved", "moved/min", "max/mean", "idle", "double_held s", "unheld s", "twice", "lost", "t_detect s", "t_converge s", "t_first s", "requests/member"
)  # fmt: skip
LOAD_TITLES = ("lag max/mean", "drain s", "moves in 10 s")


@click.group(cls=Suggesting)
def sim() -> None:
    """Play what happens to a group on virtual time: one seed is one run."""


def _world_options(command: Any) -> Any:
    """The options that say what the world is made of; without them the scenario says so."""
    for option in (
        click.option("--members", type=click.IntRange(2), help="Members at the beginning."),
        click.option("--queues", type=click.IntRange(1), help="Queues of the topic, on all brokers together."),
        click.option("--brokers", type=click.IntRange(1)),
        click.option("--broker-kind", type=click.Choice(["apache", "ours"]), default="apache", show_default=True),
        click.option("--handler-ms", type=click.IntRange(1), help="How long a handler takes for a message."),
        click.option("--rate", "per_s", type=Amount(0), help="Messages a second and queue."),
        click.option("--hours", type=Amount(0, min_open=True), help="For scenarios that go on for long."),
        click.option("--stable-ids/--new-ids", "stable_ids", default=None, help="Whether a restarted member has its old id."),
        click.option("--seed", type=int, default=0, show_default=True),
        click.option("--json", "as_json", is_flag=True, help="One JSON document."),
    ):  # fmt: skip
        command = option(command)
    return command


@sim.command(
    name="run",
    epilog="""\b
Examples:
  trimtab sim run join
  trimtab sim run rolling-restart --members 8 --mode classic --json
  trimtab sim run --seed 4711              the run of a swarm's seed again""",
)
@click.argument("scenario", default="swarm")
@click.option("--mode", type=click.Choice(["leased", "classic"]), default="leased", show_default=True)
@click.option("--strategy", help="sticky, lag, AVG and so on; the mode's own, if none is given.")
@_world_options
def run_one(scenario: str, *, as_json: bool, **options: Any) -> None:
    """Play a SCENARIO once, or the run of a swarm's seed if none is named; `trimtab sim list` names them."""
    from trimtab.cli.printing import print_json

    report = _swarm_seed(options) if scenario == "swarm" else _played(scenario, options)
    if as_json:
        print_json(report)
    else:
        _print_one(report)
    if not report.is_fine:
        raise SystemExit(1)


def _played(scenario: str, options: dict[str, Any]) -> "SimReport":
    from trimtab.sim import run

    return run(scenario, **options)


def _swarm_seed(options: dict[str, Any]) -> "SimReport":
    from click.core import ParameterSource

    from trimtab.sim.swarm import run_seed

    context = click.get_current_context()
    for option in context.command.params:
        is_given = context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT
        if is_given and option.name in options and option.name != "seed":
            raise click.UsageError(
                f"a swarm's seed says itself what its world is made of; leave {option.opts[0]} out, or name a scenario"
            )
    return run_seed(options["seed"])


def _print_one(report: "SimReport") -> None:
    import msgspec

    from trimtab.cli.printing import print_facts

    facts = msgspec.structs.asdict(report)
    violations = facts.pop("violations")
    print_facts([(name, _shown(value)) for name, value in facts.items() if value is not None])
    for violation in violations:
        click.echo(f"broken: {violation}")


@sim.command(
    epilog="""\b
Examples:
  trimtab sim compare join
  trimtab sim compare deploy-storm --members 50 --queues 100"""
)
@click.argument("scenario")
@_world_options
def compare(scenario: str, *, as_json: bool, **options: Any) -> None:
    """Play a SCENARIO in both modes with all strategies, side by side. Exit code 1 if a promise was broken in any of them."""
    from trimtab.cli.printing import print_json
    from trimtab.cli.progress import progress_bar
    from trimtab.sim.scenarios import scenario_by_name

    scenario_by_name(scenario)
    reports = []
    with progress_bar(scenario, len(COMPARED)) as advance:
        for mode, strategy in COMPARED:
            reports.append(_played(scenario, {**options, "mode": mode, "strategy": strategy}))
            advance(1)
    if as_json:
        print_json(reports)
    else:
        _print_compared(reports)
    if not all(report.is_fine for report in reports):
        raise SystemExit(1)


def _print_compared(reports: "list[SimReport]") -> None:
    from trimtab.cli.printing import print_table

    has_load = any(report.drain_s is not None or report.lag_max_mean is not None for report in reports)
    titles = (*TITLES, *(LOAD_TITLES if has_load else ()))
    rows = [_row(report, has_load=has_load) for report in reports]
    print_table(titles, rows, titles[2:], spare=("t_first s", "t_detect s", "idle"))
    for report in reports:
        for violation in report.violations:
            click.echo(f"broken by {report.mode} {report.strategy}: {violation}")


def _row(report: "SimReport", *, has_load: bool) -> list[str]:
    cells = [
        report.mode, report.strategy, report.moved, report.moved_per_min, report.max_mean, report.idle, report.double_held_s, report.unheld_s,
        report.delivered_twice, report.lost, report.t_detect_s, report.t_converge_s, report.t_first_s, report.requests_per_member,
    ]  # fmt: skip
    if has_load:
        cells += [report.lag_max_mean, report.drain_s, report.moves_in_10_s_max]
    return [_shown(cell) for cell in cells]


@sim.command(
    name="swarm",
    epilog="""\b
Examples:
  trimtab sim swarm --seeds 200
  trimtab sim swarm --seeds 1000 --first-seed 5000 --json""",
)
@click.option(
    "--seeds", type=click.IntRange(1, 10_000_000), default=200, show_default=True, help="How many runs."
)
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--shrink/--no-shrink", "makes_small", default=True, help="Whether the first failure is made small."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def run_many(*, seeds: int, first_seed: int, makes_small: bool, as_json: bool) -> None:
    """Many runs with faults drawn from their seeds. Exit code 1 if a promise was broken in any of them."""
    from trimtab.cli.printing import print_json
    from trimtab.cli.progress import progress_bar
    from trimtab.sim.swarm import swarm

    failed: list[SimReport] = []
    simulated_s = 0.0
    with progress_bar("seeds", seeds) as advance:
        for report in swarm(first_seed, seeds):
            simulated_s += report.simulated_s
            failed += [] if report.is_fine else [report]
            advance(1)
    if as_json:
        print_json({"seeds": seeds, "first_seed": first_seed, "simulated_s": simulated_s, "failed": failed})
    else:
        click.echo(
            f"{seeds} seeds from {first_seed} on, {simulated_s / 3600:,.1f} virtual hours: {len(failed)} broke a promise"
        )
        for report in failed:
            click.echo(f"seed {report.seed} (trimtab sim run --seed {report.seed}): {report.violations[0]}")
        if failed and makes_small:
            _show_small(failed[0].seed)
    if failed:
        raise SystemExit(1)


def _show_small(seed: int) -> None:
    from trimtab.sim.faults import mix_of
    from trimtab.sim.swarm import shrink

    small = shrink(mix_of(seed))
    shape = small.shape
    click.echo(
        f"seed {seed} made small: {shape.members} members, {shape.queues} queues, {shape.brokers} brokers, and"
    )
    for fault in small.faults:
        click.echo(f"  {fault}")


@sim.command(name="list", epilog="Example: trimtab sim list --json")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def list_all(*, as_json: bool) -> None:
    """The scenarios there are."""
    from trimtab.cli.printing import print_json, print_table
    from trimtab.sim.scenarios import SCENARIOS

    if as_json:
        print_json([{"name": scenario.name, "what": scenario.what} for scenario in SCENARIOS.values()])
    else:
        print_table(
            ("scenario", "what happens"), [(scenario.name, scenario.what) for scenario in SCENARIOS.values()]
        )


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
