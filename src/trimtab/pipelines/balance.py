"""How a group's load was shared, from the trace topic alone: for applications in Java as for ours.

Trace records say who handled which message when; the topics themselves say in which queue it lay. What is found are Parquet tables
and one page to look at. Only what is delivered shows: a queue nobody writes to has no holder here. Where the members of a group publish
their flight recorders (`Consuming(record_to=...)`), who held what is taken from these instead, with the causes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as f

from trimtab.balance.flights import FlightLine, lines_of
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.pipelines.balance_page import balance_page
from trimtab.pipelines.flight_spans import TOLD, recorded_spans
from trimtab.pipelines.holders import GroupFacts, Move, Span, facts_of, moves_of
from trimtab.pipelines.trace_records import TraceRow, member_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
FLIGHTS_TOPIC = "trimtab-flights"
LINES_MAX = 1_000_000
RETURN_MS = 3_000
"""A member that handles a queue again after longer than that, with others in between, had lost it meanwhile."""
SPANS_MAX = 200_000
PAGE_ROWS_MAX = 200
BUCKETS = 60
PAGE = "report.html"
RETRY_PREFIX = "%RETRY%"

_TRACE_SCHEMA = (
    "kind string, message_id string, ok boolean, at_ms long, `group` string, request_id string, topic string, retries int,"
    " cost_ms long, result string, member string"
)
_ARROW_TYPES = {"string": pa.string(), "boolean": pa.bool_(), "long": pa.int64(), "int": pa.int32()}
_TRACE_ARROW = pa.schema(
    [
        pa.field(name.strip("`"), _ARROW_TYPES[kind])
        for name, kind in (column.split() for column in _TRACE_SCHEMA.split(","))
    ]
)
_FLIGHTS_SCHEMA = (
    "v int, `group` string, client_id string, number long, at_ms long, kind string, cause string, topic string, broker string,"
    " queue int, other string, offset long, duration_ms long, in_flight long, detail string"
)
_FLIGHTS_ARROW = pa.schema(
    [
        pa.field(name.strip("`"), _ARROW_TYPES[kind])
        for name, kind in (column.split() for column in _FLIGHTS_SCHEMA.split(","))
    ]
)
_QUEUE = ("group", "topic", "broker", "queue")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BalanceReport:
    """What was found, and where the tables and the page lie."""

    folder: Path
    groups: list[GroupFacts]
    moves: list[Move]
    latency: list[dict[str, Any]]
    recorded: tuple[str, ...] = ()
    """The groups of which the holders come from flight recorders; those of the others are inferred from deliveries."""

    @property
    def page(self) -> Path:
        """One HTML file that needs nothing else."""
        return self.folder / PAGE


def trace_rows(spark: "SparkSession", options: Mapping[str, str]) -> "DataFrame":
    """The trace topic, a row a record, with the member that wrote it. `options` are those of the source."""
    bodies = (
        spark.read.format("rocketmq")
        .options(**{"includeSystemTopics": "true", "topic": TRACE_TOPIC, **options, "columns": "body"})
        .load()
    )
    return bodies.mapInArrow(_parse, _TRACE_SCHEMA)


def _parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [row for body in batch.column(0).to_pylist() for row in rows_of(body or b"")]
        columns: dict[str, list[Any]] = {
            name: [row[at] for row in rows] for at, name in enumerate(TraceRow._fields)
        }
        members: dict[str, str] = {}
        columns["member"] = [
            None if row.request_id is None else members.setdefault(row.request_id, member_of(row.request_id))
            for row in rows
        ]
        yield pa.RecordBatch.from_pydict(columns, schema=_TRACE_ARROW)


def flight_rows(spark: "SparkSession", options: Mapping[str, str], topic: str = FLIGHTS_TOPIC) -> "DataFrame":
    """The events that members published, a row a line; none if there is no such topic."""
    # A pattern, because it passes over a topic that is not there.
    read = spark.read.format("rocketmq").options(**options, topicPattern=re.escape(topic), columns="body")
    return read.load().mapInArrow(_parse_flights, _FLIGHTS_SCHEMA)


def _parse_flights(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = FlightLine.__struct_fields__
    for batch in batches:
        lines = [line for body in batch.column(0).to_pylist() for line in lines_of(body or b"").lines]
        yield pa.RecordBatch.from_pydict(
            {name: [getattr(line, name) for line in lines] for name in names}, schema=_FLIGHTS_ARROW
        )


def deliveries(traces: "DataFrame", messages: "DataFrame") -> "DataFrame":
    """Every call of a handler with a message: who, when, how it ended, and the queue it lay in. `messages` are the topics' own."""
    began = (
        traces.where("kind = 'SubBefore'")
        .dropDuplicates(["request_id", "message_id"])
        .selectExpr("`group`", "member", "request_id", "message_id", "retries", "at_ms AS began_ms")
    )
    ended = (
        traces.where("kind = 'SubAfter'")
        .dropDuplicates(["request_id", "message_id"])
        .selectExpr("request_id", "message_id", "at_ms", "cost_ms", "ok", "result")
    )
    lay = messages.selectExpr(
        "msgId AS message_id", "topic", "brokerName AS broker", "queueId AS queue", "queueOffset AS offset",
        "unix_millis(bornTimestamp) AS born_ms", "unix_millis(storeTimestamp) AS stored_ms",
    ).dropDuplicates(["message_id"])  # fmt: skip
    return (
        began.join(ended, ["request_id", "message_id"], "left")
        .join(lay, "message_id", "left")
        .selectExpr(
            "`group`", "member", "topic", "broker", "queue", "offset", "message_id", "request_id", "retries", "born_ms",
            "stored_ms", "began_ms", "coalesce(at_ms, began_ms + cost_ms, began_ms) AS ended_ms", "ok", "result",
        )
    )  # fmt: skip


def spans(delivered: "DataFrame", return_ms: int = RETURN_MS) -> "DataFrame":
    """Who handled a queue from when to when.

    A member that goes on with the message after its own last one, soon and though others were there meanwhile, had not let the
    queue go. One that goes on after what others handled had lost it and got it back.
    """
    order = ("began_ms", "offset", "member")
    everybody = Window.partitionBy(*_QUEUE).orderBy(*order)
    one = Window.partitionBy(*_QUEUE, "member").orderBy(*order)
    before = one.rowsBetween(Window.unboundedPreceding, -1)
    own_end = f.max("ended_ms").over(before)
    place = f.dense_rank().over(Window.partitionBy(*_QUEUE).orderBy("offset"))
    was_elsewhere = (f.col("began_ms") - own_end > return_ms) | (
        f.col("place") > f.max("place").over(before) + 1
    )
    is_new = own_end.isNull() | ((f.lag("member").over(everybody) != f.col("member")) & was_elsewhere)
    first = delivered.where("retries = 0 AND queue IS NOT NULL").withColumn("place", place)
    return (
        first.withColumn("is_new", is_new.cast("int"))
        .withColumn("span", f.sum("is_new").over(one))
        .groupBy(*_QUEUE, "member", "span")
        .agg(
            f.min("began_ms").alias("from_ms"),
            f.max("ended_ms").alias("until_ms"),
            f.count("*").alias("messages"),
            f.min_by("stored_ms", "began_ms").alias("first_stored_ms"),
        )
        .drop("span")
    )


def twice(delivered: "DataFrame") -> "DataFrame":
    """Messages that a group got more than once without having asked for another try, and who got them."""
    return (
        delivered.groupBy("group", "message_id", "topic", "broker", "queue", "offset", "retries")
        .agg(
            f.count("*").alias("times"),
            f.sort_array(f.collect_set("member")).alias("members"),
            f.min("began_ms").alias("first_ms"),
            f.max("began_ms").alias("last_ms"),
        )
        .where("times > 1")
    )


def latency(delivered: "DataFrame") -> "DataFrame":
    """Percentiles by group, in milliseconds: waiting in the queue, handling, and from birth to the handler's end."""
    shares = f.array(*(f.lit(share) for share in (0.5, 0.95, 0.99, 1.0)))
    spent = delivered.where("retries = 0 AND stored_ms IS NOT NULL").selectExpr(
        "`group`",
        "inline(array("
        "named_struct('what', 'queueing', 'ms', began_ms - stored_ms),"
        " named_struct('what', 'handling', 'ms', ended_ms - began_ms),"
        " named_struct('what', 'end to end', 'ms', ended_ms - born_ms)))",
    )
    found = spent.groupBy("group", "what").agg(
        f.count("*").alias("messages"), f.percentile_approx("ms", shares).alias("ms")
    )
    return found.selectExpr(
        "`group`", "what", "messages", "ms[0] AS p50", "ms[1] AS p95", "ms[2] AS p99", "ms[3] AS max"
    ).orderBy("group", "what")


def over_time(delivered: "DataFrame", width_ms: int) -> "DataFrame":
    """How many deliveries by member and queue in each stretch of time."""
    at = (f.col("began_ms") - f.col("began_ms") % width_ms).alias("at_ms")
    return delivered.groupBy("group", "member", "topic", "broker", "queue", at).agg(
        f.count("*").alias("deliveries")
    )


def balance_report(
    spark: "SparkSession",
    folder: str | Path,
    *,
    options: Mapping[str, str],
    topics: tuple[str, ...] = (),
    trace_topic: str = TRACE_TOPIC,
    flights_topic: str = FLIGHTS_TOPIC,
    return_ms: int = RETURN_MS,
    say: Say = lambda _: None,
) -> BalanceReport:
    """Reads the trace topic and the topics it tells of, and writes tables and a page into `folder`.

    `options` say where the cluster is. `topics` are those whose producers are not traced.
    """
    folder = Path(folder)
    say(f"reading {trace_topic}")
    trace_rows(spark, {**options, "topic": trace_topic}).write.mode("overwrite").parquet(_in(folder, "trace"))
    traces = spark.read.parquet(_in(folder, "trace"))
    told = [row.topic for row in traces.where("kind = 'Pub'").select("topic").distinct().collect()]
    wanted = sorted({*told, *topics})
    if traces.where("kind = 'SubBefore'").isEmpty():
        raise TrimtabError(
            f"{trace_topic} tells of no delivery: switch message trace on in the consumers (enableMsgTrace in Java, trace=True in Consuming)"
        )
    if not wanted:
        raise TrimtabError(
            f"{trace_topic} tells of no topic, because no producer is traced: name the topics with --topic"
        )
    say(f"finding the queues of what was delivered, in {', '.join(wanted)}")
    columns = "msgId,topic,brokerName,queueId,queueOffset,bornTimestamp,storeTimestamp"
    messages = (
        spark.read.format("rocketmq").options(**options, topicPattern=_one_of(wanted), columns=columns).load()
    )
    deliveries(traces, messages).write.mode("overwrite").parquet(_in(folder, "deliveries"))
    delivered = spark.read.parquet(_in(folder, "deliveries"))
    say(f"who held which queue (from {flights_topic} where it tells), what came twice, how long it took")
    flight_rows(spark, options, flights_topic).write.mode("overwrite").parquet(_in(folder, "flights"))
    return _report(spark, folder, delivered, return_ms, _told(spark, folder))


def _told(spark: "SparkSession", folder: Path) -> list[FlightLine]:
    rows = spark.read.parquet(_in(folder, "flights")).where(f.col("kind").isin(sorted(TOLD)))
    told = [FlightLine(**row.asDict()) for row in rows.limit(LINES_MAX + 1).collect()]
    if len(told) > LINES_MAX:
        raise TrimtabError(
            f"members published more than {LINES_MAX:,} events: take a shorter time or fewer groups; all of them are in"
            f" {_in(folder, 'flights')}"
        )
    return sorted(told, key=lambda line: (line.at_ms, line.client_id, line.number))


def _report(
    spark: "SparkSession", folder: Path, delivered: "DataFrame", return_ms: int, told: list[FlightLine]
) -> BalanceReport:
    first_ms, last_ms = delivered.agg(f.min("began_ms"), f.max("ended_ms")).first() or (0, 0)
    width_ms = max(1_000, (last_ms - first_ms) // BUCKETS // 1_000 * 1_000)
    spans(delivered, return_ms).write.mode("overwrite").parquet(_in(folder, "holders"))
    twice(delivered).write.mode("overwrite").parquet(_in(folder, "twice"))
    latency(delivered).write.mode("overwrite").parquet(_in(folder, "latency"))
    over_time(delivered, width_ms).write.mode("overwrite").parquet(_in(folder, "over_time"))
    held = [
        Span(row.group, MessageQueue(row.topic, row.broker, row.queue), row.member, row.from_ms, row.until_ms,
             row.messages, row.first_stored_ms)
        for row in spark.read.parquet(_in(folder, "holders")).limit(SPANS_MAX + 1).orderBy("from_ms").collect()
    ]  # fmt: skip
    if len(held) > SPANS_MAX:
        raise TrimtabError(
            f"the report would draw more than {SPANS_MAX:,} changes of holders: take a shorter time or fewer groups;"
            f" all of them are in {_in(folder, 'holders')}"
        )
    recorded = tuple(sorted({line.group for line in told if line.group in {span.group for span in held}}))
    held = [span for span in held if span.group not in recorded]
    held += [
        span
        for span in recorded_spans(told)
        if span.group in recorded and not span.queue.topic.startswith(RETRY_PREFIX)
    ]
    moves = moves_of(held)
    loads = {
        (row.group, row.member): row["count"]
        for row in delivered.groupBy("group", "member").count().collect()
    }
    again = spark.read.parquet(_in(folder, "twice"))
    counts = {row.group: row["count"] for row in again.groupBy("group").count().collect()}
    groups = facts_of(held, moves, loads, counts)
    _write_moves(spark, folder, moves)
    spark.createDataFrame([asdict(facts) for facts in groups]).coalesce(1).write.mode("overwrite").parquet(
        _in(folder, "groups")
    )
    waits = [row.asDict() for row in spark.read.parquet(_in(folder, "latency")).collect()]
    rates = spark.read.parquet(_in(folder, "over_time")).groupBy("group", "member", "at_ms").sum("deliveries")
    page = balance_page(
        groups=groups,
        spans=held,
        moves=moves,
        loads=loads,
        rates=[(row.group, row.member, row.at_ms, row[3]) for row in rates.collect()],
        width_ms=width_ms,
        latency=waits,
        twice=[row.asDict() for row in again.orderBy("first_ms").limit(PAGE_ROWS_MAX).collect()],
        told=[line for line in told if line.group in recorded],
    )
    (folder / PAGE).write_text(page, encoding="utf-8")
    return BalanceReport(folder, groups, moves, waits, recorded)


def _write_moves(spark: "SparkSession", folder: Path, moves: list[Move]) -> None:
    schema = (
        "`group` string, topic string, broker string, queue int, at_ms long, before string, after string, unheld_ms long,"
        " overlap_ms long"
    )
    rows = [
        (m.group, m.queue.topic, m.queue.broker_name, m.queue.queue_id, m.at_ms, m.before, m.after, m.unheld_ms, m.overlap_ms)
        for m in moves
    ]  # fmt: skip
    spark.createDataFrame(rows, schema).coalesce(1).write.mode("overwrite").parquet(_in(folder, "moves"))


def _in(folder: Path, table: str) -> str:
    return str(folder / f"{table}.parquet")


def _one_of(topics: list[str]) -> str:
    """A pattern, because it passes over topics that are gone."""
    return "|".join(map(re.escape, topics))
