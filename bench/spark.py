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
from typing import Any

from bench.kafka import connector_jars, kafka
from bench.own import own_cluster
from bench.report import Row, verdict
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
TRIGGERS = 15
GROWTH_MESSAGES = 400_000


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
            found += _growth(spark, servers["ours"])
    finally:
        spark.stop()
    return found


def _sizes(spark: Any, servers: dict[str, str], size: int, messages: int) -> list[Row]:
    what = f"{messages:,} × {size} B"
    written = _written(spark, servers, size, messages)
    readers: dict[tuple[str, str], Callable[[], None]] = {}
    for name, address in servers.items():
        topic = _topic(size, RUNS - 1)
        readers["full", name] = _reader(spark, name, address, topic)
        if name != KAFKA:
            readers["as Kafka", name] = _reader(spark, name, address, topic, schemaMode="kafka")
            readers["offsets", name] = _reader(spark, name, address, topic, columns="queueId,queueOffset")
    rates = _in_turns(readers, messages)
    for (how, name), rate in rates.items():
        _tell(f"read {how}, {what}", name, rate)
    full = {name: rate for (how, name), rate in rates.items() if how == "full"}
    kafka_like = {name: rate for (how, name), rate in rates.items() if how == "as Kafka"}
    projected = {name: rate for (how, name), rate in rates.items() if how == "offsets"}
    return [
        *_beside_kafka(f"sink, {what}", written, written[KAFKA], goals=(1.0, 1.0)),
        *_beside_kafka(f"read, all 19 columns, {what}", full, full[KAFKA], goals=(1.3, 2.0)),
        *_beside_kafka(f"read, Kafka's 7 columns, {what}", kafka_like, full[KAFKA], goals=(1.3, 2.0)),
        *(
            _row(f"read, queue and offset only, {what}, {name}", rate, full[name], "all columns", goal=2.0)
            for name, rate in projected.items()
        ),
    ]


def _written(spark: Any, servers: dict[str, str], size: int, messages: int) -> dict[str, float]:
    """Rows a second into a new topic of each server, in turns."""
    for name, address in servers.items():
        _make_topic(name, address, WARM)
        _write(spark, name, address, WARM, size, 10_000)
        for run in range(RUNS):
            _make_topic(name, address, _topic(size, run))
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    for run in range(RUNS):
        for name, address in servers.items():
            write = partial(_write, spark, name, address, _topic(size, run), size, messages)
            seconds[name].append(_seconds(write))
            _tell(f"sink, {messages:,} × {size} B", name, messages / seconds[name][-1])
    return {name: messages / statistics.median(taken) for name, taken in seconds.items()}


def _topic(size: int, run: int) -> str:
    return f"bench-{size}-{run}"


def _in_turns(
    readers: dict[tuple[str, str], Callable[[], None]], messages: int
) -> dict[tuple[str, str], float]:
    """The median of each, warmed up. They take turns, so that what else the machine does is shared by all."""
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in readers}
    for _ in range(RUNS + 1):
        for key, read in readers.items():
            seconds[key].append(_seconds(read))
    return {key: messages / statistics.median(taken[1:]) for key, taken in seconds.items()}


def _beside_kafka(
    what: str, rates: dict[str, float], kafka_rate: float, goals: tuple[float, float]
) -> list[Row]:
    """The goals on Apache's brokers and on ours."""
    return [
        _row(f"{what}, {_label(name)}", rate, kafka_rate, "Kafka", goal=goals[name == "ours"])
        for name, rate in rates.items()
        if name != KAFKA
    ]


def _row(what: str, rate: float, other_rate: float, other: str, *, goal: float) -> Row:
    return Row(
        what, rate, other_rate, f"beside {other}; {verdict(f'{goal}×', is_met=rate >= goal * other_rate)}"
    )


def _label(name: str) -> str:
    return "our broker" if name == "ours" else f"Apache {name}"


def _make_topic(name: str, address: str, topic: str, queues: int = QUEUES) -> None:
    if name == KAFKA:
        return  # made by the first write, with so many partitions

    async def make() -> None:
        async with Admin(nameserver=address) as admin:
            await admin.create_topic(topic, queues=queues)

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
    """What a micro-batch of 8 messages takes, and what a trigger takes that finds nothing."""
    batches, looks = {}, {}
    for _ in range(2):  # the first time for the JVM, which who comes first would else warm up for the others
        for name, address in servers.items():
            busy = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}
            batches[name] = _trigger_s(spark, name, address, busy, is_empty=False)
            looks[name] = _trigger_s(spark, name, address, {"startingOffsets": "latest"}, is_empty=True)
    return [
        *_per_trigger("micro-batches of 8 messages, one after the other", batches),
        *_per_trigger("triggers that find nothing, one after the other", looks),
    ]


def _per_trigger(what: str, seconds: dict[str, float]) -> list[Row]:
    return [
        Row(
            f"{what}, {_label(name)}",
            1 / taken,
            1 / seconds[KAFKA],
            f"{taken * 1000:.0f} ms each, {seconds[KAFKA] * 1000:.0f} ms with Kafka",
        )
        for name, taken in seconds.items()
        if name != KAFKA
    ]


def _trigger_s(spark: Any, name: str, address: str, options: dict[str, str], *, is_empty: bool) -> float:
    """The median of some triggers, after some that warm up."""
    where = (
        {"kafka.bootstrap.servers": address, "subscribe": _topic(128, 0)}
        if name == KAFKA
        else {"nameserver": address, "topic": _topic(128, 0)}
    )
    stream = spark.readStream.format("kafka" if name == KAFKA else "rocketmq").options(**where, **options)
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    taken_ms: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        query = stream.load().writeStream.format("noop").option("checkpointLocation", folder).start()
        try:
            while len(taken_ms) < TRIGGERS:
                for progress in query.recentProgress:
                    if (progress["numInputRows"] == 0) == is_empty:
                        taken_ms[progress["timestamp"]] = progress["durationMs"]["triggerExecution"]
                if query.exception() is not None:
                    raise RuntimeError(f"{name}: {query.exception()}")
                time.sleep(0.1)
        finally:
            query.stop()
    return max(1, statistics.median(list(taken_ms.values())[TRIGGERS // 3 :])) / 1000


def _growth(spark: Any, address: str) -> list[Row]:
    """How reading our broker grows with queues, with the size of messages and with partitions; each beside the first of its kind."""
    found = []
    messages = max(1_000, int(GROWTH_MESSAGES * SCALE))
    shapes = [("queues", queues, 128, "2") for queues in (1, 2, 8, 32)]
    shapes += [("size", QUEUES, size, "2") for size in (128, 1_024, 4_096)]
    shapes += [("partitions", QUEUES, 128, partitions) for partitions in ("1", "2", "4", "8")]
    first: dict[str, float] = {}
    written: set[str] = set()
    for what, queues, size, partitions in shapes:
        topic = f"growth-{queues}-{size}"
        if topic not in written:
            written.add(topic)
            _make_topic("ours", address, topic, queues)
            _write(spark, "ours", address, topic, size, messages)
        rate = _rate(messages, _reader(spark, "ours", address, topic, maxPartitions=partitions))
        name = f"{messages:,} × {size} B, {queues} queues, {partitions} partitions"
        _tell(f"by {what}, {name}", "ours", rate)
        note = f"{rate * size / 1e6:,.0f} MB/s of bodies"
        found.append(Row(f"by {what}: {name}", rate, first.setdefault(what, rate), note))
    return found
