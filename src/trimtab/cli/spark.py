"""`trimtab spark`: is everything there, and where do queries stand."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.printing import print_json, print_table, say
from trimtab.cli.suggesting import Suggesting

if TYPE_CHECKING:
    from trimtab.model import MessageQueue


@click.group(cls=Suggesting)
def spark() -> None:
    """Look after queries of Spark: what they need, and where they stand."""


@spark.command(
    epilog="""\b
Examples:
  trimtab spark doctor
  trimtab spark doctor --nameserver 10.0.0.5:9876
  trimtab spark doctor --nameserver 10.0.0.5:9876 --round-trip a-topic-for-tests"""
)
@click.option("-n", "--nameserver", help="Also ask this name server.")
@click.option(
    "--round-trip", "topic", metavar="TOPIC", help="Also write a message to this topic, and read it."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(nameserver: str | None, topic: str | None, *, as_json: bool) -> None:
    """Check Java, packages, workers and discovery; exit with 1 if something is missing."""
    from trimtab.spark.doctor import examine

    if topic and not nameserver:
        raise click.UsageError("--round-trip needs --nameserver")
    findings = examine(nameserver, topic)
    if as_json:
        print_json([{"what": f.what, "is_well": f.is_well, "text": f.text} for f in findings])
    else:
        rows = [("ok" if finding.is_well else "NOT OK", finding.what, finding.text) for finding in findings]
        print_table(("", "what", "found"), rows)
    if not all(finding.is_well for finding in findings):
        raise SystemExit(1)


@spark.group()
def offsets() -> None:
    """Offsets in a checkpoint."""


_CHECKPOINT = click.option(
    "-c", "--checkpoint", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The query's checkpointLocation.",
)  # fmt: skip


@offsets.command(
    epilog="""\b
Examples:
  trimtab spark offsets show --checkpoint /data/checkpoints/archive"""
)
@_CHECKPOINT
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(checkpoint: Path, *, as_json: bool) -> None:
    """Show where a query stands: the end of its last batch, queue by queue."""
    from trimtab.spark.checkpoints import read_checkpoint

    last = read_checkpoint(checkpoint)[-1]
    rows = [
        (str(place), queue, offset)
        for place, progress in last.sources.items()
        for queue, offset in sorted(progress.offsets.items(), key=lambda item: str(item[0]))
    ]
    if as_json:
        queues = [
            {"source": int(place), "queue": str(queue), "offset": offset} for place, queue, offset in rows
        ]
        print_json({"batch": last.batch, "done": last.is_done, "queues": queues})
        return
    say(f"batch {last.batch}, {'done' if last.is_done else 'not done: it will be run again'}")
    table = [
        (place, queue.topic, queue.broker_name, str(queue.queue_id), str(offset))
        for place, queue, offset in rows
    ]
    print_table(("source", "topic", "broker", "queue", "offset"), table, right=("queue", "offset"))


@offsets.command(
    epilog="""\b
Examples:
  trimtab spark offsets reset -c /data/checkpoints/archive --to '{"orders": {"broker-a": {"0": 500}}}'"""
)
@_CHECKPOINT
@click.option(
    "--to",
    required=True,
    help="JSON: topic, broker, queue id, offset (0 or more). Queues that are not named stay.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(checkpoint: Path, to: str, *, dry_run: bool, yes: bool) -> None:
    """Let a stopped query go on from other offsets."""
    from trimtab.spark.checkpoints import read_checkpoint, refuse_inexact, set_offsets
    from trimtab.spark.positions import queue_numbers

    wanted = queue_numbers("to", to)
    refuse_inexact(wanted)
    before: dict[MessageQueue, int] = {}
    for progress in read_checkpoint(checkpoint)[-1].sources.values():
        before |= progress.offsets
    rows = [(str(queue), str(before.get(queue, "–")), str(offset)) for queue, offset in wanted.items()]
    print_table(("queue", "before", "after"), rows, right=("before", "after"))
    if dry_run:
        return
    if not yes:
        click.confirm("The query must be stopped. Set these offsets?", abort=True)
    done = set_offsets(checkpoint, wanted)
    say(f"the query goes on after batch {done.batch}")
