"""`trimtab bench drain`: how fast this client reads what is in a topic."""

import os

import click

from trimtab.cli.shell import Shell, remote


@click.command(
    epilog="""\b
Examples:
  trimtab bench drain --topic bench
  trimtab bench drain --topic bench --api push --batch 32
  trimtab bench drain -n 127.0.0.1:9876 --topic bench --api columns --json"""
)
@click.option("--topic", required=True, help="Read as it is now; what is sent meanwhile is not waited for.")
@click.option(
    "--group", help="Begin where this group stands, and commit. Without it all is read, and nothing kept."
)
@click.option(
    "--api",
    type=click.Choice(["push", "pull", "columns"]),
    default="pull",
    show_default=True,
    help="A handler, polls, or Arrow columns.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Push: messages for one handler at most.",
)
@click.option("--depth", type=click.IntRange(1, 64), help="Pulls of one queue on their way at once.")
@remote
def drain(shell: Shell, topic: str, group: str | None, api: str, batch: int, depth: int | None) -> None:
    """Read everything that is in a topic now, then exit."""
    import asyncio

    import msgspec

    from trimtab.cli.progress import progress_bar
    from trimtab.client.pulls_drain import DrainLoad, DrainReport, run_drain
    from trimtab.io.chance import seeded_chance
    from trimtab.io.loops import new_event_loop
    from trimtab.settings import Pulling

    load = DrainLoad(
        **shell.target.options(),
        topic=topic,
        group=group or f"trimtab-drain-{os.getpid()}-{seeded_chance().randbytes(3).hex()}",
        api=api,  # type: ignore[arg-type]  # click checked it
        keeps_offsets=group is not None,
        batch_messages=batch,
        pulling=Pulling() if depth is None else Pulling(depth_max=depth),
    )

    async def run() -> DrainReport:
        with progress_bar("draining", None, is_quiet=shell.as_json) as advance:
            return await run_drain(load, None if shell.as_json else advance)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report = runner.run(run())
    if shell.as_json:
        click.echo(msgspec.json.encode(report).decode())
        return
    wasted = f", {report.pulls:,} pulls, {report.wasted_pulls} of them for nothing"
    missed = f"; {report.missed:,} were deleted meanwhile" if report.missed else ""
    click.echo(
        f"{report.messages:,} messages in {report.seconds:.2f} s: {report.messages_per_second:,.0f}/s"
        f" by {report.api}{wasted}{missed}"
    )
