"""`trimtab pipeline`: ready pipelines on Spark, on a cluster of yours or on messages made for the purpose."""

from dataclasses import astuple, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.pipeline_job import Job, job
from trimtab.cli.printing import print_json, print_table
from trimtab.cli.suggesting import Suggesting
from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAMPLE_MESSAGES = 2_000
SAMPLE_LETTERS = 60

_TOPIC = click.option("-t", "--topic", default="orders", show_default=True)
_EVERY = click.option(
    "--every", help="Go on, with a batch this often: '10 minutes'. Without it, what is there now."
)


@click.group(cls=Suggesting)
def pipeline() -> None:
    """Run ready pipelines on Spark. Without --nameserver each makes a cluster and messages of its own."""


@pipeline.command("list", epilog="Example: trimtab pipeline list --json")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def list_all(context: click.Context, *, as_json: bool) -> None:
    """List the pipelines there are."""
    assert context.parent is not None, "it belongs to a group"
    found = [
        (name, command.get_short_help_str(120))
        for name, command in sorted(pipeline.commands.items())
        if name != "list"
    ]
    if as_json:
        print_json([{"name": name, "what": what} for name, what in found])
    else:
        print_table(("pipeline", "what it does"), found)


def _orders(address: str) -> Any:
    from trimtab.pipelines.samples import send_orders

    return send_orders(address, SAMPLE_MESSAGES)


@pipeline.command(
    "balance-report",
    epilog="""\b
Examples:
  trimtab pipeline balance-report
  trimtab pipeline balance-report -n 10.0.0.5:9876 -o /data/report --topic orders
\b
Consumers must be traced: enableMsgTrace in Java, Consuming(trace=True) here.""",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    help="A topic whose producers are not traced; can be said more than once.",
)
@click.option("--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True)
@click.option(
    "--flights-topic",
    default="trimtab-flights",
    show_default=True,
    help="Where members publish flight recorders.",
)
@job("balance-report")
def balance(run: Job, topics: tuple[str, ...], trace_topic: str, flights_topic: str) -> None:
    """Who held which queue when, what came twice, how even the load was, from the trace topic and flight recorders."""

    def changes(address: str) -> Any:
        from trimtab.pipelines.samples import trace_changes

        return trace_changes(address)

    with run.cluster(changes) as options, run.spark() as spark:
        from trimtab.pipelines.balance import balance_report
        from trimtab.pipelines.balance_page import TITLES

        report = balance_report(
            spark, run.folder, options=options, topics=topics, trace_topic=trace_topic, flights_topic=flights_topic,
            say=run.say,
        )  # fmt: skip
    run.finish(TITLES, [astuple(facts) for facts in report.groups], report.page, run.folder)


@pipeline.command(
    epilog="""\b
Examples:
  trimtab pipeline archive
  trimtab pipeline archive -n 10.0.0.5:9876 --topic orders -o /data/orders --every '10 minutes'
  trimtab pipeline archive -n 10.0.0.5:9876 --topic orders -o /data/orders --compact-into /data/orders-compact"""
)
@_TOPIC
@_EVERY
@click.option(
    "--compact-into", help="Afterwards write few large files from the many small ones, into this folder."
)
@click.option("--compact-until", help="Leave out hours from this time on: '2026-11-16 10:00'.")
@job("archive")
def archive(
    run: Job, topic: str, every: str | None, compact_into: str | None, compact_until: str | None
) -> None:
    """A topic as Parquet by date and hour, each message once."""
    run = _with_fresh_folder(run)
    with run.cluster(_orders) as options, run.spark() as spark:
        from trimtab.pipelines.compaction import compact
        from trimtab.pipelines.streams import archive as start
        from trimtab.pipelines.streams import archived_hours

        run.say(f"reading {topic}")
        start(spark, str(run.folder), options={**options, "topic": topic}, every=every).awaitTermination()
        rows = archived_hours(spark, str(run.folder))
        if compact_into is not None and rows:
            run.say("making few files of many")
            done = compact(spark, str(run.folder), compact_into, until=compact_until)
            run.say(
                f"{done.files_before} files of {done.hours} hours are {done.files_after} files in {compact_into} now"
            )
    run.finish(("date", "hour", "messages"), rows, run.folder)


@pipeline.command(
    epilog="""\b
Examples:
  trimtab pipeline backfill --since -2h
  trimtab pipeline backfill -n 10.0.0.5:9876 --topic orders --since 2026-11-01T00:00:00Z --until 2026-11-02T00:00:00Z"""
)
@_TOPIC
@click.option(
    "--since", default="-1h", show_default=True, help="Milliseconds, ISO 8601 or a span before now."
)
@click.option("--until", help="Likewise; without it, now.")
@job("backfill")
def backfill(run: Job, topic: str, since: str, until: str | None) -> None:
    """The messages of a stretch of time as Parquet."""
    with run.cluster(_orders) as options, run.spark() as spark:
        from trimtab.pipelines.streams import backfill as read

        run.say(f"reading {topic} from {since} on")
        _kept(run, read(spark, since, until, options={**options, "topic": topic}))
        rows = _by_queue(spark.read.parquet(str(run.folder)))
    run.finish(("topic", "broker", "queue", "messages"), rows, run.folder)


@pipeline.command(
    epilog="Example: trimtab pipeline dedup -n 10.0.0.5:9876 --topic orders -o /data/orders-once"
)
@_TOPIC
@click.option("--by", default="keys", show_default=True, help="The column by which messages are the same.")
@job("dedup")
def dedup(run: Job, topic: str, by: str) -> None:
    """A topic as Parquet, of messages with the same keys the first."""
    with run.cluster(_orders) as options, run.spark() as spark:
        from trimtab.pipelines.streams import dedup as once

        run.say(f"reading {topic}")
        df = spark.read.format("rocketmq").options(**options, topic=topic).load()
        _kept(run, once(df, by=by))
        all_of_them, kept = df.count(), spark.read.parquet(str(run.folder)).count()
    run.finish(
        ("topic", "messages", "kept", "left out"),
        [(topic, all_of_them, kept, all_of_them - kept)],
        run.folder,
    )


@pipeline.command(
    epilog="Example: trimtab pipeline windows -n 10.0.0.5:9876 --topic orders --width '5 minutes' --by tag"
)
@_TOPIC
@click.option("--width", default="1 minute", show_default=True)
@click.option("--by", default="tag", show_default=True, help="The column to count by.")
@job("windows")
def windows(run: Job, topic: str, width: str, by: str) -> None:
    """Messages, bytes and delay by time of birth and by a column."""
    with run.cluster(_orders) as options, run.spark() as spark:
        from trimtab.pipelines.streams import windows as counted

        run.say(f"reading {topic}")
        _kept(
            run,
            counted(spark.read.format("rocketmq").options(**options, topic=topic).load(), width=width, by=by),
        )
        found = spark.read.parquet(str(run.folder)).orderBy("window.start", by).limit(50)
        rows = [
            (str(row.window.start), str(row[by]), row.messages, row.bytes, row.delay_ms_max)
            for row in found.collect()
        ]
    run.finish(("from", by, "messages", "bytes", "delay ms max"), rows, run.folder)


@pipeline.command(
    epilog="""\b
Examples:
  trimtab pipeline mirror
  trimtab pipeline mirror -n 10.0.0.5:9876 --topic orders --to-nameserver 10.1.0.5:9876 --every '5 seconds'"""
)
@_TOPIC
@_EVERY
@click.option("--to-topic", help="The other topic; TOPIC-mirror, if not said and the cluster is the same.")
@click.option("--to-nameserver", help="The other cluster; the same, if not said.")
@job("mirror")
def mirror(run: Job, topic: str, every: str | None, to_topic: str | None, to_nameserver: str | None) -> None:
    """A topic into another one, of this cluster or another; order by key stays."""
    run = _with_fresh_folder(run)
    with run.cluster(_orders) as options, run.spark() as spark:
        from trimtab.pipelines.streams import mirror as start

        sink = run.sink({**options, "nameserver": to_nameserver or options["nameserver"]})
        target = to_topic or (topic if to_nameserver else f"{topic}-mirror")
        run.say(f"copying {topic} to {target}")
        query = start(
            spark, source={**options, "topic": topic}, sink={**sink, "topic": target},
            checkpoint=str(run.folder / "checkpoint"), every=every,
        )  # fmt: skip
        query.awaitTermination()
        # The property, not the key: over Spark Connect only the sources have a number.
        copied = sum(progress.numInputRows for progress in query.recentProgress)
    run.finish(("from", "to", "messages"), [(topic, target, copied)], run.folder)


@pipeline.command(
    epilog="""\b
Examples:
  trimtab pipeline dlq
  trimtab pipeline dlq -n 10.0.0.5:9876 --group billing
  trimtab pipeline dlq -n 10.0.0.5:9876 --group billing --replay --where "cause = 'TIME_OUT' AND tag = 'eu'"
\b
Causes come from the trace topic. Letters stay where they are: a second replay sends them once more."""
)
@click.option("-g", "--group", default="billing", show_default=True)
@click.option("--where", default="true", help="Only these, in SQL: columns of the source, origin, cause.")
@click.option(
    "--replay", "replays", is_flag=True, help="Send them to their topic again, for every group that reads it."
)
@click.option("--retries", "with_retries", is_flag=True, help="Count what the group asked to get again, too.")
@click.option("--no-trace", is_flag=True, help="Do not look for causes.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@job("dlq")
def dlq(
    run: Job, group: str, where: str, *, replays: bool, with_retries: bool, no_trace: bool, yes: bool
) -> None:
    """Dead letters by topic, cause, tag and tries; chosen ones to their topic again."""

    def letters_sample(address: str) -> Any:
        from trimtab.pipelines.samples import fail_some

        return fail_some(address, SAMPLE_LETTERS)

    with run.cluster(letters_sample) as options, run.spark() as spark:
        from trimtab.pipelines.letters import analysis, chosen, dead_letters, replay, retries

        run.say(f"reading the dead letters of {group}")
        dead = chosen(dead_letters(spark, group, options=options, with_trace=not no_trace), where)
        looked_at = dead
        if with_retries:
            again = retries(spark, group, options=options, with_trace=not no_trace)
            looked_at = dead.unionByName(chosen(again, where))
        _kept(run, analysis(looked_at))
        titles = ("state", "origin", "cause", "tag", "reconsumeTimes", "messages", "bytes")
        rows = [
            tuple(row)
            for row in spark.read.parquet(str(run.folder))
            .select(*titles)
            .orderBy("origin", "cause")
            .collect()
        ]
        if replays:
            count = dead.count()
            if not yes:
                click.confirm(f"Send {count} dead letter(s) to their topics again?", abort=True, err=True)
            run.say(f"sent {replay(dead, options=run.sink(options))} dead letters to their topics")
    run.finish(titles, rows, run.folder)


@pipeline.command(
    epilog="""\b
Examples:
  trimtab pipeline sweep
  trimtab pipeline sweep -s rolling-restart -s crash --seeds 1000 --members 300 --queues 1000 --master spark://host:7077
\b
`trimtab sim list` names the scenarios."""
)
@click.option(
    "-s", "--scenario", "scenarios", multiple=True, default=("join", "leave", "crash"), show_default=True
)
@click.option(
    "--way",
    "ways",
    multiple=True,
    metavar="MODE:STRATEGY",
    help="leased:sticky and so on; the usual ones, if not said.",
)
@click.option("--seeds", type=click.IntRange(1), default=4, show_default=True)
@click.option("--members", type=click.IntRange(2))
@click.option("--queues", type=click.IntRange(1))
@click.option("--brokers", type=click.IntRange(1))
@job("sweep")
def sweep(
    run: Job, scenarios: tuple[str, ...], ways: tuple[str, ...], seeds: int, **world: int | None
) -> None:
    """Many runs of the simulator: scenario by mode, strategy and seed."""
    from trimtab.sim.scenarios import scenario_by_name

    for scenario in scenarios:
        scenario_by_name(scenario)
    with run.spark() as spark:
        from trimtab.pipelines.sweep import PAGE, TITLES, WAYS
        from trimtab.pipelines.sweep import sweep as play

        chosen = [tuple(way.partition(":")[::2]) for way in ways] or WAYS
        run.say(f"playing {len(scenarios) * len(chosen) * seeds} runs")
        given = {name: value for name, value in world.items() if value is not None}
        rows = play(spark, run.folder, scenarios=scenarios, ways=chosen, seeds=seeds, world=given)
    run.finish(TITLES, rows, run.folder / PAGE, run.folder)


def _with_fresh_folder(run: Job) -> Job:
    """A sample is a new cluster in every run: it cannot go on with the checkpoint of another one."""
    if run.nameserver is not None or not is_taken(run.folder):
        return run
    if run.folder != Path(f"trimtab-{run.name}").absolute():
        raise TrimtabError(
            f"{run.folder} is not empty, and a sample run begins anew: choose another folder with --out, or name a cluster with"
            " --nameserver"
        )
    return replace(run, folder=free_folder(run.folder))


def is_taken(folder: Path) -> bool:
    """Whether something lies in a folder."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def free_folder(folder: Path) -> Path:
    """The folder, or the first of those named after it, with nothing in it: `trimtab-archive-2`."""
    later = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(free for free in chain((folder,), later) if not is_taken(free))


def _kept(run: Job, df: "DataFrame") -> None:
    df.write.mode("overwrite").parquet(str(run.folder))


def _by_queue(df: "DataFrame") -> list[tuple[str, str, int, int]]:
    counted = df.groupBy("topic", "brokerName", "queueId").count().orderBy("topic", "brokerName", "queueId")
    return [(row[0], row[1], row[2], row[3]) for row in counted.collect()]
