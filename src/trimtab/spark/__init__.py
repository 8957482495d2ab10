"""RocketMQ for Spark: `spark.read.format("rocketmq")`, `readStream`, `write` and `writeStream`.

    from trimtab.spark import session

    spark = session()                                                     # a local session that is set up well
    df = spark.read.format("rocketmq").option("nameserver", "host:9876").option("topic", "orders").load()

An installed trimtab is found by Spark under that name. `register(spark)` is for sessions that cannot see installed packages.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["drop_replays", "listen", "register", "session"]


def register(spark: "SparkSession") -> None:
    """Makes `rocketmq` known to a session."""
    from trimtab.spark.source import RocketMQSource  # noqa: PLC0415 - it needs pyspark

    spark.dataSource.register(RocketMQSource)


def session(master: str = "local[*]", *, app: str = "trimtab", **conf: Any) -> "SparkSession":
    """A Spark session with Java found, this Python in its workers, unix sockets and UTC. `conf` has dots as two underscores."""
    from trimtab.spark.local import local_session  # noqa: PLC0415 - it needs pyspark

    return local_session(master, app, {name.replace("__", "."): str(value) for name, value in conf.items()})


def drop_replays(df: "DataFrame", *, within: str = "1 hour") -> "DataFrame":
    """Messages that our sink wrote, each once: what a failed task or batch wrote again is left out.

    A stream remembers what it saw for as long as `within`, by the time at which messages were stored.
    """
    from trimtab.spark.replays import without_replays  # noqa: PLC0415 - it needs pyspark

    return without_replays(df, within)


def listen(spark: "SparkSession", *, prometheus: bool | None = None) -> Any:
    """Reports the lag of every stream that reads from RocketMQ: to the log, and to Prometheus where its client is there."""
    from trimtab.spark.listener import LagListener  # noqa: PLC0415 - it needs pyspark

    listener = LagListener(prometheus=prometheus)
    spark.streams.addListener(listener)
    return listener
