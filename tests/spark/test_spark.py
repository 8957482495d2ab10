"""Real Spark on a real cluster: found by name, batch, streams, restarts, kill -9, the sink, and what is refused."""

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from tests.unit.spark.test_source import create, fill, numbered
from trimtab.model import MessageQueue
from trimtab.spark import drop_replays, listen
from trimtab.testing import DROP, BlockingCluster, Cluster, Drop
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command

pytestmark = pytest.mark.filterwarnings("default")  # pyspark has warnings of its own

WAIT_S = 300


@pytest.fixture
def cluster() -> Iterator[BlockingCluster]:
    with Cluster(brokers=2) as running:
        for broker in running.brokers:
            create(running, broker, "orders", 4)
        yield running


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.05)


def read(spark: Any, cluster: BlockingCluster, **options: str) -> Any:
    chosen = {"nameserver": cluster.nameserver, "topic": "orders", **options}
    return spark.read.format("rocketmq").options(**chosen).load()


def stream(spark: Any, cluster: BlockingCluster, **options: str) -> Any:
    chosen = {"nameserver": cluster.nameserver, "topic": "orders", "startingOffsets": "earliest", **options}
    return spark.readStream.format("rocketmq").options(**chosen).load()


def to_parquet(df: Any, folder: Path) -> None:
    query = (
        df.selectExpr("cast(body as string) body")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    assert query.awaitTermination(WAIT_S)


def bodies_in(spark: Any, folder: Path) -> list[str]:
    return sorted(row.body for row in spark.read.parquet(str(folder / "rows")).collect())


def texts(bodies: list[bytes]) -> list[str]:
    return sorted(body.decode() for body in bodies)


def test_batches_views_and_the_columns_of_kafka(spark: Any, cluster: BlockingCluster) -> None:
    fill(cluster, numbered(1_000))
    df = read(spark, cluster)
    assert df.count() == 1_000
    assert df.select("msgId").distinct().count() == 1_000
    assert df.where("tag = 'even'").count() == 500
    assert df.count() == 1_000, "one DataFrame gives the same rows however often it is used"
    fill(cluster, numbered(10, "later"))
    assert df.count() == 1_000, "what was there when it was planned"
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING rocketmq OPTIONS(nameserver '{cluster.nameserver}', topic 'orders', tag 'odd')"
    )
    assert spark.sql("SELECT count(*) AS n FROM v").first().n == 505
    # A notebook for Kafka, but for the name of the format and the address.
    kafka = (
        spark.read.format("rocketmq")
        .option("kafka.bootstrap.servers", cluster.nameserver)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("schemaMode", "kafka")
        .load()
    )
    rows = kafka.selectExpr(
        "CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset", "timestamp", "headers"
    )
    assert sorted(row.value for row in rows.collect()) == texts(numbered(1_000) + numbered(10, "later"))


def test_a_stream_goes_on_from_its_checkpoint_and_reports_its_lag(
    spark: Any, cluster: BlockingCluster, tmp_path: Path
) -> None:
    listener = listen(spark)
    fill(cluster, numbered(400))
    to_parquet(stream(spark, cluster, maxOffsetsPerTrigger="150"), tmp_path)
    assert bodies_in(spark, tmp_path) == texts(numbered(400))
    fill(cluster, numbered(100, "c"))
    cluster.restart("broker-a")
    create(cluster, "broker-b", "orders", 6)
    fill(cluster, numbered(50, "d"), queue=MessageQueue("orders", "broker-b", 5))
    query = (
        stream(spark, cluster, maxOffsetsPerTrigger="100")
        .writeStream.format("noop")
        .queryName("lagging")
        .option("checkpointLocation", str(tmp_path / "other"))
        .start()
    )
    until(lambda: "lagging" in listener.lags)
    query.stop()
    spark.streams.removeListener(listener)
    to_parquet(stream(spark, cluster, maxOffsetsPerTrigger="150"), tmp_path)
    assert bodies_in(spark, tmp_path) == texts(numbered(400) + numbered(100, "c") + numbered(50, "d"))


def test_the_sink_writes_batches_and_streams(spark: Any, cluster: BlockingCluster, tmp_path: Path) -> None:
    out = {"nameserver": cluster.nameserver, "topic": "orders"}
    rows = spark.range(500).selectExpr(
        "cast(id as string) body", "concat('t', id % 3) tag", "array(concat('k', id)) keys",
        "map('n', cast(id as string)) properties", "concat('s', id % 7) shardingKey",
    )  # fmt: skip
    rows.write.format("rocketmq").options(**out).mode("append").save()
    query = (
        stream(spark, cluster).select("body", "tag", "keys")
        .writeStream.format("rocketmq").options(nameserver=cluster.nameserver, topic="copies")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(WAIT_S)
    copies = read(spark, cluster, topic="copies")
    again = copies.union(copies)
    found = drop_replays(again).selectExpr("cast(body as string) body", "tag", "keys[0] k").collect()
    assert sorted((int(row.body), row.tag, row.k) for row in found) == [
        (number, f"t{number % 3}", f"k{number}") for number in range(500)
    ]
    with pytest.raises(Exception, match="column 'colour' means nothing to the sink"):
        rows.selectExpr("body", "1 AS colour").write.format("rocketmq").options(**out).mode("append").save()
    with pytest.raises(Exception, match="row 0 of this task has no body"):
        rows.selectExpr("cast(null AS string) body").write.format("rocketmq").options(**out).mode(
            "append"
        ).save()


def test_what_cannot_be_done_is_said_when_it_is_planned(spark: Any, cluster: BlockingCluster) -> None:
    with pytest.raises(Exception, match=r"option 'maxpartition' is '3'.*did you mean 'maxPartitions'"):
        read(spark, cluster, maxPartition="3")
    with pytest.raises(Exception, match="option 'topic' is 'nobody'"):
        read(spark, cluster, topic="nobody").count()
    with pytest.raises(Exception, match="no name server answered"):
        read(spark, cluster, nameserver="127.0.0.1:1", numRetries="0", requestTimeoutMs="500").count()
    query = spark.readStream.format("rocketmq").schema("body binary").options(
        nameserver=cluster.nameserver, topic="orders", failOnDataLoss="perhaps"
    ).load().writeStream.format("noop").start()  # fmt: skip
    with pytest.raises(Exception, match="option 'failOnDataLoss' is 'perhaps'"):
        query.awaitTermination(WAIT_S)


DRIVER = """
import sys
from pathlib import Path
from tests.spark.test_spark import to_parquet
from trimtab.spark import session

nameserver, folder = sys.argv[1:]
spark = session("local[2]")
df = spark.readStream.format("rocketmq").options(
    nameserver=nameserver, topic="orders", startingOffsets="earliest", maxOffsetsPerTrigger="300", minPartitions="4"
).load()
to_parquet(df, Path(folder))
"""


def test_a_driver_that_is_killed_in_the_middle_of_a_batch(
    spark: Any, cluster: BlockingCluster, tmp_path: Path
) -> None:
    fill(cluster, numbered(1_000))
    offsets = tmp_path / "checkpoint" / "offsets"
    hidden = 0

    def hide(_pull: Command) -> Drop | None:
        """The second batch gets no further than some of its pulls."""
        nonlocal hidden
        if not (offsets / "1").exists() or (
            hidden == 0 and not list((tmp_path / "checkpoint" / "commits").glob("0"))
        ):
            return None
        hidden += 1
        return DROP if hidden > 2 else None

    stop = cluster.intercept(RequestCode.PULL_MESSAGE, hide)
    command = [sys.executable, "-c", DRIVER, cluster.nameserver, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], start_new_session=True, stderr=subprocess.DEVNULL
    ) as driver:
        try:
            until(lambda: hidden > 3 or driver.poll() is not None)
            assert driver.poll() is None, "it was to be killed"
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
    stop()
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists()
    to_parquet(stream(spark, cluster, maxOffsetsPerTrigger="300"), tmp_path)
    assert bodies_in(spark, tmp_path) == texts(numbered(1_000))


def test_the_ready_pipelines(spark: Any, cluster: BlockingCluster, tmp_path: Path) -> None:
    from trimtab.pipelines.streams import archive, backfill, dedup, mirror, windows

    fill(cluster, numbered(60))
    options = {"nameserver": cluster.nameserver, "topic": "orders"}
    assert archive(spark, str(tmp_path / "archive"), options=options).awaitTermination(WAIT_S)
    kept = spark.read.parquet(str(tmp_path / "archive"))
    assert {"date", "hour"} <= set(kept.columns)
    assert sorted(bytes(row.body) for row in kept.select("body").collect()) == numbered(60)
    copies = {"nameserver": cluster.nameserver, "topic": "copies"}
    create(cluster, "broker-b", "copies", 2)
    query = mirror(spark, source=options, sink=copies, checkpoint=str(tmp_path / "mirror"))
    assert query.awaitTermination(WAIT_S)
    found = backfill(spark, "-1h", options=copies)
    assert sorted(
        (bytes(row.body), row.n) for row in found.selectExpr("body", "properties['n'] n").collect()
    ) == [(body, str(at)) for at, body in enumerate(numbered(60))]
    assert dedup(found.union(found)).count() == 60
    bare = found.withColumn("keys", f.array().cast("array<string>"))
    assert dedup(bare).count() == 60, "messages without keys are not one and the same"
    assert dedup(found.withColumn("tag", f.lit(None).cast("string")), by="tag").count() == 60
    assert dedup(found, by="tag").count() == 2
    assert sum(row.messages for row in windows(found).collect()) == 60


def test_a_mirror_keeps_the_order_of_queues_and_of_keys(
    spark: Any, cluster: BlockingCluster, tmp_path: Path
) -> None:
    from trimtab.pipelines.streams import mirror

    queues = [MessageQueue("orders", broker, number) for broker in cluster.brokers for number in range(4)]
    for queue in queues:
        fill(cluster, numbered(50, f"{queue.broker_name}-{queue.queue_id}-"), queue=queue)
    for broker in cluster.brokers:
        create(cluster, broker, "copies", 8)
    source = {"nameserver": cluster.nameserver, "topic": "orders", "maxOffsetsPerTrigger": "90"}
    sink = {"nameserver": cluster.nameserver, "topic": "copies", "maxInFlight": "20"}
    assert mirror(spark, source=source, sink=sink, checkpoint=str(tmp_path / "m")).awaitTermination(WAIT_S)
    order = ["brokerName", "queueId", "queueOffset"]
    copies = (
        read(spark, cluster, topic="copies")
        .orderBy(*order)
        .selectExpr(*order, "cast(body as string) body")
        .collect()
    )
    assert len(copies) == 400
    for queue in queues:
        came = [row for row in copies if row.body.startswith(f"{queue.broker_name}-{queue.queue_id}-")]
        assert [row.body for row in came] == sorted(row.body for row in came)
        assert len({(row.brokerName, row.queueId) for row in came}) == 1
    assert len({(row.brokerName, row.queueId) for row in copies}) >= 4
    # All of it once more, in other tasks and batches: every copy is known by where it came from.
    source["maxOffsetsPerTrigger"] = "170"
    assert mirror(spark, source=source, sink=sink, checkpoint=str(tmp_path / "n")).awaitTermination(WAIT_S)
    twice = read(spark, cluster, topic="copies")
    assert twice.count() == 800
    once = drop_replays(twice).selectExpr("cast(body as string) body").collect()
    assert sorted(row.body for row in once) == sorted(row.body for row in copies)


def test_replays_are_found_whatever_order_a_shuffle_gives_rows(
    spark: Any, cluster: BlockingCluster, tmp_path: Path
) -> None:
    """The second batch runs twice: the sink's broker refuses after some rows, and the query starts again."""
    fill(cluster, numbered(300))
    refused = 0

    def refuse(_request: Command) -> Command | None:
        nonlocal refused
        refused += 1
        busy = Command(code=ResponseCode.MESSAGE_ILLEGAL, opaque=0, remark="not now")
        return busy if refused == 6 else None

    def copy() -> Any:
        rows = stream(spark, cluster, minPartitions="3").select("body", "tag").repartition(2, "tag", "body")
        return (
            rows.writeStream.format("rocketmq").options(nameserver=cluster.nameserver, topic="out", maxInFlight="20")
            .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )  # fmt: skip

    stop = cluster.intercept(RequestCode.SEND_BATCH_MESSAGE, refuse)
    with pytest.raises(Exception, match="not now"):
        copy().awaitTermination(WAIT_S)
    stop()
    assert copy().awaitTermination(WAIT_S)
    written = read(spark, cluster, topic="out")
    assert written.count() > 300
    found = drop_replays(written).selectExpr("cast(body as string) body").collect()
    assert sorted(row.body for row in found) == texts(numbered(300))


def test_a_batch_that_foreach_batch_writes_again_is_found(
    spark: Any, cluster: BlockingCluster, tmp_path: Path
) -> None:
    fill(cluster, numbered(40))
    written = 0

    def write(batch: Any, _number: int) -> None:
        nonlocal written
        batch.select("body").write.format("rocketmq").options(
            nameserver=cluster.nameserver, topic="out"
        ).mode("append").save()
        written += 1
        if written == 1:
            raise RuntimeError("after all was written")

    def copy() -> Any:
        return (
            stream(spark, cluster).writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True).start()
        )  # fmt: skip

    with pytest.raises(Exception, match="after all was written"):
        copy().awaitTermination(WAIT_S)
    assert copy().awaitTermination(WAIT_S)
    out = read(spark, cluster, topic="out")
    assert (out.count(), drop_replays(out).count()) == (80, 40)


def test_two_listeners_share_what_they_show(spark: Any) -> None:
    first, second = listen(spark), listen(spark)
    for listener in (first, second):
        spark.streams.removeListener(listener)


def test_the_notebook_for_kafka_runs(
    spark: Any, cluster: BlockingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cluster, numbered(80))
    notebook = Path(__file__).parents[2] / "examples" / "kafka_notebook.py"
    monkeypatch.setattr(sys, "argv", [str(notebook), cluster.nameserver])
    done = runpy.run_path(str(notebook))
    assert sum(progress["numInputRows"] for progress in done["query"].recentProgress) == 80
    assert done["query"].exception() is None
