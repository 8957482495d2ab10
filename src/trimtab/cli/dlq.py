"""`trimtab dlq`: dead letters, what nobody could handle."""

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.message_form import envelope
from trimtab.cli.moments import number_text, time_text
from trimtab.cli.printing import print_table
from trimtab.cli.shell import NotSoError, Shell, remote
from trimtab.cli.suggesting import Suggesting

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.rows import FoundMessage, ResentMessage

PREFIX = "%DLQ%"
READ_AT_ONCE = 32


@click.group(cls=Suggesting)
def dlq() -> None:
    """Dead letters: messages that a group could not handle, however often it tried."""


@dlq.command(
    "list",
    epilog="""\b
Examples:
  trimtab dlq list
  trimtab dlq list --json | jq '.groups[] | select(.messages > 0)'""",
)
@remote
def list_letters(shell: Shell) -> None:
    """List the groups that have dead letters."""

    async def fetch(admin: "Admin") -> tuple[list[dict[str, Any]], list[Any]]:
        topics = [name for name in (await admin.topics()).names if name.startswith(PREFIX)]
        rows: list[dict[str, Any]] = []
        failures: list[Any] = []
        for topic in topics:
            found = await admin.topic_queues(topic)
            failures += found.failures
            rows.append(
                {
                    "group": topic.removeprefix(PREFIX),
                    "messages": sum(row.max_offset - row.min_offset for row in found.queues),
                    "newest_ms": max((row.newest_ms for row in found.queues if row.newest_ms), default=None),
                }
            )
        return rows, failures

    rows, failures = shell.ask(fetch)
    if not shell.print_json({"groups": rows, "failures": failures}):
        texts = [(row["group"], number_text(row["messages"]), time_text(row["newest_ms"])) for row in rows]
        print_table(("GROUP", "MESSAGES", "NEWEST"), texts, right=("MESSAGES",))
    shell.finish({failure.broker: failure for failure in failures}.values())


async def letters_of(admin: "Admin", group: str, count: int | None) -> "list[FoundMessage]":
    """The dead letters of a group, oldest first."""
    found: list[FoundMessage] = []
    for row in (await admin.topic_queues(PREFIX + group)).queues:
        offset, taken = row.min_offset, 0
        while offset < row.max_offset and (count is None or taken < count):
            read = await admin.read_anyway(row.queue, offset, READ_AT_ONCE)
            found += read.messages
            taken += len(read.messages)
            if read.next_offset <= offset:
                break
            offset = read.next_offset
    found.sort(key=lambda message: message.store_timestamp)
    return found if count is None else found[:count]


@dlq.command(
    epilog="""\b
Examples:
  trimtab dlq show billing
  trimtab dlq show billing -c 1 --json | jq .messages[0].body"""
)
@click.argument("name", metavar="GROUP")
@click.option("-c", "--count", type=click.IntRange(1), default=100, show_default=True)
@remote
def show(shell: Shell, name: str, count: int) -> None:
    """Show the dead letters of a group."""
    from trimtab.client.admin.letters import origin_of

    letters = shell.ask(lambda admin: letters_of(admin, name, count))
    if not shell.print_json({"group": name, "messages": [envelope(one) for one in letters]}):
        rows = [
            (
                one.message_id,
                origin_of(one),
                f"{one.broker_name}:{one.queue_id}",
                str(one.queue_offset),
                time_text(one.store_timestamp),
                one.tag or "-",
                " ".join(one.keys) or "-",
                str(len(one.body)),
            )
            for one in letters
        ]
        print_table(
            ("ID", "TOPIC", "QUEUE", "OFFSET", "DIED", "TAG", "KEYS", "BYTES"),
            rows,
            right=("OFFSET", "BYTES"),
        )


@dlq.command(
    epilog="""\b
Examples:
  trimtab dlq replay billing --dry-run
  trimtab dlq replay billing --id AC11000200007B1F5C6E0B4D1A2B0000
  trimtab dlq replay billing --to-origin        to the topic itself: every group gets them again
\b
The letters stay where they are: a second replay sends them once more."""
)
@click.argument("name", metavar="GROUP")
@click.option("--id", "ids", multiple=True, help="Only this message; can be said more than once.")
@click.option("--to-origin", is_flag=True, help="To the topic they came from, for every group.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@remote
def replay(
    shell: Shell, name: str, ids: tuple[str, ...], *, to_origin: bool, yes: bool, dry_run: bool
) -> None:
    """Let the group try its dead letters again."""
    from trimtab.cli.progress import progress_bar
    from trimtab.client.admin.letters import origin_of

    letters = shell.ask(lambda admin: letters_of(admin, name, None))
    if ids:
        letters = [one for one in letters if one.message_id in ids or one.offset_message_id in ids]
    if not letters:
        raise NotSoError(f"group {name!r} has no such dead letters")
    where = ", ".join(sorted({origin_of(one) for one in letters})) if to_origin else f"group {name}"
    if not dry_run:
        shell.confirm(f"Send {len(letters)} dead letter(s) again, to {where}?", yes=yes)

    async def send(admin: "Admin") -> "list[ResentMessage]":
        sent = []
        with progress_bar("replay", len(letters), is_quiet=shell.as_json) as advance:
            for one in letters:
                again = admin.resend(one) if to_origin else admin.replay_dead_letter(name, one)
                sent.append(await again)
                advance(1)
        return sent

    sent = [] if dry_run else shell.ask(send)
    if not shell.print_json(
        {"group": name, "to": where, "letters": [one.message_id for one in letters], "sent": sent}
    ):
        for one in letters:
            click.echo(f"{one.message_id}  {origin_of(one)}  {len(one.body)} bytes")
        click.echo(
            "nothing was sent: --dry-run" if dry_run else f"{len(sent)} dead letter(s) sent to {where}"
        )
