"""`trimtab group`: groups of consumers."""

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.amounts import Amount
from trimtab.cli.group_canary import canary
from trimtab.cli.group_check import check
from trimtab.cli.group_doctor import doctor
from trimtab.cli.group_history import history
from trimtab.cli.group_offsets import clone, reset
from trimtab.cli.group_rows import QUEUE_RIGHT, QUEUE_SPARE, QUEUE_TITLES, queue_texts, topic_lags
from trimtab.cli.group_simulate import simulate
from trimtab.cli.group_watch import watch
from trimtab.cli.moments import number_text, rate_text, span_text
from trimtab.cli.printing import print_facts, print_table, say
from trimtab.cli.shell import NotSoError, Shell, remote
from trimtab.cli.suggesting import Suggesting

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.diagnosis import Look
    from trimtab.client.admin.rows import (
        BrokerFailure,
        GroupMembers,
        GroupProgress,
        GroupSettings,
        MemberStates,
        Names,
    )

SYSTEM_GROUPS = {
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "SELF_TEST_CONSUMER_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "__MONITOR_CONSUMER",
}  # fmt: skip
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
V4_9_0, V5_0_0, HIGHER = 393, 413, 612
"""Ordinals of Java's MQVersion."""


@click.group(cls=Suggesting)
def group() -> None:
    """Groups of consumers: who holds what, lag, offsets, what is wrong."""


for _command in (reset, clone, check, doctor, watch, history, simulate, canary):
    group.add_command(_command)


@group.command(
    "list",
    epilog="""\b
Examples:
  trimtab group list
  trimtab group list --long                members and lag of each; asks every broker
  trimtab group list --json | jq -r '.groups[].group'""",
)
@click.option("-a", "--all", "every", is_flag=True, help="Also those of the system.")
@click.option("-l", "--long", is_flag=True, help="With members and lag.")
@remote
def list_groups(shell: Shell, *, every: bool, long: bool) -> None:
    """List groups."""

    def is_shown(name: str) -> bool:
        return every or (name not in SYSTEM_GROUPS and not name.startswith(SYSTEM_GROUP_PREFIX))

    if long:
        found = shell.ask(lambda admin: admin.group_lines())
        rows = [row for row in found.groups if is_shown(row.group)]
        if not shell.print_json({"groups": rows, "failures": found.failures}):
            texts = [
                (row.group, number_text(row.members), number_text(row.lag), rate_text(row.consumed_per_s))
                for row in rows
            ]
            print_table(("GROUP", "MEMBERS", "LAG", "RATE"), texts, right=("MEMBERS", "LAG", "RATE"))
        shell.finish(_once(found.failures))
        return
    listed: Names = shell.ask(lambda admin: admin.groups())
    names = [name for name in listed.names if is_shown(name)]
    if not shell.print_json({"groups": [{"group": name} for name in names], "failures": listed.failures}):
        for name in names:
            say(name)
    shell.finish(listed.failures)


@group.command(
    epilog="""\b
Examples:
  trimtab group describe billing
  trimtab group describe billing --topic orders
  trimtab group describe billing --sample 5        rates over five seconds
  trimtab group describe billing --json | jq '.queues[] | select(.lag > 0)'
\b
HOLDER is what the members say they hold; two holders are joined with +. LEASE is how long ago the lease was
renewed and SINCE for how long the queue is held, where members are trimtab's; LEASE is "locked" for a queue that
others consume in order. LAG-TIME is the age of the last consumed message. RATE is measured between two looks;
ETA is when the lag is gone at that rate. "-" cannot be known."""
)
@click.argument("name")
@click.option("--topic", help="Only the queues of this topic.")
@click.option(
    "--sample",
    "sample_s",
    type=Amount(0, 3600),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="Between the two looks that rates come from; 0: one look, no rates.",
)
@remote
def describe(shell: Shell, name: str, topic: str | None, sample_s: float) -> None:
    """Show each queue of a group: who holds it, where it is, how far behind, how fast."""

    async def fetch(admin: "Admin") -> "tuple[GroupMembers, Look | None, Look]":
        import asyncio

        from trimtab.client.admin.facts import look_at
        from trimtab.io.clock import SystemClock

        clock = SystemClock()
        before = None
        if sample_s:
            began_ms = clock.monotonic_ms()
            before = await look_at(admin, name, clock)
            await asyncio.sleep(max(0.0, sample_s - (clock.monotonic_ms() - began_ms) / 1000))
        members = await admin.members(name)
        return members, before, await look_at(admin, name, clock, members)

    from trimtab.client.admin.queue_lines import queue_lines

    members, before, after = shell.ask(fetch)
    lines = [line for line in queue_lines(before, after) if topic in (None, line.topic)]
    if topic is not None and not lines:
        raise NotSoError(f"group {name!r} has no queue of topic {topic!r}")
    failures = (*members.failures, *after.progress.failures)
    view = members.views[0] if members.views else None
    document: dict[str, Any] = {
        "group": name,
        "members": members.client_ids,
        "consume_type": view and view.consume_type,
        "message_model": view and view.message_model,
        "lag": sum(line.lag or 0 for line in lines),
        "queues": lines,
        "failures": failures,
    }
    if not shell.print_json(document):
        print_facts(
            [
                ("Group", name),
                ("Members", str(len(members.client_ids))),
                ("Model", view.message_model.lower() if view else "-"),
                ("Lag", number_text(document["lag"])),
            ]
        )
        say()
        texts = [queue_texts(line, after.now_ms) for line in lines]
        print_table(QUEUE_TITLES, texts, right=QUEUE_RIGHT, spare=QUEUE_SPARE)
        for failure in after.states.failures:
            say(f"{failure.broker} does not say what it holds: {failure.error}", err=True)
    shell.finish(_once(failures))


def _once(failures: "tuple[BrokerFailure, ...]") -> "list[BrokerFailure]":
    return list({failure.broker: failure for failure in failures}.values())


@group.command(
    epilog="""\b
Examples:
  trimtab group lag billing
  trimtab group lag billing --json"""
)
@click.argument("name")
@remote
def lag(shell: Shell, name: str) -> None:
    """Show how many messages wait, by topic."""

    async def fetch(admin: "Admin") -> "Look":
        from trimtab.client.admin.diagnosis import Look
        from trimtab.client.admin.rows import MemberStates
        from trimtab.io.clock import SystemClock

        progress = await admin.progress(name)
        nobody = MemberStates(group=name, members=())
        return Look(now_ms=SystemClock().wall_ms(), states=nobody, progress=progress)

    look = shell.ask(fetch)
    progress: GroupProgress = look.progress
    rows = topic_lags(look)
    if not shell.print_json(
        {
            "group": name,
            "lag": progress.lag,
            "consumed_per_s": progress.consumed_per_s,
            "topics": rows,
            "failures": progress.failures,
        }
    ):
        texts = [
            (
                row["topic"],
                str(row["queues"]),
                number_text(row["lag"]),
                number_text(row["lag_max"]),
                span_text(row["lag_ms"]),
                "",  # brokers count what a group consumes in all its topics together
            )
            for row in rows
        ]
        total = (str(len(progress.queues)), number_text(progress.lag))
        texts.append(("total", *total, "", "", rate_text(progress.consumed_per_s)))
        titles = ("TOPIC", "QUEUES", "LAG", "LARGEST", "LAG-TIME", "RATE")
        print_table(titles, texts, right=titles[1:])
    shell.finish(progress.failures)


@group.command(
    epilog="""\b
Examples:
  trimtab group members billing
  trimtab group members billing --stacks 10.0.0.7@4711     where the threads of a member are"""
)
@click.argument("name")
@click.option("--stacks", metavar="CLIENT-ID", help="Print the stacks of this member's threads.")
@remote
def members(shell: Shell, name: str, stacks: str | None) -> None:
    """Show the members: where they are, what they are, how many queues each holds."""
    if stacks is not None:
        state = shell.ask(lambda admin: admin.member_state(name, stacks, jstack=True))
        if not shell.print_json({"client_id": stacks, "stacks": state.jstack}):
            say(state.jstack or "it gives none")
        return

    async def fetch(admin: "Admin") -> "tuple[GroupSettings, GroupMembers, MemberStates]":
        settings, found = await admin.group_settings(name), await admin.members(name)
        return settings, found, await admin.member_states(name, found)

    _, found, states = shell.ask(fetch)
    rows = _member_rows(found, states)
    if not shell.print_json({"group": name, "members": rows, "failures": found.failures}):
        if not rows:
            say(f"group {name} has no members connected")
        else:
            texts = [
                (
                    row["client_id"],
                    row["address"],
                    row["language"],
                    row["version"],
                    "-" if row["queues"] is None else str(row["queues"]),
                    ", ".join(row["brokers"]),
                )
                for row in rows
            ]
            print_table(
                ("CLIENT", "ADDRESS", "LANGUAGE", "VERSION", "QUEUES", "SEEN BY"),
                texts,
                right=("QUEUES",),
                spare=("SEEN BY", "VERSION", "LANGUAGE", "ADDRESS"),
                whole=("CLIENT",),
            )
    shell.finish(found.failures)


def _member_rows(found: "GroupMembers", states: "MemberStates") -> list[dict[str, Any]]:
    held = {state.client_id: sum(not queue.dropped for queue in state.queues) for state in states.members}
    seen: dict[str, dict[str, Any]] = {}
    for view in found.views:
        for member in view.members:
            row = seen.setdefault(
                member.client_id,
                {
                    "client_id": member.client_id,
                    "address": member.address,
                    "language": member.language,
                    "version": version_text(member.version),
                    "queues": held.get(member.client_id),
                    "brokers": [],
                },
            )
            row["brokers"].append(view.broker)
    return [seen[client_id] for client_id in sorted(seen)]


def version_text(version: int) -> str:
    """A version as Java names it. Its numbers go on in twos, a snapshot before each release, ten patches to a minor."""
    if not V4_9_0 <= version < HIGHER:
        return str(version)
    steps, is_release = (
        divmod(version - V5_0_0 + 1, 2) if version >= V5_0_0 - 1 else divmod(version - V4_9_0 + 1, 2)
    )
    name = f"V5_{steps // 10}_{steps % 10}" if version >= V5_0_0 - 1 else f"V4_9_{steps}"
    return name if is_release else f"{name}_SNAPSHOT"


@group.command(
    epilog="""\b
Examples:
  trimtab group delete billing
  trimtab group delete billing --dry-run"""
)
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be lost, and change nothing.")
@remote
def delete(shell: Shell, name: str, *, yes: bool, dry_run: bool) -> None:
    """Delete a group with its offsets, its retries and its dead letters."""

    async def look(admin: "Admin") -> "tuple[GroupSettings, GroupMembers, GroupProgress]":
        return await admin.group_settings(name), await admin.members(name), await admin.progress(name)

    settings, found, progress = shell.ask(look)
    if found.client_ids:
        raise NotSoError(
            f"group {name!r} has {len(found.client_ids)} member(s) connected and would come back: stop them first"
        )
    what = (
        f"Group {name}: offsets in {len(progress.queues)} queue(s), {progress.lag:,} message(s) not consumed, at"
        f" {', '.join(one.broker for one in settings.brokers)}."
    )
    if not dry_run:
        shell.confirm(f"{what} Delete it?", yes=yes)
        shell.ask(lambda admin: admin.delete_group(name))
    if not shell.print_json(
        {"group": name, "queues": len(progress.queues), "lag": progress.lag, "deleted": not dry_run}
    ):
        say(f"{what}\nnothing was changed: --dry-run" if dry_run else f"group {name} is deleted")
