"""The sink on a real cluster, called as Spark calls it: what is written is read again, or the task says why not."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, IntegerType, MapType, StringType, StructField, StructType

from tests.unit.spark.engine import read_batch, source
from tests.unit.spark.test_source import create
from trimtab.spark.problems import OptionError, SinkWriteError
from trimtab.spark.sink import StreamWriter, Written
from trimtab.spark.sink_encoding import STAMP
from trimtab.testing import BlockingCluster, Cluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command

TEXT: DataType = StringType()


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
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
    for _ in range(2):
        writer.commit([writer.write(iter([batch]))], 0)
    writer.abort([None], 1)
    stamps = sorted(dict(row["properties"])[STAMP] for row in rows_of(cluster))
    assert stamps == ["query:0:0:0", "query:0:0:0", "query:0:0:1", "query:0:0:1"]


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


def test_overwriting_is_refused(cluster: BlockingCluster) -> None:
    with pytest.raises(OptionError, match=r"'mode' is 'overwrite'.*append"):
        source(nameserver=cluster.nameserver, topic="out").writer(schema(body=TEXT), True)
