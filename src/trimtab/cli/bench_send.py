"""`trimtab bench send`: how fast this client sends to that cluster."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from trimtab.client.send_load import SendLoad, SendReport


QUEUES = 8
"""Of a topic that is made for the bench, on each broker."""


@click.command(
    epilog="Example: trimtab bench send -n 127.0.0.1:9876 --topic bench --messages 100000 --in-flight 1000 --json"
)
@click.option(
    "-n", "--nameserver", envvar="NAMESRV_ADDR", required=True, help="Name servers, host:port;host:port."
)
@click.option("--topic", required=True, help="Sent to; created if it does not exist, with 8 queues a broker.")
@click.option("--messages", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--size", type=click.IntRange(1), default=128, show_default=True, help="Bytes of a body.")
@click.option("--in-flight", type=click.IntRange(1), default=64, show_default=True, help="Sends at once.")
@click.option(
    "--batch", type=click.IntRange(1), default=1, show_default=True, help="Explicit batches of so many."
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Sends begun a second, whatever comes back."
)
@click.option(
    "--policy",
    type=click.Choice(["adaptive", "round-robin", "classic-4.2", "4.9.3"]),
    default="adaptive",
    show_default=True,
    help="How a queue is chosen.",
)
@click.option("--no-batching", is_flag=True, help="Every message leaves by itself.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def send(
    nameserver: str,
    topic: str,
    messages: int,
    size: int,
    in_flight: int,
    batch: int,
    rate: float | None,
    policy: str,
    *,
    no_batching: bool,
    as_json: bool,
) -> None:
    """Send messages and wait for every receipt; exit code 1 if any send failed."""
    from trimtab.cli.shell import NOT_SO
    from trimtab.client.send_load import SendLoad

    load = SendLoad(
        topic=topic,
        messages=messages,
        body_bytes=size,
        in_flight=in_flight,
        batch_messages=batch,
        per_second=rate,
    )
    report = _run(nameserver, load, policy, batching=not no_batching, is_quiet=as_json)
    click.echo(msgspec.json.encode(report).decode() if as_json else _told(report))
    if report.errors:
        raise click.exceptions.Exit(NOT_SO)


def _run(nameserver: str, load: "SendLoad", policy: str, *, batching: bool, is_quiet: bool) -> "SendReport":
    from trimtab.cli.progress import progress_bar
    from trimtab.client.producer import Producer
    from trimtab.client.send_load import run_send_load
    from trimtab.io.loops import new_event_loop
    from trimtab.settings import Sending

    sending = replace(Sending(), policy=policy, batching=batching)

    async def run() -> "SendReport":
        await _make_topic(nameserver, load.topic)
        async with Producer("trimtab-bench", nameserver=nameserver, sending=sending) as producer:
            with progress_bar("sending", load.messages, is_quiet=is_quiet) as advance:
                return await run_send_load(producer, load, progress=advance)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run())


async def _make_topic(nameserver: str, topic: str) -> None:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.reach import NoSuchTopicError

    async with Admin(nameserver=nameserver) as admin:
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
