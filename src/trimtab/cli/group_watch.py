"""`trimtab group watch`: a group live."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.amounts import Amount
from trimtab.cli.group_rows import (
    QUEUE_RIGHT,
    QUEUE_SPARE,
    QUEUE_TITLES,
    changes_between,
    is_whole,
    queue_texts,
)
from trimtab.cli.moments import number_text, time_text
from trimtab.cli.printing import console, say, table, warn
from trimtab.cli.shell import NotSoError, Shell, remote
from trimtab.cli.visible import visible

if TYPE_CHECKING:
    from trimtab.cli.group_events import Event
    from trimtab.client.admin import Admin
    from trimtab.client.admin.diagnosis import Look
    from trimtab.client.admin.rows import GroupMembers

RECORD_BYTES_MAX = 64 << 20
DATE_CHARS = len("2026-01-31 ")
OTHER_LINES = 4
"""On a screen beside queues and changes: head, titles, what is left out, and where the cursor is."""


@click.command(
    epilog="""\b
Examples:
  trimtab group watch billing
  trimtab group watch billing --interval 0.5 --record billing.jsonl
  trimtab group watch billing --json                 an event a line, as they happen
  trimtab group history billing.jsonl                what it recorded"""
)
@click.argument("name")
@click.option(
    "--interval",
    "interval_s",
    type=Amount(0.05, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
)
@click.option(
    "--record", type=click.Path(dir_okay=False, path_type=Path), help="Add what changes to this file."
)
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many looks.")
@remote
def watch(shell: Shell, name: str, interval_s: float, record: Path | None, count: int | None) -> None:
    """Show a group live, until Ctrl-C: queues, holders, lag, rates, and every change as it happens.

    On a terminal a table is drawn anew; into a pipe goes a line for each change.
    """

    async def live(admin: "Admin") -> None:
        await admin.group_settings(name)
        await _watch(shell, admin, name, interval_s, record, count)

    shell.ask(live)


async def _watch(
    shell: Shell, admin: "Admin", name: str, interval_s: float, record: Path | None, count: int | None
) -> None:
    import asyncio

    from trimtab.client.admin.facts import look_at
    from trimtab.errors import TrimtabError
    from trimtab.io.clock import SystemClock

    clock = SystemClock()
    before: Look | None = None
    whole: tuple[GroupMembers, Look] | None = None
    screen = _Screen(name) if sys.stdout.isatty() and not shell.as_json else None
    looks = 0
    try:
        while count is None or looks < count:
            looks += 1
            try:
                members = await admin.members(name)
                look = await look_at(admin, name, clock, members)
            except TrimtabError as error:
                warn(str(error))
                await asyncio.sleep(interval_s)
                continue
            events = []
            if is_whole(members, look):
                events = _events(whole, (members, look))
                whole = (members, look)
            else:
                for failure in (*members.failures, *look.states.failures):
                    warn(
                        f"{failure.broker} does not answer, so this look tells of no change: {failure.error}"
                    )
            _report(shell, events, record, is_quiet=screen is not None)
            if screen is not None:
                screen.draw(before, look, events)
            before = look
            await asyncio.sleep(interval_s if count is None or looks < count else 0)
    finally:
        if screen is not None:
            screen.close()


def _events(before: "tuple[GroupMembers, Look] | None", after: "tuple[GroupMembers, Look]") -> "list[Event]":
    """Everything that is there is new to the first look."""
    from trimtab.cli.group_events import events_between

    if before is not None:
        return changes_between(before, after)
    members, look = after
    present = (frozenset[str](), frozenset(members.client_ids))
    return events_between(members.group, look.now_ms, present, ({}, look.holder_ids))


def _report(shell: Shell, events: "list[Event]", record: Path | None, *, is_quiet: bool) -> None:
    from trimtab.cli.group_events import as_line, event_text

    if record is not None and events:
        if record.exists() and record.stat().st_size > RECORD_BYTES_MAX:
            raise NotSoError(f"{record} has more than {RECORD_BYTES_MAX} bytes; record into another file")
        with record.open("a") as file:
            file.writelines(f"{as_line(event)}\n" for event in events)
    if is_quiet:
        return
    for event in events:
        say(as_line(event) if shell.as_json else f"{time_text(event.at_ms)}  {event_text(event)}")


class _Screen:
    """The table that is drawn anew, and the last changes under it."""

    LINES_MAX = 8

    def __init__(self, name: str) -> None:
        from rich.live import Live

        self._name = name
        self._last: list[str] = []
        self._console = console()
        self._live: Live = Live(console=self._console, auto_refresh=False, screen=False)
        self._live.start()

    def draw(self, before: "Look | None", look: "Look", events: "list[Event]") -> None:
        from rich.console import Group
        from rich.text import Text

        from trimtab.cli.group_events import event_text
        from trimtab.client.admin.queue_lines import queue_lines

        self._last = [
            *self._last,
            *(f"{time_text(event.at_ms)[DATE_CHARS:]}  {event_text(event)}" for event in events),
        ][-self.LINES_MAX :]
        rows = [queue_texts(line, look.now_ms) for line in queue_lines(before, look)]
        room = max(1, self._console.height - OTHER_LINES - len(self._last))
        made, _ = table(QUEUE_TITLES, rows[:room], QUEUE_RIGHT, QUEUE_SPARE, window=self._console.width)
        more = [Text(f"… and {len(rows) - room:,} queues more", style="dim")] if len(rows) > room else []
        head = f"{self._name}: {len(look.states.members)} member(s), lag {number_text(look.progress.lag)}   {time_text(look.now_ms)}"
        self._live.update(
            Group(
                Text(head, style="bold"),
                made,
                *more,
                *(Text(visible(line), no_wrap=True, overflow="ellipsis") for line in self._last),
            ),
            refresh=True,
        )

    def close(self) -> None:
        self._live.stop()
