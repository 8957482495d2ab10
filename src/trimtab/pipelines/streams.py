"""Ready streams and tables on topics. Each is a function over a Spark session or a DataFrame, and can be a part of something larger."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType

from trimtab.errors import SettingsError
from trimtab.pipelines.belonging import Identity, claim, identity_of
from trimtab.spark.replays import STORED_ORDER, first_stored
from trimtab.spark.sink_encoding import SHARDING_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECORDS_PER_FILE_MAX = 1_000_000
_IDENTITY = "__trimtab_same"


def archive(
    spark: "SparkSession",
    folder: str,
    *,
    options: Mapping[str, str],
    checkpoint: str | None = None,
    every: str | None = None,
    records_per_file_max: int = RECORDS_PER_FILE_MAX,
) -> "StreamingQuery":
    """A topic as Parquet files by date and hour of storing, each message once in them.

    Without `every` it takes what is there and ends; with `every` ("10 minutes") it goes on. `options` are those of the
    source; it begins at the earliest message unless they say otherwise. A checkpoint that was made for another source is refused.
    """
    place = checkpoint or f"{folder}/_checkpoint"
    claim(spark, place, {"source": _identity(options)})
    stored = f.col("storeTimestamp")
    df = _stream(spark, options)
    dated = df.withColumn("date", f.to_date(stored)).withColumn("hour", f.hour(stored))
    writer: Any = (
        dated.writeStream.format("parquet")
        .partitionBy("date", "hour")
        .option("maxRecordsPerFile", records_per_file_max)
        .option("checkpointLocation", place)
    )
    trigger: dict[str, Any] = {"availableNow": True} if every is None else {"processingTime": every}
    query: StreamingQuery = writer.trigger(**trigger).start(folder)
    return query


def archived_hours(spark: "SparkSession", folder: str) -> list[tuple[str, int, int]]:
    """Date, hour and number of messages of each hour in an archive; none where no message was."""
    # With a schema, because Spark finds none in a folder without files.
    rows = spark.read.schema("date date, hour int").parquet(folder)
    hours = rows.groupBy("date", "hour").count().orderBy("date", "hour").collect()
    return [(str(row[0]), row[1], row[2]) for row in hours]


def backfill(
    spark: "SparkSession", start: str, end: str | None = None, *, options: Mapping[str, str]
) -> "DataFrame":
    """The messages stored from `start` up to `end`: milliseconds, ISO 8601 or spans before now (`-2h`)."""
    reader = spark.read.format("rocketmq").options(**options).option("startingTimestamp", start)
    if end is not None:
        reader = reader.option("endingTimestamp", end)
    return reader.load()


def dedup(df: "DataFrame", *, by: str = "keys", within: str = "1 hour") -> "DataFrame":
    """Of messages with the same keys the first.

    In a batch that is the one that was stored first. A stream keeps the first that comes to it, which is the first stored of a
    queue, but not always of several queues; it remembers what came for as long as `within`.

    A message without keys, or without a value in `by`, is like no other: it is known by its id.
    """
    needed = ("msgId",) if df.isStreaming else ("msgId", *STORED_ORDER)
    if missing := [name for name in needed if name not in df.columns]:
        raise SettingsError(
            f"dedup needs the columns {', '.join(missing)} as well; read them, and drop them afterwards"
        )
    column = f.col(by)
    is_list = isinstance(df.schema[by].dataType, ArrayType)
    has_value = f.size(column) > 0 if is_list else column.isNotNull() & (column.cast("string") != "")
    value = f.to_json(f.struct(column))
    named = df.withColumn(_IDENTITY, f.when(has_value, value).otherwise(f.concat(f.lit("id:"), "msgId")))
    if not df.isStreaming:
        return first_stored(named, _IDENTITY).drop(_IDENTITY)
    late = named.withWatermark("storeTimestamp", within)
    return late.dropDuplicatesWithinWatermark([_IDENTITY]).drop(_IDENTITY)


def windows(
    df: "DataFrame", *, width: str = "1 minute", late: str = "1 minute", by: str = "tag"
) -> "DataFrame":
    """How many messages, how many bytes and how old when stored, by time of birth and by a column."""
    born = df.withWatermark("bornTimestamp", late) if df.isStreaming else df
    delay = f.unix_millis("storeTimestamp") - f.unix_millis("bornTimestamp")
    return (
        born.withColumn("delay_ms", delay)
        .groupBy(f.window("bornTimestamp", width), f.col(by))
        .agg(
            f.count("*").alias("messages"),
            f.sum(f.octet_length("body")).alias("bytes"),
            f.avg("delay_ms").alias("delay_ms_mean"),
            f.max("delay_ms").alias("delay_ms_max"),
        )
    )


def mirror(
    spark: "SparkSession",
    *,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    checkpoint: str,
    every: str | None = None,
) -> "StreamingQuery":
    """A topic into another, of this cluster or another one; what was in order stays in order.

    A queue is read by one task at a time. Messages with a sharding key go to the queue of their key, those without one all to one
    queue for each that they come from. A batch that is run again writes its messages again: `trimtab.spark.drop_replays` leaves
    those out, in whichever task they are. A checkpoint that was made for another source or another sink is refused.
    """
    claim(spark, checkpoint, {"source": _identity(source), "sink": _identity(sink)})
    df = _stream(spark, {"splitQueues": "false", **source})
    queue = f.concat_ws("@", "topic", "brokerName")
    place = f.concat_ws(":", f.lit(_cluster_name(source)), queue, "queueId", "queueOffset")
    rows = df.select(
        "body",
        "tag",
        "keys",
        "properties",
        "flag",
        f.element_at("properties", SHARDING_KEY).alias("shardingKey"),
        # Queues of a broker that lie side by side stay so: they are spread as evenly as they were.
        ((f.crc32(queue.cast("binary")) + f.col("queueId")) % (1 << 31)).cast("int").alias("partition"),
        place.alias("rowId"),
    )
    writer: Any = rows.writeStream.format("rocketmq").options(**sink).option("checkpointLocation", checkpoint)
    trigger: dict[str, Any] = {"availableNow": True} if every is None else {"processingTime": every}
    query: StreamingQuery = writer.trigger(**trigger).start()
    return query


def _identity(options: Mapping[str, str]) -> Identity:
    return identity_of(options, os.environ.get("NAMESRV_ADDR"))


def _cluster_name(source: Mapping[str, str]) -> str:
    """Tells apart what comes from two clusters whose brokers have the same names."""
    address = next(
        (value for name, value in source.items() if name.lower() in ("nameserver", "namesrvaddr")), ""
    )
    return f"{crc32(address.encode()):08x}"


def _stream(spark: "SparkSession", options: Mapping[str, str]) -> "DataFrame":
    return spark.readStream.format("rocketmq").options(**{"startingOffsets": "earliest", **options}).load()
