"""`trimtab group canary`: some members take a part of the queues, until one command ends it."""

from typing import TYPE_CHECKING

import click

from trimtab.cli.printing import print_facts, say
from trimtab.cli.shell import NotSoError, Shell, remote

if TYPE_CHECKING:
    from trimtab.balance.strategies import CanarySetting
    from trimtab.client.admin import Admin
    from trimtab.model import MessageQueue


@click.command(
    epilog="""\b
Examples:
  trimtab group canary billing                                       what is ordered now
  trimtab group canary billing --member pod-0 --part 0.1             a tenth of the queues for pod-0
  trimtab group canary billing --member pod-0 --queue orders@broker-a:3
  trimtab group canary billing --off                                 the way back
\b
Members of ours in leased mode look for it every 20 seconds, and when somebody joins or leaves. The order is kept by the name servers, so that it
outlives members. Within each part queues are shared as before."""
)
@click.argument("name")
@click.option(
    "--member", "members", multiple=True, metavar="CLIENT_ID", help="A canary; may be said more than once."
)
@click.option("--part", type=float, help="How much of all queues they take, between 0 and 1.")
@click.option(
    "--queue", "queues", multiple=True, metavar="TOPIC@BROKER:ID", help="A queue they take; may be said more than once."
)  # fmt: skip
@click.option("--off", is_flag=True, help="End it.")
@remote
def canary(
    shell: Shell,
    name: str,
    members: tuple[str, ...],
    part: float | None,
    queues: tuple[str, ...],
    *,
    off: bool,
) -> None:
    """Give a part of a group's queues to chosen members, or end that."""
    if off and (members or queues or part is not None):
        raise click.UsageError("--off ends a canary; leave the other options out")
    if not off and not members and not queues and part is None:
        _show(shell, name, shell.ask(lambda admin: _ordered(admin, name)))
        return
    if off:
        shell.ask(lambda admin: _end(admin, name))
        _show(shell, name, None)
        return
    from trimtab.balance.strategies import CanarySetting

    wanted = CanarySetting(
        frozenset(members), part, frozenset(_queue_of(text) for text in queues) if queues else None
    )
    shell.ask(lambda admin: _order(admin, name, wanted))
    _show(shell, name, wanted)


def _queue_of(text: str) -> "MessageQueue":
    from trimtab.model import MessageQueue

    topic, _, place = text.rpartition("@")
    broker, _, number = place.rpartition(":")
    if not topic or not broker or not number.isdecimal():
        raise click.UsageError(f"{text!r} is no queue; write it as group describe does, orders@broker-a:3")
    return MessageQueue(topic, broker, int(number))


async def _ordered(admin: "Admin", group: str) -> "CanarySetting | None":
    from trimtab.balance.canary_orders import NAMESPACE, read_order

    text = await admin.get_kv(NAMESPACE, group)
    return None if text is None else read_order(text)


async def _order(admin: "Admin", group: str, wanted: "CanarySetting") -> None:
    """Only for a group that it fits as it is now."""
    from trimtab.balance.canary_orders import NAMESPACE, order_text

    await admin.group_settings(group)
    found = await admin.members(group)
    progress = await admin.progress(group)
    wanted.check(found.client_ids, {row.queue for row in progress.queues})
    await admin.put_kv(NAMESPACE, group, order_text(wanted))


async def _end(admin: "Admin", group: str) -> None:
    from trimtab.balance.canary_orders import NAMESPACE

    if await admin.get_kv(NAMESPACE, group) is None:
        raise NotSoError(f"group {group!r} has no canary")
    await admin.delete_kv(NAMESPACE, group)


def _show(shell: Shell, group: str, setting: "CanarySetting | None") -> None:
    members = sorted(setting.members) if setting else []
    part = setting.part if setting else None
    queues = sorted(map(str, setting.queues)) if setting and setting.queues else []
    if shell.print_json({"group": group, "members": members, "part": part, "queues": queues}):
        return
    if setting is None:
        say(f"group {group} has no canary")
        return
    what = f"{part:g} of all queues" if part is not None else ", ".join(queues)
    print_facts([("Group", group), ("Canaries", ", ".join(members)), ("Take", what)])
