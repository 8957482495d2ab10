"""The Spark source and sink on Apache's brokers: called as Spark calls them, and once by a real Spark."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType, TimestampType

from tests.apache.cluster import ApacheCluster
from tests.interop.seeds import seed
from tests.spark.conftest import spark
from tests.spark.schedules import Schedule
from tests.unit.spark.engine import Stream, read_batch, source
from trimtab import Admin, Message, Producer
from trimtab.errors import NoRouteError
from trimtab.model import MessageQueue
from trimtab.spark import drop_replays
from trimtab.spark.problems import OptionError, SinkWriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["spark"]

pytestmark = pytest.mark.filterwarnings("default")  # pyspark has warnings of its own

WAIT_S = 120
QUEUES = 4
FAULT_SCHEDULES = 10 if os.environ.get("TRIMTAB_FULL") else 2


@pytest.fixture(scope="module")
def apache(thorough_version: str) -> Iterator[ApacheCluster]:
    with ApacheCluster(thorough_version, broker_settings={"enablePropertyFilter": "true"}) as cluster:
        yield cluster


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.1)


def make(apache: ApacheCluster, topic: str, queues: int = QUEUES) -> None:
    async def create() -> None:
        async with Admin(nameserver=apache.nameserver) as admin:
            await admin.create_topic(topic, queues=queues)

    asyncio.run(create())


def fill(apache: ApacheCluster, topic: str, bodies: list[bytes], queue: MessageQueue | None = None) -> None:
    async def send() -> None:
        async with Producer("tests", nameserver=apache.nameserver) as producer:
            messages = [
                Message(
                    topic,
                    body,
                    tag="even" if at % 2 == 0 else "odd",
                    keys=[f"k{at}"],
                    properties={"n": str(at)},
                )
                for at, body in enumerate(bodies)
            ]
            await asyncio.gather(*(producer.send(message, queue=queue) for message in messages))

    asyncio.run(send())
    # A 4.9 broker shows a message in its queue a moment after it has answered for it.
    until(
        lambda: set(bodies) <= {row["body"] for row in read_batch(**options(apache, topic, columns="body"))}
    )


def numbered(count: int, word: str = "b") -> list[bytes]:
    return [b"%s%05d" % (word.encode(), at) for at in range(count)]


def options(apache: ApacheCluster, topic: str, **more: str) -> dict[str, str]:
    return {
        "nameserver": apache.nameserver,
        "topic": topic,
        "routeRefreshMs": "1",
        "offsetRefreshMs": "1",
        **more,
    }


def test_batches_filters_and_times(apache: ApacheCluster) -> None:
    make(apache, "spark-batch")
    fill(apache, "spark-batch", numbered(600))
    rows = read_batch(**options(apache, "spark-batch", minPartitions="3"))
    assert sorted(row["body"] for row in rows) == numbered(600)
    row = next(row for row in rows if row["body"] == b"b00004")
    assert (row["tag"], row["keys"], dict(row["properties"])["n"]) == ("even", ["k4"], "4")
    assert len(read_batch(**options(apache, "spark-batch", tag="even"))) == 300
    assert len(read_batch(**options(apache, "spark-batch", sql="n < 25"))) == 25
    assert len(read_batch(**options(apache, "spark-batch", tag="nobody"))) == 0
    times = sorted(int(row["storeTimestamp"].timestamp() * 1000 + 0.5) for row in rows)
    for at_ms in {times[0], times[300], times[-1], times[-1] + 60_000}:
        later = sum(time_ms >= at_ms for time_ms in times)
        assert len(read_batch(**options(apache, "spark-batch", startingTimestamp=str(at_ms)))) == later
        assert len(read_batch(**options(apache, "spark-batch", endingTimestamp=str(at_ms)))) == 600 - later
    with pytest.raises(OptionError, match="a topic that exists"):
        read_batch(**options(apache, "spark-nobody"))


def test_a_stream_through_crashes_a_broker_restart_and_new_queues(apache: ApacheCluster) -> None:
    topic = "spark-stream"
    make(apache, topic, 2)
    fill(apache, topic, numbered(300))
    chosen = options(
        apache, topic, startingOffsets="earliest", maxOffsetsPerTrigger="100", group="spark-apache"
    )
    stream = Stream(**chosen)
    stream.trigger(dies=True)
    stream.trigger()
    apache.stop("broker-a")
    apache.start("broker-a")
    stream.run_until_idle()
    make(apache, topic, QUEUES)
    fill(apache, topic, numbered(50, "c"), MessageQueue(topic, "broker-a", 3))
    until(lambda: bool(stream.trigger(dies=True) or stream.trigger()) or len(stream.rows) == 350)
    stream.run_until_idle()
    assert stream.bodies() == numbered(300) + numbered(50, "c")
    progress = apache.mqadmin("consumerProgress", "-g", "spark-apache").stdout
    behind = [line.split() for line in progress.splitlines() if line.startswith(topic)]
    assert sum(int(fields[4]) for fields in behind) == 350, progress
    resumed = Stream(**options(apache, topic, startingOffsets="group", group="spark-apache"))
    fill(apache, topic, numbered(5, "d"))
    resumed.run_until_idle()
    assert resumed.bodies() == numbered(5, "d")


def test_the_sink(apache: ApacheCluster) -> None:
    make(apache, "spark-sink")
    text: DataType = StringType()
    kinds = StructType(
        [StructField("body", text), StructField("tag", text), StructField("shardingKey", text)]
    )
    writer: Any = source(nameserver=apache.nameserver, topic="spark-sink").writer(kinds, False)
    batch = {
        "body": [f"row {number}" for number in range(3_000)],
        "tag": [f"t{number % 3}" for number in range(3_000)],
        "shardingKey": [f"s{number % 7}" for number in range(3_000)],
    }
    assert writer.write(iter([pa.RecordBatch.from_pydict(batch)])).rows == 3_000
    until(lambda: len(read_batch(**options(apache, "spark-sink", columns="queueOffset"))) == 3_000)
    rows = read_batch(**options(apache, "spark-sink"))
    assert sorted(row["body"].decode() for row in rows) == sorted(batch["body"])
    by_key: dict[str, list[tuple[int, int, int]]] = {}
    for row in rows:
        key = dict(row["properties"])["__SHARDINGKEY"]
        by_key.setdefault(key, []).append((row["queueId"], row["queueOffset"], int(row["body"].split()[1])))
    for places in by_key.values():
        assert len({queue for queue, _, _ in places}) == 1
        assert [number for _, _, number in sorted(places)] == sorted(number for _, _, number in places)
    delays = StructType([StructField("body", text), StructField("delayLevel", IntegerType())])
    delayed: Any = source(nameserver=apache.nameserver, topic="spark-sink").writer(delays, False)
    delayed.write(
        iter([pa.RecordBatch.from_pydict({"body": ["soon"], "delayLevel": pa.array([1], pa.int32())})])
    )
    until(
        lambda: (
            b"soon" in {row["body"] for row in read_batch(**options(apache, "spark-sink", columns="body"))}
        )
    )


class Apache:
    """As the schedules of faults want it."""

    can_expire = False  # it removes old files by the hour

    def __init__(self, cluster: ApacheCluster) -> None:
        self._cluster = cluster
        self.nameserver = cluster.nameserver
        self.brokers = tuple(server.name for server in cluster.brokers)

    def restart(self, server: str) -> None:
        self._cluster.stop(server)
        self._cluster.start(server)
        until(lambda: asyncio.run(self._is_known()))  # brokers register every half minute

    async def _is_known(self) -> bool:
        async with Admin(nameserver=self.nameserver) as admin:
            try:
                await admin.create_topic("spark-known", queues=1)
            except NoRouteError:
                return False
            return True


@pytest.mark.parametrize("number", range(FAULT_SCHEDULES))
def test_a_schedule_of_faults(spark: Any, apache: ApacheCluster, tmp_path: Path, number: int) -> None:
    Schedule(spark, Apache(apache), tmp_path, seed() + number, f"spark-faults-{number}").run()


def test_rows_with_a_time_of_their_own(apache: ApacheCluster) -> None:
    make(apache, "spark-timed")
    kinds = StructType([StructField("body", StringType()), StructField("deliverTimestamp", TimestampType())])
    when = pa.array([datetime.now(UTC) + timedelta(hours=1)], pa.timestamp("us", tz="UTC"))
    writer: Any = source(nameserver=apache.nameserver, topic="spark-timed").writer(kinds, False)
    batch = pa.RecordBatch.from_pydict({"body": ["later"], "deliverTimestamp": when})
    if apache.version.startswith("4."):
        with pytest.raises(SinkWriteError, match=r"is older than 5\.0 .*use delayLevel"):
            writer.write(iter([batch]))
    else:
        assert writer.write(iter([batch])).rows == 1
    assert read_batch(**options(apache, "spark-timed")) == []


def test_a_real_spark(spark: Any, apache: ApacheCluster, tmp_path: Path) -> None:
    make(apache, "spark-real")
    make(apache, "spark-copies")
    fill(apache, "spark-real", numbered(2_000))
    chosen = {
        "nameserver": apache.nameserver,
        "topic": "spark-real",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "900",
    }
    stream = spark.readStream.format("rocketmq").options(**chosen).load()
    query = (
        stream.select("body", "tag", "keys").writeStream.format("rocketmq")
        .options(nameserver=apache.nameserver, topic="spark-copies", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(WAIT_S * 2)
    copies = spark.read.format("rocketmq").options(nameserver=apache.nameserver, topic="spark-copies")
    until(lambda: copies.load().count() == 2_000)
    found = drop_replays(copies.load()).selectExpr("cast(body as string) body").collect()
    assert sorted(row.body.encode() for row in found) == numbered(2_000)
