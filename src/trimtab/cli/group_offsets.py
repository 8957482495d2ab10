"""`trimtab group reset` and `clone`: setting groups elsewhere."""

from typing import TYPE_CHECKING

import click

from trimtab.cli.moments import Place, number_text, parse_place
from trimtab.cli.printing import print_table, say
from trimtab.cli.shell import NotSoError, Shell, remote

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.rows import OffsetChange

RETRY_PREFIX = "%RETRY%"


@click.command(
    epilog="""\b
Examples:
  trimtab group reset billing --to begin --dry-run          every queue before and after
  trimtab group reset billing --to end --topic orders
  trimtab group reset billing --to -30m                     what came in the last half hour, again
  trimtab group reset billing --to 2026-01-31T12:00 --yes
  trimtab group reset billing --to 1200 --topic orders      an offset; no member may be connected
\b
A group whose members are connected is moved through them: they drop what they hold and go on from the new offsets.
Members in Java take about ten seconds for it."""
)
@click.argument("name")
@click.option(
    "--to", required=True, metavar="PLACE", help="begin, end, an offset, a time, @MILLISECONDS, or -15m."
)
@click.option("--topic", "topics", multiple=True, help="Only in this topic; can be said more than once.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show every queue before and after, and change nothing.")
@remote
def reset(shell: Shell, name: str, to: str, topics: tuple[str, ...], *, yes: bool, dry_run: bool) -> None:
    """Move a group to another place in its queues."""
    from trimtab.io.clock import SystemClock

    place = parse_place(to, SystemClock().wall_ms())

    async def plan(admin: "Admin") -> "list[OffsetChange]":
        await admin.group_settings(name)
        wanted = topics or await _topics_of(admin, name)
        return [await _reset(admin, name, topic, place, dry_run=True) for topic in wanted]

    planned = shell.ask(plan)
    if not planned:
        raise NotSoError(f"group {name!r} has no offsets anywhere; say --topic to give it some")
    if not dry_run:
        moved = sum(_is_moved(change) for change in planned)
        live = " through its connected members" if any(one.through == "members" for one in planned) else ""
        shell.confirm(f"Move group {name} in {moved} queue(s){live}?", yes=yes)

        async def move(admin: "Admin") -> "list[OffsetChange]":
            return [await _reset(admin, name, one.topic, place, dry_run=False) for one in planned]

        planned = shell.ask(move)
    show_changes(shell, name, planned, done=not dry_run)


async def _topics_of(admin: "Admin", group: str) -> list[str]:
    progress = await admin.progress(group)
    return sorted({row.topic for row in progress.queues if not row.topic.startswith(RETRY_PREFIX)})


async def _reset(admin: "Admin", group: str, topic: str, place: Place, *, dry_run: bool) -> "OffsetChange":
    if place.kind == "offset":
        return await admin.reset_offsets(group, topic, place.value, dry_run=dry_run)
    at_ms = place.value if place.kind == "time" else None
    return await admin.reset_offsets(group, topic, place.kind, at_ms=at_ms, dry_run=dry_run)


def _is_moved(change: "OffsetChange") -> int:
    return sum(move.before != move.after for move in change.moves)


@click.command(
    epilog="""\b
Examples:
  trimtab group clone billing audit --topic orders --dry-run
  trimtab group clone billing audit"""
)
@click.argument("source")
@click.argument("target")
@click.option("--topic", "topics", multiple=True, help="Only in this topic; can be said more than once.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show every queue before and after, and change nothing.")
@remote
def clone(
    shell: Shell, source: str, target: str, topics: tuple[str, ...], *, yes: bool, dry_run: bool
) -> None:
    """Put one group where another one stands. Nobody of the target may be connected."""

    async def plan(admin: "Admin") -> "list[OffsetChange]":
        await admin.group_settings(source)
        wanted = topics or await _topics_of(admin, source)
        return [await admin.clone_offsets(source, target, topic, dry_run=True) for topic in wanted]

    planned = shell.ask(plan)
    if not planned:
        raise NotSoError(f"group {source!r} has no offsets anywhere")
    if not dry_run:
        shell.confirm(f"Move group {target} in {sum(map(_is_moved, planned))} queue(s)?", yes=yes)

        async def move(admin: "Admin") -> "list[OffsetChange]":
            return [await admin.clone_offsets(source, target, one.topic) for one in planned]

        planned = shell.ask(move)
    show_changes(shell, target, planned, done=not dry_run)


def show_changes(shell: Shell, group: str, changes: "list[OffsetChange]", *, done: bool) -> None:
    """Every queue before and after."""
    moves = [move for change in changes for move in change.moves]
    through = sorted({change.through for change in changes})
    if shell.print_json({"group": group, "done": done, "through": through, "moves": moves}):
        return
    print_table(
        ("TOPIC", "BROKER", "QUEUE", "MIN", "MAX", "BEFORE", "AFTER", "CHANGE"),
        [
            (
                move.topic,
                move.broker,
                str(move.queue_id),
                str(move.min_offset),
                str(move.max_offset),
                "-" if move.before is None else str(move.before),
                str(move.after),
                "-" if move.before is None else f"{move.after - move.before:+,}",
            )
            for move in moves
        ],
        right=("QUEUE", "MIN", "MAX", "BEFORE", "AFTER", "CHANGE"),
    )
    if not done:
        say("nothing was changed: --dry-run")
    elif "members" in through:
        say(f"the members of {group} are told; they go on from there when they dropped what they hold")
    else:
        say(f"group {group} is moved in {number_text(len(moves))} queue(s)")
