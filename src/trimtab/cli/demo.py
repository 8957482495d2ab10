"""`trimtab demo`: from nothing to understanding in a minute or two. Every number on the screen is measured in that run.

Two brokers run in this process. Producers meet a slow broker; consumers, each in a process of its own, join, leave and are killed, first in
classic and then in leased mode; Spark archives what was sent, where it is installed.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trimtab.cli.demo_counts import GroupCounts
    from trimtab.cli.demo_screen import Screen
    from trimtab.cli.demo_sending import SendingRow
    from trimtab.testing import AsyncCluster

REPORT_FILE = "demo.html"
FIGURES_FILE = "demo.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """How long things take."""

    send_s: float = 2.0
    """Each row of the sending table."""
    pause_s: float = 2.5
    """Between two changes of the group."""
    members: int = 3
    per_second: int = 400
    handler_ms: int = 100
    queues: int = 6
    """At each broker."""
    with_spark: bool = True


FAST = DemoPlan(send_s=0.7, pause_s=0.7, with_spark=False)


@click.command(
    epilog="""\b
Examples:
  trimtab demo
  trimtab demo --fast                  shorter, and without Spark
  trimtab demo --keep                  the cluster stays until Ctrl-C, for commands of your own
  trimtab demo --output ./demo         where the report, the figures and the archive go"""
)
@click.option("--fast", is_flag=True, help="Shorter, and without Spark: for CI.")
@click.option("--keep", is_flag=True, help="Leave the cluster and a dashboard up at the end, until Ctrl-C.")
@click.option("--no-spark", is_flag=True, help="Leave the archive out.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for what the demo writes; a new one for temporary files, if none is given.",
)
def demo(*, fast: bool, keep: bool, no_spark: bool, output: Path | None) -> None:
    """Show in a minute or two what load balancing does: a slow broker, members that come, go and crash, an archive."""
    from dataclasses import replace

    from trimtab.cli.demo_screen import Screen

    plan = FAST if fast else DemoPlan()
    if no_spark:
        plan = replace(plan, with_spark=False)
    folder = output or Path(tempfile.mkdtemp(prefix="trimtab-demo-"))
    run_demo(plan, folder, Screen(sys.stdout), keep=keep)


def run_demo(plan: DemoPlan, folder: Path, screen: "Screen", *, keep: bool = False) -> None:
    """All of it; ends by itself unless the cluster shall be kept."""
    from trimtab.io.loops import new_event_loop

    folder.mkdir(parents=True, exist_ok=True)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_demo(plan, folder, screen, keep=keep))


async def _demo(plan: DemoPlan, folder: Path, screen: "Screen", *, keep: bool) -> None:
    from trimtab.cli.demo_sending import show_sending
    from trimtab.io.clock import SystemClock
    from trimtab.testing import Cluster

    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    async with Cluster(brokers=2) as cluster:
        screen.say(
            f"[bold]A cluster[/bold] of two brokers in this process, in {clock.monotonic_ms() - began_ms} ms: name server"
            f" {cluster.nameserver}, {', '.join(f'{name} {address}' for name, address in cluster.brokers.items())}"
        )
        rows = await show_sending(cluster, plan, screen)
        counts = await _show_groups(cluster, plan, screen)
        archived = await _show_archive(cluster, plan, folder, screen, counts)
        screen.title("Summary")
        _summarise(screen, rows, counts, archived, took_s=(clock.monotonic_ms() - began_ms) / 1000)
        _write(folder, rows, counts, archived)
        _say_what_next(screen, folder, cluster, plan, keep=keep)
        screen.save(folder / REPORT_FILE)
        if keep:
            await _until_interrupted(cluster, plan, screen)
    _judge(counts, archived)


async def _show_groups(cluster: "AsyncCluster", plan: DemoPlan, screen: "Screen") -> "list[GroupCounts]":
    from trimtab.cli.demo_counts import counts_table
    from trimtab.cli.demo_group import show_group

    screen.title("2. Consumers join, leave and crash")
    screen.say(
        f"{plan.members} consumers, each a process of its own, share {plan.queues * 2} queues. One joins, one leaves, one is killed with"
        f" SIGKILL, while {plan.per_second} messages a second come in and each takes {plan.handler_ms} ms of work. First as RocketMQ's"
        " own clients do it (classic), then with leases. For every change: how long until each queue had one holder again, how many"
        " queues changed hands, and how many messages were delivered again so far."
    )
    counts = [await show_group(cluster, plan, screen, mode) for mode in ("classic", "leased")]
    screen.say("")
    screen.say(counts_table(counts))
    return counts


async def _show_archive(
    cluster: "AsyncCluster", plan: DemoPlan, folder: Path, screen: "Screen", counts: "list[GroupCounts]"
) -> int | None:
    from trimtab.cli.demo_spark import archive_topics, why_not

    screen.title("3. Spark archives the topics and reports the balance")
    reason = "it was left out" if not plan.with_spark else await asyncio.to_thread(why_not)
    if reason is not None:
        screen.say(f"Not in this run: {reason}.")
        return None
    return await archive_topics(cluster.nameserver, [count.topic for count in counts], folder, screen)


def _summarise(
    screen: "Screen",
    rows: "list[SendingRow]",
    counts: "list[GroupCounts]",
    archived: int | None,
    *,
    took_s: float,
) -> None:
    slow = {row.policy: row for row in rows if row.is_slow}
    even, adaptive = slow["round-robin"], slow["adaptive"]
    screen.say(
        f"• With broker-b slow, round robin gave it {even.share('broker-b'):.0%} of the messages, and a send took {even.mean_ms:.1f} ms on"
        f" average; the adaptive policy gave it {adaptive.share('broker-b'):.1%}, and a send took {adaptive.mean_ms:.1f} ms."
    )
    for count in counts:
        screen.say(
            f"• {count.mode.capitalize()}: {count.twice_planned} messages came twice because of a join and a leave,"
            f" {count.twice_crash} because of the crash; {count.lost} were lost. Queues had two holders for"
            f" {count.double_held_s:.1f} and none for {count.unheld_s:.1f} queue-seconds."
        )
    if archived is not None:
        screen.say(
            f"• The archive has {archived:,} messages of {sum(count.sent for count in counts):,} that were sent."
        )
    screen.say(f"• All of it took {took_s:.0f} s.")


def _write(folder: Path, rows: "list[SendingRow]", counts: "list[GroupCounts]", archived: int | None) -> None:
    import msgspec

    figures = {"sending": rows, "groups": counts, "archived": archived}
    (folder / FIGURES_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2))


def _say_what_next(
    screen: "Screen", folder: Path, cluster: "AsyncCluster", plan: DemoPlan, *, keep: bool
) -> None:
    from rich.markup import escape

    screen.say(
        f"\nWritten: [bold]{folder / REPORT_FILE}[/bold] (this, for a browser), {folder / FIGURES_FILE} (the figures)"
    )
    if keep:
        screen.say(
            f"\nThe cluster is up until Ctrl-C, with {plan.members} consumers at work: [bold]export NAMESRV_ADDR={cluster.nameserver}[/bold], and then:"
        )
        commands = (
            ("group describe billing-leased", "who holds what, queue by queue"),
            ("group history billing-leased", "who moved what, when and why"),
            ("group doctor billing-leased", "what is wrong, if anything is"),
        )
    else:
        screen.say("\nThree commands to try next:")
        commands = (
            ("up", "a broker of your own"),
            ("demo --keep", "again; cluster and dashboard stay"),
            ("sim compare join", "all strategies, on virtual time"),
        )
    program = program_name(sys.argv[0])
    width = len(program) + max(len(command) for command, _ in commands) + 2
    for command, what in commands:
        screen.say(f"  [bold]{escape(f'{program} {command}'):<{width}}[/bold] {what}")


def program_name(started_as: str, path: str | None = None) -> str:
    """How this program can be called again as it was: `trimtab` if the shell finds it, else where it is."""
    started = Path(started_as)
    if started.name not in ("trimtab", "trimtab.exe"):
        return "python -m trimtab"
    found = shutil.which(started.name, path=path)
    if found is not None and Path(found).resolve() == started.resolve():
        return started.name
    here = Path.cwd()
    return str(
        started.relative_to(here) if started.is_absolute() and started.is_relative_to(here) else started
    )


async def _until_interrupted(cluster: "AsyncCluster", plan: DemoPlan, screen: "Screen") -> None:
    from trimtab.cli.dashboard import announce, start_dashboard
    from trimtab.cli.demo_group import living_group
    from trimtab.errors import SettingsError

    async with living_group(cluster, plan), contextlib.AsyncExitStack() as stack:
        try:
            announce(await start_dashboard(stack, cluster.nameserver, None, None, 0), as_json=False)
        except SettingsError as error:  # the extra is not installed
            screen.say(f"No dashboard: {error}")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    screen.say("The cluster is gone.")


def _judge(counts: "list[GroupCounts]", archived: int | None) -> None:
    """A demo of promises that do not hold must not end well."""
    from trimtab.errors import TrimtabError

    broken = [f"{count.lost} messages were lost in {count.mode} mode" for count in counts if count.lost]
    broken += [
        f"{count.twice_planned} messages came twice in leased mode although no member crashed"
        for count in counts
        if count.mode == "leased" and count.twice_planned
    ]
    sent = sum(count.sent for count in counts)
    if archived is not None and archived < sent:
        broken.append(f"the archive has {archived} of {sent} messages")
    if broken:
        raise TrimtabError(f"{'; '.join(broken)}: please report this with the output of trimtab doctor")
