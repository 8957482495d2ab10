"""`trimtab bench rebalance`: what planned membership changes cost on that cluster."""

import os
from typing import Any

import click

from trimtab.cli.amounts import Amount
from trimtab.cli.shell import Shell, remote


@click.command(
    epilog="""\b
Examples:
  trimtab bench rebalance --changes 4 --rate 500
  trimtab bench rebalance --changes 4 --rate 500 --mode classic
  trimtab bench rebalance -n 127.0.0.1:9876 --members 4 --changes 8 --stable-ids --json"""
)
@click.option("--members", type=click.IntRange(2, 100), default=4, show_default=True)
@click.option(
    "--changes", type=click.IntRange(0, 1_000), default=8, show_default=True, help="Leaves and joins in turn."
)
@click.option("--rate", type=click.IntRange(1), default=2_000, show_default=True, help="Messages a second.")
@click.option(
    "--handler-ms", type=click.IntRange(0), default=30, show_default=True, help="How long a handler takes."
)
@click.option("--mode", type=click.Choice(["classic", "leased"]), default="leased", show_default=True)
@click.option("--strategy", help="AVG, sticky and so on; the mode's own, if none is given.")
@click.option("--queues", type=click.IntRange(1, 1_000), default=16, show_default=True)
@click.option("--pause-s", type=Amount(0), default=5.0, show_default=True, help="Between two changes.")
@click.option("--stable-ids", is_flag=True, help="Changes are restarts under the same id.")
@remote
def rebalance(shell: Shell, *, rate: int, stable_ids: bool, **options: Any) -> None:
    """Let members leave and join under load, in a topic and group of their own, and count what that costs."""
    import asyncio

    import msgspec

    from trimtab.client.rebalance_load import RebalanceLoad, RebalanceReport, run_rebalance_load
    from trimtab.io.chance import seeded_chance
    from trimtab.io.loops import new_event_loop

    name = f"trimtab-rebalance-{os.getpid()}-{seeded_chance().randbytes(3).hex()}"
    load = RebalanceLoad(
        topic=name,
        group=name,
        per_second=rate,
        has_stable_ids=stable_ids,
        **shell.target.options(),
        **options,
    )

    async def run() -> RebalanceReport:
        return await run_rebalance_load(load, told=(lambda _: None) if shell.as_json else _tell)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report = runner.run(run())
    if shell.as_json:
        click.echo(msgspec.json.encode(report).decode())
        return
    for field, value in msgspec.structs.asdict(report).items():
        click.echo(f"{field:18} {value:,.3f}" if isinstance(value, float) else f"{field:18} {value}")


def _tell(what: str) -> None:
    click.echo(f"  {what}", err=True)
