"""`trimtab dlq`: dead letters, what nobody could handle."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trimtab.cli.message_form import envelope
from trimtab.cli.moments import number_text, time_text
from trimtab.cli.printing import print_table, say
from trimtab.cli.shell import NotSoError, Shell, remote
from trimtab.cli.suggesting import Suggesting

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.dead_letters import FoundLetters
    from trimtab.client.admin.rows import FoundMessage, ResentMessage, TopicQueues


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
    found = shell.ask(lambda admin: admin.dead_letter_groups())
    if not shell.print_json(found):
        texts = [(row.group, number_text(row.messages), time_text(row.newest_ms)) for row in found.groups]
        print_table(("GROUP", "MESSAGES", "NEWEST"), texts, right=("MESSAGES",))
    shell.finish(found.failures)


async def _queues_there(admin: "Admin", group: str) -> "TopicQueues":
    from trimtab.client.admin.dead_letters import letter_queues

    queues = await letter_queues(admin, group)
    if not queues.queues and not queues.failures:
        raise NotSoError(f"group {group!r} has no dead letters")
    return queues


async def _letters_there(admin: "Admin", group: str, count: int) -> "FoundLetters":
    from trimtab.client.admin.dead_letters import oldest_letters

    return await oldest_letters(admin, await _queues_there(admin, group), count)


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

    found = shell.ask(lambda admin: _letters_there(admin, name, count))
    letters = found.messages
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
            spare=("BYTES", "TAG", "OFFSET", "QUEUE", "KEYS", "DIED"),
            whole=("ID",),
        )
    shell.finish(found.failures)


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
    """Let the group try its dead letters again. They are read and sent a few at a time, however many there are."""
    waiting = shell.ask(lambda admin: _queues_there(admin, name))
    where = "the topics they came from, for every group" if to_origin else f"group {name}"
    if not dry_run:
        what = f"{len(ids)} dead letter(s)" if ids else f"{waiting.messages:,} dead letter(s)"
        shell.confirm(f"Send {what} again, to {where}?", yes=yes)
    plan = _Replay(group=name, ids=frozenset(ids), to_origin=to_origin, dry_run=dry_run)
    letters, sent = shell.ask(lambda admin: _replay(shell, admin, plan, waiting))
    if not letters and not waiting.failures:
        raise NotSoError(f"group {name!r} has no such dead letters")
    if not shell.print_json({"group": name, "to": where, "letters": letters, "sent": sent}):
        say("nothing was sent: --dry-run" if dry_run else f"{len(sent):,} dead letter(s) sent to {where}")
    shell.finish(waiting.failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replay:
    group: str
    ids: frozenset[str]
    to_origin: bool
    dry_run: bool

    def wants(self, message: "FoundMessage") -> bool:
        return not self.ids or bool({message.message_id, message.offset_message_id} & self.ids)


async def _replay(
    shell: Shell, admin: "Admin", plan: _Replay, waiting: "TopicQueues"
) -> "tuple[list[str], list[ResentMessage]]":
    from trimtab.cli.progress import progress_bar
    from trimtab.client.admin.dead_letters import letters_in
    from trimtab.client.admin.letters import origin_of

    letters: list[str] = []
    sent: list[ResentMessage] = []
    with progress_bar("replay", waiting.messages, is_quiet=shell.as_json) as advance:
        async with aclosing(letters_in(admin, waiting.queues)) as found:
            async for one in found:
                advance(1)
                if not plan.wants(one):
                    continue
                if not plan.dry_run:
                    again = admin.resend(one) if plan.to_origin else admin.replay_dead_letter(plan.group, one)
                    sent.append(await again)
                letters.append(one.message_id)
                if not shell.as_json:
                    say(f"{one.message_id}  {origin_of(one)}  {len(one.body)} bytes")
    return letters, sent
