"""Dead letters and retries: what is there, why, and sending chosen ones to their topic again.

RocketMQ keeps no reason with a dead letter. Where consumers are traced, the trace tells how the last try ended.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as f

from trimtab.errors import SettingsError, TrimtabError
from trimtab.pipelines.balance import TRACE_TOPIC, trace_rows
from trimtab.spark.access import connection_part
from trimtab.spark.sink_encoding import SHARDING_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

DEAD, RETRY = "%DLQ%", "%RETRY%"
UNTOLD = "not traced"


def dead_letters(
    spark: "SparkSession", group: str, *, options: Mapping[str, str], with_trace: bool = True
) -> "DataFrame":
    """Dead letters and waiting retries of a group: the source's columns, and `state`, `origin` and `cause`.

    None where no letter of the group was ever dead: its topic is made by the first.
    """
    found = _read(spark, f"{DEAD}{group}", options)
    return _told(spark, found.withColumn("state", f.lit("dead")), group, options, with_trace=with_trace)


def retries(
    spark: "SparkSession", group: str, *, options: Mapping[str, str], with_trace: bool = True
) -> "DataFrame":
    """What a group asked to get again, tried by now or not, with the same columns."""
    found = _read(spark, f"{RETRY}{group}", options)
    return _told(spark, found.withColumn("state", f.lit("retry")), group, options, with_trace=with_trace)


def _read(spark: "SparkSession", topic: str, options: Mapping[str, str]) -> "DataFrame":
    found = spark.read.format("rocketmq").options(**options, topic=topic).load()
    if _is_there(spark, topic, options):
        return found
    _log.warning("there is no topic %s: nothing was ever put there, or the group has another name", topic)
    return spark.createDataFrame([], found.schema)


def _is_there(spark: "SparkSession", topic: str, options: Mapping[str, str]) -> bool:
    """Brokers make topics such as these with the first message.

    What is asked for is empty: if Spark read one message and let the rest be, its worker would complain of a broken pipe.
    """
    nothing = {**connection_part(options), "topic": topic, "columns": "queueId", "endingTimestamp": "0"}
    try:
        spark.read.format("rocketmq").options(**nothing).load().isEmpty()
    except PySparkException as error:
        if f"option 'topic' is '{topic}'" not in str(error):
            raise
        return False
    return True


def _told(
    spark: "SparkSession", found: "DataFrame", group: str, options: Mapping[str, str], *, with_trace: bool
) -> "DataFrame":
    origin = "coalesce(properties['DLQ_ORIGIN_TOPIC'], properties['RETRY_TOPIC'], topic)"
    letters = found.withColumn("origin", f.expr(origin))
    traces = _traces(spark, options) if with_trace else None
    if traces is None:
        return letters.withColumn("cause", f.lit(UNTOLD))
    ended = traces.where(f"kind = 'SubAfter' AND `group` = '{_quoted(group)}' AND NOT ok")
    causes = ended.groupBy(f.col("message_id").alias("msgId")).agg(f.max_by("result", "at_ms").alias("cause"))
    return letters.join(causes, "msgId", "left").withColumn("cause", f.coalesce("cause", f.lit(UNTOLD)))


def _traces(spark: "SparkSession", options: Mapping[str, str]) -> "DataFrame | None":
    """None where nobody was ever traced: the topic is made by the first trace."""
    if _is_there(spark, TRACE_TOPIC, options):
        return trace_rows(spark, options)
    _log.warning("there is no topic %s: causes are not known; trace consumers to have them", TRACE_TOPIC)
    return None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def analysis(letters: "DataFrame") -> "DataFrame":
    """How many, by topic, cause, tag and number of tries, with the first and the last of them."""
    return (
        letters.groupBy("state", "origin", "cause", "tag", "reconsumeTimes")
        .agg(
            f.count("*").alias("messages"),
            f.sum(f.octet_length("body")).alias("bytes"),
            f.min("storeTimestamp").alias("first"),
            f.max("storeTimestamp").alias("last"),
        )
        .orderBy(f.desc("messages"), "origin", "cause", "tag", "reconsumeTimes")
    )


def chosen(letters: "DataFrame", where: str) -> "DataFrame":
    """Those for which a condition in SQL is true: on the source's columns, `origin` and `cause`."""
    try:
        return letters.where(where)
    except AnalysisException as error:
        first = str(error).splitlines()[0]
        raise SettingsError(f"dead letters cannot be chosen by {where!r}: {first}") from error


def replay(letters: "DataFrame", *, options: Mapping[str, str]) -> int:
    """Sends letters to the topics they came from, for every group that reads those; how many. The letters stay where they are.

    `options` are those of the sink.
    """
    key = f.element_at("properties", SHARDING_KEY).alias("shardingKey")
    rows = letters.select("body", f.col("origin").alias("topic"), "tag", "keys", "properties", "flag", key)
    lost = letters.where("origin LIKE '\\%%'").limit(1).collect()
    if lost:
        raise TrimtabError(
            f"dead letter {lost[0].msgId} does not say from which topic it came: leave it out with --where"
        )
    count = letters.count()
    writer: Any = rows.write.format("rocketmq").options(**options)
    writer.mode("append").save()
    return count
