"""`trimtab group history`: the rebalances that members recorded themselves, or that a watch recorded."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.moments import span_text, time_text
from trimtab.cli.printing import print_json, print_table, say, warn
from trimtab.cli.shell import NotSoError, Shell, remote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trimtab.cli.group_events import Rebalance
    from trimtab.client.admin import Admin
    from trimtab.client.admin.flights import Change, Rebalanced
    from trimtab.client.admin.rows import MemberStates

TITLES = ("AT", "TOOK", "MOVED", "UNHELD", "CAUSE")
CHANGE_TITLES = ("AT", "WHAT", "QUEUE", "FROM", "TO", "TOOK", "UNHELD", "CAUSE")


@click.command(
    epilog="""\b
Examples:
  trimtab group history billing                      what its members recorded
  trimtab group history billing --all --last 1000    also when members saw others come and go
  trimtab group watch billing --record billing.jsonl &
  trimtab group history billing.jsonl                what the watch recorded; also of members that record nothing
\b
A name with a dot or a slash is a file, others are groups. Members of trimtab record; they keep their newest events
while they run. FROM is known where the member that had the queue is still there, or was taken over from."""
)
@click.argument("source", metavar="GROUP|FILE")
@click.option("--group", "only", metavar="GROUP", help="Of a file: only of this group.")
@click.option("--all", "every", is_flag=True, help="Also what moved no queue.")
@click.option(
    "--last",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="N",
    help="At most so many changes.",
)
@remote
def history(shell: Shell, source: str, only: str | None, last: int, *, every: bool) -> None:
    """Show the rebalances of a group: when, why, which queues moved from whom to whom, how long it took."""
    if "." in source or "/" in source:
        _from_file(Path(source), only, as_json=shell.as_json)
    else:
        _from_members(shell, source, last, every=every)


def _from_file(record: Path, name: str | None, *, as_json: bool) -> None:
    from trimtab.cli.group_events import read_events, rebalances_of

    if not record.is_file():
        raise NotSoError(
            f"there is no file {record}; a name with a dot or a slash is a file, and none a group"
        )
    with record.open() as file:
        events, bad = read_events(file)
    if bad:
        warn(f"{bad} line(s) of {record} are no events and are passed over")
    rebalances = rebalances_of(event for event in events if name in (None, event.group))
    if as_json:
        print_json({"rebalances": rebalances})
        return
    _print_rebalances(rebalances)


def _from_members(shell: Shell, name: str, last: int, *, every: bool) -> None:
    from trimtab.client.admin.flights import changes_of, flights_of, rebalances_in

    async def fetch(admin: "Admin") -> "MemberStates":
        await admin.group_settings(name)
        return await admin.member_states(name)

    states = shell.ask(fetch)
    flights = flights_of(states)
    changes = changes_of(flights)
    rebalances = rebalances_in(changes)
    shown = [change for change in changes if every or change.what != "view"][-last:]
    left_out = {flight.client_id: flight.left_out for flight in flights if flight.left_out}
    silent = len(states.members) - len(flights)
    document = {
        "group": name, "members": [flight.client_id for flight in flights], "rebalances": rebalances, "changes": shown,
        "left_out": left_out, "failures": states.failures,
    }  # fmt: skip
    if not shell.print_json(document):
        if not flights:
            say(
                f"group {name}: no member records what happens; `trimtab group watch {name} --record FILE` does"
            )
        else:
            _print_rebalances(rebalances)
            say()
            print_table(
                CHANGE_TITLES,
                [_texts(change) for change in shown],
                right=("TOOK", "UNHELD"),
                spare=("UNHELD", "TOOK", "CAUSE", "WHAT"),
            )
        if flights and silent:
            warn(f"{silent} member(s) record nothing: what they gave and took is not shown")
        for member, count in left_out.items():
            warn(f"{member} does not remember its oldest {count} event(s)")
    shell.finish(states.failures)


def _print_rebalances(rebalances: "Iterable[Rebalance | Rebalanced]") -> None:
    rows: list[tuple[Any, ...]] = [
        (time_text(one.at_ms), span_text(one.took_ms), str(one.moved), span_text(one.unheld_ms), one.cause)
        for one in rebalances
    ]
    print_table(TITLES, rows, right=("TOOK", "MOVED", "UNHELD"), spare=("UNHELD", "TOOK"))


def _texts(change: "Change") -> tuple[str, ...]:
    came = change.what in ("joined", "moved")
    before = change.before if change.what == "moved" else None if came else change.member
    return (
        time_text(change.at_ms),
        change.what,
        change.queue or "-",
        before or "-",
        change.member if came else "-",
        span_text(change.took_ms),
        span_text(change.unheld_ms),
        "; ".join(part for part in (change.cause, change.detail) if part) or "-",
    )
