"""The sink on a real cluster, called as Spark calls it: what is written is read again, or the task says why not."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.unit.spark.engine import read_batch, source
from tests.unit.spark.test_source import create
from trimtab import blocking
from trimtab.io.chance import seeded_chance
from trimtab.io.clock import SystemClock
from trimtab.spark.background import background
from trimtab.spark.options import sink_options
from trimtab.spark.problems import OptionError, SinkSchemaError, SinkWriteError
from trimtab.spark.sink import StreamWriter, Written, batch_stamp
from trimtab.spark.sink_columns import SinkColumns
from trimtab.spark.sink_encoding import encode_rows
from trimtab.spark.sink_sending import RowSender
from trimtab.spark.sink_stamps import STAMP
from trimtab.testing import BlockingCluster, Cluster
from trimtab.wire.codes import LanguageCode, RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command

TEXT: DataType = StringType()
SOON_S = 20
"""Less than the time after which a route is no longer asked for."""


@pytest.fixture
def cluster() -> Iterator[BlockingCluster]:
    with Cluster(brokers=2) as running:
        for broker in running.brokers:
            create(running, broker, "out", 4)
        yield running


def schema(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def write(cluster: BlockingCluster, kinds: StructType, *batches: dict[str, Any], **more: str) -> int:
    writer: Any = source(nameserver=cluster.nameserver, topic="out", **more).writer(kinds, False)
    message = writer.write(iter([pa.RecordBatch.from_pydict(batch) for batch in batches]))
    writer.commit([message])
    assert isinstance(message, Written)
    return message.rows


def queues_of(cluster: BlockingCluster, topic: str) -> list[int]:
    with blocking.Admin(nameserver=cluster.nameserver) as admin:
        return [broker.write_queues for broker in admin.topic_settings(topic).brokers]


def test_a_topic_that_is_not_there_is_made_and_one_that_is_stays_as_it_is(cluster: BlockingCluster) -> None:
    for topic, wanted, queues in (("made", "3", [3, 3]), ("made", "9", [3, 3]), ("out", "9", [4, 4])):
        source(nameserver=cluster.nameserver, topic=topic, createTopic=wanted).writer(
            schema(body=TEXT), False
        )
        assert queues_of(cluster, topic) == queues


def rows_of(cluster: BlockingCluster, **more: str) -> list[dict[str, Any]]:
    return read_batch(nameserver=cluster.nameserver, topic="out", **more)


def test_what_is_written_is_read_again(cluster: BlockingCluster) -> None:
    bodies = [f"row {number}" for number in range(5_000)]
    kinds = schema(body=TEXT, tag=TEXT, keys=TEXT, properties=MapType(TEXT, TEXT))
    batch = {
        "body": bodies,
        "tag": [f"t{number % 3}" for number in range(5_000)],
        "keys": [f"k{number}" for number in range(5_000)],
        "properties": pa.array(
            [[("n", str(number))] for number in range(5_000)], pa.map_(pa.string(), pa.string())
        ),
    }
    assert write(cluster, kinds, batch, {**batch, "body": [f"more {body}" for body in bodies]}) == 10_000
    rows = rows_of(cluster)
    assert sorted(row["body"].decode() for row in rows) == sorted(
        [*bodies, *(f"more {body}" for body in bodies)]
    )
    assert len({row["msgId"] for row in rows}) == 10_000
    assert len({dict(row["properties"])[STAMP] for row in rows}) == 10_000
    assert len({(row["brokerName"], row["queueId"]) for row in rows}) > 1, "they are spread"
    row = next(row for row in rows if row["body"] == b"row 7")
    assert (row["tag"], row["keys"], dict(row["properties"])["n"]) == ("t1", ["k7"], "7")


def test_a_stream_stamps_its_rows_alike_when_a_batch_is_run_again(cluster: BlockingCluster) -> None:
    kinds = schema(value=BinaryType())
    writer = source(nameserver=cluster.nameserver, topic="out").streamWriter(kinds, False)
    assert isinstance(writer, StreamWriter)
    for values in ([b"a", b"b", b"a"], [b"b", b"a", b"a"]):
        batch = pa.RecordBatch.from_pydict({"value": values})
        writer.commit([writer.write(iter([batch]))], 0)
    writer.abort([None], 1)
    stamps = Counter((row["body"], dict(row["properties"])[STAMP]) for row in rows_of(cluster))
    assert set(stamps.values()) == {2}
    assert sorted(body for body, _ in stamps) == [b"a", b"a", b"b"]
    assert all(stamp.startswith("query:0:0:") for _, stamp in stamps)


def test_rows_choose_queues_by_key_or_by_name(cluster: BlockingCluster) -> None:
    keys = [f"user-{number % 5}" for number in range(200)]
    write(
        cluster,
        schema(body=TEXT, shardingKey=TEXT),
        {"body": [str(n) for n in range(200)], "shardingKey": keys},
    )
    places: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows_of(cluster):
        key = dict(row["properties"])["__SHARDINGKEY"]
        places.setdefault(key, []).append(
            (row["brokerName"], row["queueId"], row["queueOffset"], int(row["body"]))
        )
    for found in places.values():
        assert len({place[:2] for place in found}) == 1
        assert [place[3] for place in sorted(found)] == sorted(place[3] for place in found)
    exact = {
        "body": ["here"],
        "brokerName": ["broker-b"],
        "queueId": pa.array([3], pa.int32()),
        "topic": ["ignored"],
    }
    write(cluster, schema(body=TEXT, brokerName=TEXT, queueId=IntegerType(), topic=TEXT), exact)
    (row,) = [row for row in rows_of(cluster) if row["body"] == b"here"]
    assert (row["brokerName"], row["queueId"]) == ("broker-b", 3)


def test_delayed_rows_and_large_ones_go_alone(cluster: BlockingCluster) -> None:
    kinds = schema(body=TEXT, delayLevel=IntegerType())
    levels = pa.array([None, 0, 18], pa.int32())
    write(cluster, kinds, {"body": ["a", "b" * 3000, "later"], "delayLevel": levels}, batchBytes="2k", compression="zlib", compressBodyOver="2k")  # fmt: skip
    assert sorted(row["body"][:1] for row in rows_of(cluster)) == [b"a", b"b"]
    assert {row["sysFlag"] & 1 for row in rows_of(cluster)} == {0, 1}
    delayed = read_batch(
        nameserver=cluster.nameserver, topic="SCHEDULE_TOPIC_XXXX", includeSystemTopics="true"
    )
    assert [row["body"] for row in delayed] == [b"later"]


def test_a_broker_that_refuses_fails_the_task_with_its_words(cluster: BlockingCluster) -> None:
    refusal = Command(code=ResponseCode.MESSAGE_ILLEGAL, opaque=0, remark="not in this house")
    stop = cluster.intercept(RequestCode.SEND_BATCH_MESSAGE, lambda _request: refusal)
    with pytest.raises(
        SinkWriteError, match=r"rows 0 to 1 of this task were not stored in out@.*not in this house"
    ):
        write(cluster, schema(body=TEXT), {"body": ["a", "b"]})
    stop()


def test_a_broker_that_is_busy_is_asked_again_or_another(cluster: BlockingCluster) -> None:
    busy = Command(code=ResponseCode.SYSTEM_BUSY, opaque=0, remark="busy")
    stop = cluster.intercept(RequestCode.SEND_BATCH_MESSAGE, lambda _request: busy, server="broker-a")
    assert write(cluster, schema(body=TEXT), {"body": [str(n) for n in range(4_000)]}) == 4_000
    stop()
    assert {row["brokerName"] for row in rows_of(cluster)} == {"broker-b"}
    assert len(rows_of(cluster)) == 4_000


def test_a_row_without_a_body_fails_the_task_and_its_batch_is_not_sent(cluster: BlockingCluster) -> None:
    with pytest.raises(SinkWriteError, match="row 3 of this task has no body"):
        write(cluster, schema(body=TEXT), {"body": ["a", "b"]}, {"body": ["c", None]})
    assert {row["body"] for row in rows_of(cluster)} <= {b"a", b"b"}


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("topic", "no such!", "row 1 of this task has the topic 'no such!'"),
        ("queueId", 9, r"row 1 of this task names out@broker-b:9, and out has 4 queues there, from 0 on"),
        ("queueId", -1, "row 1 of this task names out@broker-b:-1"),
    ],
)
def test_a_row_that_no_broker_would_ever_take_is_not_tried_again(
    cluster: BlockingCluster, column: str, value: object, words: str
) -> None:
    kinds = schema(body=TEXT, topic=TEXT, brokerName=TEXT, queueId=IntegerType())
    row = {"body": "a", "topic": "out", "brokerName": "broker-b", "queueId": 1}
    batch: Any = pa.RecordBatch.from_pylist([row, {**row, column: value}])
    writer: Any = source(nameserver=cluster.nameserver, sendTimeoutMs="40s").writer(kinds, False)
    began_s = time.monotonic()
    with pytest.raises(SinkWriteError, match=words):
        writer.write(iter([batch]))
    assert time.monotonic() - began_s < SOON_S
    assert rows_of(cluster) == []


def test_a_queue_that_was_added_a_moment_ago_is_found(cluster: BlockingCluster) -> None:
    kinds = schema(body=TEXT, brokerName=TEXT, queueId=IntegerType())
    write(cluster, kinds, {"body": ["a"], "brokerName": ["broker-a"], "queueId": [0]})
    create(cluster, "broker-a", "out", 6)
    assert write(cluster, kinds, {"body": ["b"], "brokerName": ["broker-a"], "queueId": [5]}) == 1


def test_a_job_in_a_batch_of_a_stream_has_that_batchs_stamps() -> None:
    properties = {
        "sql.streaming.queryId": "0a1b2c3d-0000-4000-8000-00000000abcd",
        "streaming.sql.batchId": "7",
    }
    assert batch_stamp(properties.get) == "0a1b2c3d00004000:7"
    assert batch_stamp(lambda _name: None) is None
    assert batch_stamp({"sql.streaming.queryId": "q"}.get) is None


def test_overwriting_is_refused(cluster: BlockingCluster) -> None:
    with pytest.raises(OptionError, match=r"'mode' is 'overwrite'.*append"):
        source(nameserver=cluster.nameserver, topic="out").writer(schema(body=TEXT), True)


@pytest.mark.parametrize("rows_max", [1, 7, 2_500])
def test_no_more_rows_are_on_their_way_than_allowed(cluster: BlockingCluster, rows_max: int) -> None:
    sender: Any = None

    async def send() -> int:
        """What the sender has taken of its room is looked at while it waits for more."""
        nonlocal sender
        options = sink_options(
            {"nameserver": cluster.nameserver, "topic": "out", "maxInFlight": str(rows_max)},
            env=lambda _: None, content=lambda _: None,
        )  # fmt: skip
        session = await background().session(options.access)
        sender = RowSender(session, options, SystemClock(), seeded_chance())
        batch = pa.RecordBatch.from_pydict(
            {"body": [str(at) for at in range(200 if rows_max < 100 else 6_000)]}
        )
        rows = encode_rows(
            batch, SinkColumns(body="body"), tag=None, stamps=None, first_row=0, ids=sender.ids
        )
        sending = asyncio.create_task(sender.send(rows))
        most = 0
        while not sending.done():
            most = max(most, sender.rows_on_way)
            await asyncio.sleep(0)
        await sending
        await sender.finish()
        return most

    most = background().run(send(), asked="sending", seconds_max=60)
    assert 0 < most <= rows_max
    assert sender.sent == (200 if rows_max < 100 else 6_000)
    assert sender.rows_on_way == 0


def test_rows_with_one_number_go_to_one_queue_in_order_unless_they_have_a_key(
    cluster: BlockingCluster,
) -> None:
    rows = 240
    keys = [None if at % 4 else f"user-{at % 3}" for at in range(rows)]
    batch = {
        "body": [str(at) for at in range(rows)],
        "shardingKey": pa.array(keys, pa.string()),
        "partition": pa.array([at % 5 for at in range(rows)], pa.int32()),
    }
    write(cluster, schema(body=TEXT, shardingKey=TEXT, partition=IntegerType()), batch, maxInFlight="50")
    places: dict[object, list[tuple[Any, ...]]] = {}
    for row in rows_of(cluster):
        at = int(row["body"])
        assert dict(row["properties"]).get("__SHARDINGKEY") == keys[at]
        places.setdefault(keys[at] or at % 5, []).append(
            (row["brokerName"], row["queueId"], row["queueOffset"], at)
        )
    assert len(places) == 8
    for found in places.values():
        assert len({place[:2] for place in found}) == 1
        assert [place[3] for place in sorted(found)] == sorted(place[3] for place in found)
    assert len({place[0][:2] for group, place in places.items() if isinstance(group, int)}) == 5


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_kafka_key_chooses_a_queue_unless_a_partition_is_given(
    cluster: BlockingCluster, kind: pa.DataType
) -> None:
    rows = 120
    keys = [None if at % 4 == 0 else f"user-{at % 3}".encode() for at in range(rows)]
    batch: dict[str, Any] = {
        "value": [str(at) for at in range(rows)],
        "key": pa.array(keys, pa.binary()).cast(kind),
        "partition": pa.array([2 if at % 4 == 1 else None for at in range(rows)], pa.int32()),
    }
    sparks = TEXT if kind == pa.string() else BinaryType()
    for part in range(3):  # a key is not kept together by the chance of one request
        chosen = {name: values[part * 40 :][:40] for name, values in batch.items()}
        write(cluster, schema(value=TEXT, key=sparks, partition=IntegerType()), chosen)
    places: dict[object, list[tuple[Any, ...]]] = {}
    for row in rows_of(cluster):
        at = int(row["body"])
        key = keys[at]
        assert row["keys"] == ([] if key is None else [key.decode()])
        assert "__SHARDINGKEY" not in dict(row["properties"])
        group = "partition 2" if at % 4 == 1 else key
        places.setdefault(group, []).append((row["brokerName"], row["queueId"], row["queueOffset"], at))
    del places[None]
    assert len(places) == 4
    for found in places.values():
        assert len({place[:2] for place in found}) == 1
        assert [place[3] for place in sorted(found)] == sorted(place[3] for place in found)


def test_headers_of_kafka_are_properties(cluster: BlockingCluster) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "n", "value": b"1"}, {"key": "TAGS", "value": b"x"}], None, []], kind)
    pair = StructType([StructField("key", TEXT), StructField("value", BinaryType())])
    kinds = schema(value=TEXT, key=TEXT, headers=ArrayType(pair))
    write(cluster, kinds, {"value": ["a", "b", "c"], "key": ["k", None, ""], "headers": headers})
    found = {
        row["body"]: (row["keys"], dict(row["properties"]).get("n"), row["tag"]) for row in rows_of(cluster)
    }
    assert found == {b"a": (["k"], "1", None), b"b": ([], None, None), b"c": ([], None, None)}
    bad = pa.array([[{"key": "n", "value": b"\xff"}]], kind)
    with pytest.raises(SinkWriteError, match="no UTF-8"):
        write(cluster, kinds, {"value": ["a"], "key": ["k"], "headers": bad})
    nameless = pa.array([[], [{"key": "n", "value": b"1"}, None]], kind)
    with pytest.raises(SinkWriteError, match="row 1 of this task has a header without a name"):
        write(cluster, kinds, {"value": ["a", "b"], "key": ["k", "k"], "headers": nameless})
    binary = schema(value=TEXT, key=BinaryType())
    with pytest.raises(SinkWriteError, match="a value in 'key' is no UTF-8"):
        write(cluster, binary, {"value": ["a"], "key": pa.array([b"\xff\x00"])})
    with pytest.raises(SinkSchemaError, match="array<struct<key: string, value: binary>>"):
        write(cluster, schema(value=TEXT, headers=ArrayType(TEXT)), {"value": ["a"]})


def test_a_broker_that_would_deliver_too_early_gets_no_rows(cluster: BlockingCluster) -> None:
    kinds = schema(body=TEXT, deliverTimestamp=TimestampType())
    when = pa.array([datetime(2099, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    old = Command(code=ResponseCode.SUCCESS, opaque=0, language=LanguageCode.JAVA, version=Version.V4_9_3)
    stop = cluster.intercept(RequestCode.HEART_BEAT, lambda _request: old)
    with pytest.raises(SinkWriteError, match=r"broker-. at .* is older than 5\.0.*use delayLevel"):
        write(cluster, kinds, {"body": ["later"], "deliverTimestamp": when})
    nothing = pa.array([None], pa.timestamp("us", tz="UTC"))
    assert write(cluster, kinds, {"body": ["now"], "deliverTimestamp": nothing}) == 1
    stop()
    tomorrow = pa.array([datetime.now(UTC) + timedelta(hours=20)], pa.timestamp("us", tz="UTC"))
    assert write(cluster, kinds, {"body": ["later"], "deliverTimestamp": tomorrow}) == 1
    assert [row["body"] for row in rows_of(cluster)] == [b"now"]


def test_rows_outlive_the_restart_of_a_broker(cluster: BlockingCluster) -> None:
    kinds = schema(body=TEXT, brokerName=TEXT, queueId=IntegerType())
    batch = {"body": ["a"], "brokerName": ["broker-a"], "queueId": pa.array([1], pa.int32())}
    write(cluster, kinds, batch)
    cluster.kill("broker-a")
    restarting = threading.Timer(1.5, cluster.restart, ["broker-a"])
    restarting.start()
    assert write(cluster, kinds, {**batch, "body": ["b"]}) == 1
    restarting.join()
    assert {row["body"] for row in rows_of(cluster)} == {b"a", b"b"}
