"""Our source and sink on our broker and on Apache's, beside Spark's own connector on a real Kafka: rows per second, local[2]."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.kafka import connector_jars, kafka
from bench.own import own_cluster
from bench.report import Row
from tests.apache.cluster import ApacheCluster
from trimtab import Admin
from trimtab.spark import session

SCALE = float(os.environ.get("TRIMTAB_BENCH_SCALE", "1"))
APACHE = tuple(filter(None, os.environ.get("TRIMTAB_BENCH_APACHE", "4.9.3,5.5.0").split(",")))
RUNS = 3
QUEUES = 8
SIZES = ((128, 2_000_000), (4_096, 200_000))
KAFKA = "kafka"
WARM = "bench-warm"


@contextmanager
def apache(version: str) -> Iterator[str]:
    with ApacheCluster(
        version, broker_settings={"defaultTopicQueueNums": str(QUEUES)}, heap_mib=1024
    ) as cluster:
        yield cluster.nameserver


@contextmanager
def ours() -> Iterator[str]:
    with own_cluster("async") as found:
        yield str(found["nameserver"])


def rows() -> list[Row]:
    jars = ",".join(map(str, connector_jars()))
    spark = session("local[2]", app="bench", spark__jars=jars)
    spark.sparkContext.setLogLevel("ERROR")
    found: list[Row] = []
    try:
        with ExitStack() as stack:
            servers = {"ours": stack.enter_context(ours())}
            servers |= {version: stack.enter_context(apache(version)) for version in APACHE}
            servers[KAFKA] = stack.enter_context(kafka(QUEUES))
            for size, messages in SIZES:
                found += _sizes(spark, servers, size, max(1_000, int(messages * SCALE)))
            found += _triggers(spark, servers)
    finally:
        spark.stop()
    return found


def _sizes(spark: Any, servers: dict[str, str], size: int, messages: int) -> list[Row]:
    what = f"{messages:,} × {size} B"
    topic = f"bench-{size}"
    written, full, kafka_like, projected = {}, {}, {}, {}
    for name, address in servers.items():
        _make_topic(name, address, topic)
        _make_topic(name, address, WARM)
        _write(spark, name, address, WARM, size, 10_000)
        seconds = _seconds(partial(_write, spark, name, address, topic, size, messages))
        written[name] = _tell(f"sink, {what}", name, messages / seconds)
        full[name] = _tell(f"read, {what}", name, _rate(messages, _reader(spark, name, address, topic)))
        if name != KAFKA:
            as_kafka = _reader(spark, name, address, topic, schemaMode="kafka")
            kafka_like[name] = _tell(f"read as Kafka, {what}", name, _rate(messages, as_kafka))
            offsets = _reader(spark, name, address, topic, columns="queueId,queueOffset")
            projected[name] = _tell(f"read offsets, {what}", name, _rate(messages, offsets))
    return [
        *_beside_kafka(f"sink, {what}", written, written[KAFKA]),
        *_beside_kafka(f"read, all 19 columns, {what}", full, full[KAFKA]),
        *_beside_kafka(f"read, Kafka's 7 columns, {what}", kafka_like, full[KAFKA]),
        *(
            Row(
                f"read, queue and offset only, {what}, {name}",
                rate,
                kafka_like[name],
                "beside Kafka's 7 columns of the same broker",
            )
            for name, rate in projected.items()
        ),
    ]


def _beside_kafka(what: str, rates: dict[str, float], kafka_rate: float) -> list[Row]:
    return [
        Row(f"{what}, {_label(name)}", rate, kafka_rate, "beside Kafka")
        for name, rate in rates.items()
        if name != KAFKA
    ]


def _label(name: str) -> str:
    return "our broker" if name == "ours" else f"Apache {name}"


def _make_topic(name: str, address: str, topic: str) -> None:
    if name == KAFKA:
        return  # made by the first write, with so many partitions

    async def make() -> None:
        async with Admin(nameserver=address) as admin:
            await admin.create_topic(topic, queues=QUEUES)

    asyncio.run(make())


def _write(spark: Any, name: str, address: str, topic: str, size: int, messages: int) -> None:
    """Bodies that are not all alike, made by the JVM in eight tasks."""
    filler = "x" * (size - 8)
    if name == KAFKA:
        df = spark.range(0, messages, 1, 8).selectExpr(
            f"concat(lpad(cast(id as string), 8, '0'), '{filler}') value"
        )
        # Idempotent, its sender hung after some thousand rows on a topic that was just made.
        options = {"kafka.bootstrap.servers": address, "kafka.enable.idempotence": "false", "topic": topic}
        df.write.format("kafka").options(**options).save()
        return
    df = spark.range(0, messages, 1, 8).selectExpr(
        f"concat(lpad(cast(id as string), 8, '0'), '{filler}') body"
    )
    df.write.format("rocketmq").options(nameserver=address, topic=topic).mode("append").save()


def _reader(spark: Any, name: str, address: str, topic: str, **options: str) -> Callable[[], None]:
    def read() -> None:
        if name == KAFKA:
            df = (
                spark.read.format("kafka")
                .option("kafka.bootstrap.servers", address)
                .option("subscribe", topic)
                .load()
            )
        else:
            chosen = {"nameserver": address, "topic": topic, "maxPartitions": "2", **options}
            df = spark.read.format("rocketmq").options(**chosen).load()
        df.write.format("noop").mode("overwrite").save()

    return read


def _rate(messages: int, work: Callable[[], None]) -> float:
    _seconds(work)
    return messages / statistics.median(_seconds(work) for _ in range(RUNS))


def _tell(what: str, name: str, rate: float) -> float:
    """A long run shows how far it is."""
    print(f"  {what}, {name}: {rate:,.0f}/s", file=sys.stderr, flush=True)
    return rate


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _triggers(spark: Any, servers: dict[str, str]) -> list[Row]:
    """Micro-batches of one message each: how many can be had in a second; and what a look costs that finds nothing."""
    batches, looks = {}, {}
    for name, address in servers.items():
        with tempfile.TemporaryDirectory() as folder:
            batches[name], looks[name] = _micro_batches(spark, name, address, Path(folder))
    return [
        *_beside_kafka("micro-batches of 8 messages a second", batches, batches[KAFKA]),
        *_beside_kafka("looks for new messages a second", looks, looks[KAFKA]),
    ]


def _micro_batches(spark: Any, name: str, address: str, folder: Path) -> tuple[float, float]:
    topic = "bench-128"
    if name == KAFKA:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", address)
            .option("subscribe", topic)
        )
    else:
        stream = spark.readStream.format("rocketmq").option("nameserver", address).option("topic", topic)
    df = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "8").load()
    query = df.writeStream.format("noop").option("checkpointLocation", str(folder)).start()
    try:
        while len(query.recentProgress) < 15:
            time.sleep(0.1)
    finally:
        query.stop()
    progress = query.recentProgress[5:]
    seconds = statistics.median(p["durationMs"]["triggerExecution"] for p in progress) / 1000
    look = statistics.median(p["durationMs"]["latestOffset"] for p in progress) / 1000
    return 1 / seconds, 1 / max(look, 0.0005)
