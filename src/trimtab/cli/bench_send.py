"""`trimtab bench send`: how fast this client sends to that cluster."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from trimtab.cli.amounts import Amount
from trimtab.cli.printing import warn
from trimtab.cli.shell import NOT_SO, Shell, remote

if TYPE_CHECKING:
    from trimtab.client.send_load import SendLoad, SendReport


QUEUES = 8
"""Of a topic that is made for the bench, on each broker."""


@click.command(
    epilog="""\b
Examples:
  trimtab bench send --topic bench
  trimtab bench send --topic bench --messages 20000 --rate 2000 --policy round-robin
  trimtab bench send -n 127.0.0.1:9876 --topic bench --in-flight 1000 --json"""
)
@click.option("--topic", required=True, help="Sent to; created if it does not exist, with 8 queues a broker.")
@click.option("--messages", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--size", type=click.IntRange(1), default=128, show_default=True, help="Bytes of a body.")
@click.option("--in-flight", type=click.IntRange(1), default=64, show_default=True, help="Sends at once.")
@click.option(
    "--batch", type=click.IntRange(1), default=1, show_default=True, help="Explicit batches of so many."
)
@click.option("--rate", type=Amount(0, min_open=True), help="Sends begun a second, whatever comes back.")
@click.option(
    "--policy",
    type=click.Choice(["adaptive", "round-robin", "classic-4.2", "4.9.3"]),
    default="adaptive",
    show_default=True,
    help="How a queue is chosen.",
)
@click.option("--no-batching", is_flag=True, help="Every message leaves by itself.")
@remote
def send(
    shell: Shell,
    topic: str,
    messages: int,
    size: int,
    in_flight: int,
    batch: int,
    rate: float | None,
    policy: str,
    *,
    no_batching: bool,
) -> None:
    """Send messages and wait for every receipt; exit code 1 if any send failed."""
    import msgspec

    from trimtab.client.send_load import SendLoad

    load = SendLoad(
        topic=topic,
        messages=messages,
        body_bytes=size,
        in_flight=in_flight,
        batch_messages=batch,
        per_second=rate,
    )
    report = _run(shell, load, policy, batching=not no_batching)
    click.echo(msgspec.json.encode(report).decode() if shell.as_json else _told(report))
    if report.errors:
        warn(f"the first error: {report.first_error}")
        raise click.exceptions.Exit(NOT_SO)


def _run(shell: Shell, load: "SendLoad", policy: str, *, batching: bool) -> "SendReport":
    import asyncio

    from trimtab.cli.progress import progress_bar
    from trimtab.client.producer import Producer
    from trimtab.client.send_load import run_send_load
    from trimtab.io.loops import new_event_loop
    from trimtab.settings import Sending

    sending = replace(Sending(), policy=policy, batching=batching)

    async def run() -> "SendReport":
        await _make_topic(shell, load.topic)
        async with Producer("trimtab-bench", sending=sending, **shell.target.options()) as producer:
            with progress_bar("sending", load.messages, is_quiet=shell.as_json) as advance:
                return await run_send_load(producer, load, progress=None if shell.as_json else advance)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run())


async def _make_topic(shell: Shell, topic: str) -> None:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.reach import NoSuchTopicError

    async with Admin(**shell.target.options()) as admin:
        try:
            await admin.topic_route(topic)
        except NoSuchTopicError:
            await admin.create_topic(topic, queues=QUEUES)


def _told(report: "SendReport") -> str:
    shares = ", ".join(f"{name} {count:,}" for name, count in sorted(report.shares.items()))
    return (
        f"{report.messages:,} messages in {report.seconds:.2f} s: {report.messages_per_second:,.0f}/s,"
        f" p50 {report.p50_ms:.2f} ms, p99 {report.p99_ms:.2f} ms, {report.errors} errors ({shares})"
    )
