"""`trimtab group simulate`: what would move, if."""

from typing import TYPE_CHECKING

import click

from trimtab.cli.moments import number_text
from trimtab.cli.printing import print_facts, print_table, say
from trimtab.cli.shell import NotSoError, Shell, remote

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.diagnosis import Look
    from trimtab.client.admin.rows import GroupMembers
    from trimtab.client.admin.simulation import Mode, Shared, Simulated, Wanted

QUEUES_MAX = 100_000


@click.command(
    epilog="""\b
Examples:
  trimtab group simulate billing --join 2
  trimtab group simulate billing --leave 10.0.0.7@4711 --strategy AVG
  trimtab group simulate billing --queues +8 --json
\b
Starts from who holds what now and runs the code that members run; nothing is changed. moved/min compares the moves with
the fewest possible: 1 is perfect. Queues of retries count as all others. max/mean is the largest share over the mean. Leased and classic mode move differently;
without --mode it is that of the strategy, else of the members."""
)
@click.argument("name")
@click.option("--join", type=click.IntRange(0, 10_000), default=0, metavar="N", help="So many members more.")
@click.option(
    "--leave", multiple=True, metavar="MEMBER", help="Without this member; may be said more than once."
)
@click.option(
    "--queues", "more", type=click.IntRange(-QUEUES_MAX, QUEUES_MAX), default=0, metavar="+N", help="So many queues more, of each topic."
)  # fmt: skip
@click.option(
    "--strategy",
    help="sticky, lag, rendezvous, AVG, AVG_BY_CIRCLE or CONSISTENT_HASH.  [default: what members use]",
)
@click.option("--mode", type=click.Choice(["leased", "classic"]), help="How queues are handed over.")
@remote
def simulate(
    shell: Shell,
    name: str,
    join: int,
    leave: tuple[str, ...],
    more: int,
    strategy: str | None,
    mode: "Mode | None",
) -> None:
    """Show how a group would share its queues with other members, other queues or another strategy."""
    from trimtab.client.admin.simulation import simulate as simulated

    async def fetch(admin: "Admin") -> "tuple[GroupMembers, Look]":
        from trimtab.client.admin.facts import look_at
        from trimtab.io.clock import SystemClock

        await admin.group_settings(name)
        members = await admin.members(name)
        return members, await look_at(admin, name, SystemClock(), members)

    members, look = shell.ask(fetch)
    now = shared_now(name, members, look)
    if not now.queues:
        raise NotSoError(f"group {name!r} has no queue: nobody has consumed as this group yet")
    wanted = _wanted(look, join, leave, more, strategy, mode)
    result = simulated(now, wanted)
    if not shell.print_json(result):
        _print(result)
    shell.finish(
        {failure.broker: failure for failure in (*members.failures, *look.progress.failures)}.values()
    )


def shared_now(name: str, members: "GroupMembers", look: "Look") -> "Shared":
    """The state to start from; queues of retries are shared like all others."""
    from trimtab.balance.order import sorted_queues
    from trimtab.client.admin.simulation import Shared

    held = {queue: who[0][0] for queue, who in look.holders.items() if len(who) == 1}
    lags = {row.queue: max(0, row.lag) for row in look.progress.queues}
    return Shared(
        group=name,
        members=members.client_ids,
        queues=sorted_queues({**lags, **held}),
        holders=held,
        lags=lags,
        knows_holders=members.knows_holders,
    )


def _wanted(
    look: "Look", join: int, leave: tuple[str, ...], more: int, strategy: str | None, mode: "Mode | None"
) -> "Wanted":
    from trimtab.balance.strategies import by_name, planner_by_name
    from trimtab.client.admin.diagnosis import strategy_of
    from trimtab.client.admin.flights import mode_of
    from trimtab.client.admin.simulation import NEEDS_LEASES, Wanted

    states = look.states.members
    if mode is None:
        all_leased = all(mode_of(state) == "leased" for state in states)
        mode = "leased" if all_leased or strategy in NEEDS_LEASES else "classic"
    if strategy is None:
        used = sorted({found for state in states if (found := strategy_of(state)) is not None})
        strategy = used[0] if len(used) == 1 else "sticky" if mode == "leased" else "AVG"
    (planner_by_name if mode == "leased" else by_name)(strategy)
    return Wanted(join=join, leave=leave, more_queues=more, strategy=strategy, mode=mode)


def _decided_by(result: "Simulated") -> str:
    if result.mode == "classic":
        return "the view alone"
    return (
        "who holds what" if result.knows_holders else "leases alone: the brokers do not tell who holds what"
    )


def _print(result: "Simulated") -> None:
    ratio = "-" if result.moved_per_min is None else f"{result.moved_per_min:.2f}"
    print_facts(
        [
            ("Group", result.group),
            ("Strategy", f"{result.strategy} ({result.mode})"),
            ("Queues", number_text(result.queues)),
            ("Moved", f"{result.moved:,} (at least {result.moved_min:,}; moved/min {ratio})"),
            ("max/mean", f"{result.max_mean_before:.2f} -> {result.max_mean_after:.2f}"),
            ("Idle", f"{result.idle} member(s)"),
            ("Decided by", _decided_by(result)),
        ]
    )
    if not result.settled:
        say(f"it does not come to rest in {result.rounds} rounds", err=True)
    say()
    rows = [
        (one.member, number_text(one.before), number_text(one.after), number_text(one.lag_after))
        for one in result.shares
    ]
    print_table(("MEMBER", "NOW", "THEN", "LAG THEN"), rows, right=("NOW", "THEN", "LAG THEN"))
