"""Rows as messages on the wire, without Spark and without a broker."""

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from trimtab.client.routes import Route
from trimtab.model import MessageQueue
from trimtab.spark.options import SinkOptions, sink_options
from trimtab.spark.problems import SinkSchemaError, SinkWriteError
from trimtab.spark.sink_columns import SinkColumns, sink_columns
from trimtab.spark.sink_encoding import EncodedRows, encode_rows
from trimtab.spark.sink_loads import Load, loads_of, misplaced, refuse_names
from trimtab.spark.sink_stamps import STAMP, Occurrences, Stamps
from trimtab.spark.sink_texts import counted
from trimtab.wire.batch import decode_batch
from trimtab.wire.bodies import BrokerData, QueueData, TopicRouteData
from trimtab.wire.hashing import java_hash
from trimtab.wire.properties import decode_properties

OPTIONS = {"nameserver": "127.0.0.1:1", "topic": "t"}


def options(**more: str) -> SinkOptions:
    return sink_options({**OPTIONS, **more}, env=lambda _: None, content=lambda _: None)


def encoded(columns: SinkColumns, data: dict[str, Any], **more: Any) -> EncodedRows:
    batch = pa.RecordBatch.from_pydict(data)
    given: dict[str, Any] = {"tag": None, "stamps": None, "first_row": 0, **more}
    return encode_rows(batch, columns, ids=ids, **given)


def ids(count: int) -> Any:
    return pa.array([b"UNIQ_KEY\x01ID%d" % at for at in range(count)])


def route(topic: str, queues: int = 4) -> Route:
    return Route(
        topic,
        TopicRouteData(
            queue_datas=(
                QueueData(
                    broker_name="b", read_queue_nums=queues, write_queue_nums=queues, perm=6, topic_sys_flag=0
                ),
            ),
            broker_datas=(BrokerData(cluster="c", broker_name="b", broker_addrs={0: "127.0.0.1:1"}),),
        ),
    )


def properties_of(rows: EncodedRows) -> list[dict[str, str]]:
    return [decode_properties(text.as_py()) for text in rows.properties]


def test_a_batch_body_holds_what_the_rows_say() -> None:
    columns = SinkColumns(body="body", tag="tag", keys="keys", properties="properties", flag="flag")
    rows = encoded(
        columns,
        {
            "body": [b"one", b"\x00\x01\x02", b"three"],
            "tag": ["eu", None, ""],
            "keys": pa.array(
                [["k1", "k2"], [], None], pa.list_(pa.field("element", pa.string(), nullable=False))
            ),
            "properties": pa.array(
                [[("n", "1"), ("TAGS", "not mine")], None, [("Grüße", "🚀")]],
                pa.map_(pa.string(), pa.string()),
            ),
            "flag": [7, None, 0],
        },
        stamps=Stamps("q:3:0:"),
        first_row=10,
    )
    entries = decode_batch(b"".join(rows.entries.to_pylist()))
    assert [entry.body for entry in entries] == [b"one", b"\x00\x01\x02", b"three"]
    assert [entry.flag for entry in entries] == [7, 0, 0]
    found = [decode_properties(entry.properties) for entry in entries]
    stamps = [properties.pop(STAMP) for properties in found]
    assert len(set(stamps)) == 3
    assert all(stamp.startswith("q:3:0:") for stamp in stamps)
    assert found == [
        {"UNIQ_KEY": "ID0", "TAGS": "eu", "KEYS": "k1 k2", "n": "1"},
        {"UNIQ_KEY": "ID1"},
        {"UNIQ_KEY": "ID2", "Grüße": "🚀"},
    ]


def test_a_key_that_is_nothing_leaves_the_other_keys_alone() -> None:
    keys = [["a", None, "b"], [None], None, [], ["", "c"], ["d"], ["out"]]
    data: dict[str, Any] = {"body": ["x"] * len(keys), "k": pa.array(keys, pa.list_(pa.string()))}
    whole = pa.RecordBatch.from_pydict(data)
    wanted = ["a b", None, None, None, "c", "d"]
    for first in range(6):
        part = whole.slice(first, 6 - first)
        rows = encode_rows(
            part, SinkColumns(body="body", keys="k"), tag=None, stamps=None, first_row=0, ids=ids
        )
        assert [properties.get("KEYS") for properties in properties_of(rows)] == wanted[first:]


def stamps_of(rows: list[dict[str, Any]], columns: SinkColumns, batch_rows: int) -> list[str]:
    stamps = Stamps("q:0:0:")
    found = []
    for at in range(0, len(rows), batch_rows):
        part = rows[at : at + batch_rows]
        data: dict[str, Any] = {name: [row[name] for row in part] for name in part[0]}
        if "tag" in data:
            data["tag"] = pa.array(data["tag"], pa.string())
        found += [properties[STAMP] for properties in properties_of(encoded(columns, data, stamps=stamps))]
    return found


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.sampled_from(["eu", "us", None])), min_size=1),
    st.randoms(),
)
def test_stamps_of_rows_do_not_depend_on_their_order(
    rows: list[tuple[bytes, str | None]], chance: random.Random
) -> None:
    columns = SinkColumns(body="body", tag="tag")
    dicts = [{"body": body, "tag": tag} for body, tag in rows]
    stamps = stamps_of(dicts, columns, 4)
    assert len(set(stamps)) == len(rows), "no row is taken for another"
    chance.shuffle(dicts)
    assert sorted(stamps_of(dicts, columns, 7)) == sorted(stamps)


def test_where_a_row_goes_to_is_a_part_of_its_stamp() -> None:
    columns = SinkColumns(body="body", broker_name="brokerName", queue_id="queueId")
    rows = [{"body": "same", "brokerName": "a", "queueId": at} for at in range(2)]
    assert sorted(stamps_of(rows, columns, 5)) == sorted(stamps_of(rows[::-1], columns, 5))
    assert stamps_of(rows[:1], columns, 5) != stamps_of(rows[1:], columns, 5)


def test_a_row_with_an_id_of_its_own_is_known_by_that_alone() -> None:
    columns = SinkColumns(body="body", row_id="rowId")
    assert stamps_of([{"body": "x", "rowId": "o-7"}], columns, 5) == ["id:o-7"]
    with pytest.raises(SinkWriteError, match="row 0 of this task has no rowId"):
        encoded(columns, {"body": ["x"], "rowId": pa.array([None], pa.string())}, stamps=Stamps("q"))


@given(st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=6)))
def test_occurrences_are_counted_exactly_however_they_come(batches: list[list[int]]) -> None:
    counts = Occurrences()
    before: Counter[int] = Counter()
    for batch in batches:
        again = counts.add_all(np.array(batch, np.uint64))
        for at, number in enumerate(batch):
            assert again.get(at, 0) == before[number]
            before[number] += 1


@given(st.lists(st.integers(0, 1 << 40), min_size=1), st.text("0123456789ABCDEF"))
def test_ids_are_written_as_message_ids_are(counts: list[int], head: str) -> None:
    assert counted(head, counts).to_pylist() == [f"{head}{count & 0xFFFF:04X}".encode() for count in counts]


def test_a_slice_of_a_larger_batch_is_encoded_as_itself() -> None:
    table = pa.RecordBatch.from_pydict({
        "body": [b"a", b"b", b"c"],
        "properties": pa.array([[("n", "0")], [("n", "1")], [("n", "2")]], pa.map_(pa.string(), pa.string())),
        "keys": ["x", "y", "z"],
    })  # fmt: skip
    columns = SinkColumns(body="body", properties="properties", keys="keys")
    rows = encode_rows(table.slice(1, 2), columns, tag="T", stamps=None, first_row=0, ids=ids)
    assert [(p["n"], p["KEYS"], p["TAGS"]) for p in properties_of(rows)] == [("1", "y", "T"), ("2", "z", "T")]
    (load,) = loads_of(rows, options(), route)
    assert [entry.body for entry in decode_batch(bytes(load.body))] == [b"b", b"c"]


def test_delays_are_properties_and_go_alone() -> None:
    columns = SinkColumns(body="body", delay_level="delayLevel")
    rows = encoded(columns, {"body": ["a", "b", "c", "d"], "delayLevel": [0, 3, None, 0]})
    assert [p.get("DELAY") for p in properties_of(rows)] == [None, "3", None, None]
    loads = list(loads_of(rows, options(), route))
    assert [(load.is_batch, load.count, load.first_row) for load in loads] == [
        (True, 1, 0), (False, 1, 1), (True, 2, 2),
    ]  # fmt: skip
    at = datetime(2026, 11, 16, 12, 0, 0, 123456, tzinfo=UTC)
    rows = encoded(
        SinkColumns(body="body", deliver_at="at"),
        {"body": ["a", "b"], "at": pa.array([at, None], pa.timestamp("us", tz="UTC"))},
    )
    assert [p.get("TIMER_DELIVER_MS") for p in properties_of(rows)] == [str(int(at.timestamp() * 1000)), None]


def test_rows_with_one_key_keep_their_order_in_one_queue() -> None:
    keys = ["x", "y", "x", None, "y", "x"]
    rows = encoded(
        SinkColumns(body="body", sharding_key="k"), {"body": [str(n) for n in range(6)], "k": keys}
    )
    by_queue = {load.queue: load for load in loads_of(rows, options(), route)}
    queues = route("t").writable.queues
    for key, bodies in (("x", [b"0", b"2", b"5"]), ("y", [b"1", b"4"])):
        load = by_queue[queues[abs(java_hash(key)) % 4]]
        assert [entry.body for entry in decode_batch(bytes(load.body))] == bodies
    assert [entry.body for entry in decode_batch(bytes(by_queue[None].body))] == [b"3"]


def test_topics_and_exact_queues_are_kept_apart() -> None:
    columns = SinkColumns(body="body", topic="topic", broker_name="b", queue_id="q")
    rows = encoded(
        columns,
        {
            "body": ["1", "2", "3"],
            "topic": ["s", "t", "s"],
            "b": ["b", "b", None],
            "q": pa.array([1, 2, 3], pa.int32()),
        },
    )
    loads = list(loads_of(rows, options(), route))
    assert [(load.topic, load.queue) for load in loads] == [
        ("s", MessageQueue("s", "b", 1)), ("s", None), ("t", MessageQueue("t", "b", 2)),
    ]  # fmt: skip


def test_requests_hold_no_more_than_they_may() -> None:
    rows = encoded(SinkColumns(body="body"), {"body": ["x" * 400] * 100 + ["y" * 5000]})
    loads = list(loads_of(rows, options(batchBytes="4k"), route))
    assert sum(load.count for load in loads) == 101
    assert all(len(load.body) <= 4096 for load in loads if load.is_batch)
    assert [(load.is_batch, load.first_row) for load in loads][-1] == (False, 100)
    assert _rows(loads) == list(range(101))


def _rows(loads: list[Load]) -> list[int]:
    return [row for load in loads for row in range(load.first_row, load.first_row + load.count)]


def test_properties_that_leave_brokers_no_room_for_theirs_go_alone() -> None:
    many = pa.array([[("n", "1")], [("n", "v" * 32_000)], [("n", "2")]], pa.map_(pa.string(), pa.string()))
    rows = encoded(SinkColumns(body="body", properties="p"), {"body": ["a", "b", "c"], "p": many})
    loads = list(loads_of(rows, options(), route))
    assert [(load.is_batch, load.first_row) for load in loads] == [(True, 0), (False, 1), (True, 2)]


def test_compressed_bodies_go_alone() -> None:
    rows = encoded(SinkColumns(body="body"), {"body": ["x" * 10, "y" * 200]})
    loads = list(loads_of(rows, options(compression="zlib", compressBodyOver="100"), route))
    assert [load.is_batch for load in loads] == [True, False]


@pytest.mark.parametrize(
    ("columns", "data", "words"),
    [
        (SinkColumns(body="body"), {"body": ["a", None]}, "row 1 of this task has no body"),
        (SinkColumns(body="body"), {"body": ["a", "b", ""]}, "row 2 of this task has no body"),
        (SinkColumns(body="body", tag="t"), {"body": ["a"], "t": ["x\x02y"]}, "separator of properties .* tag"),
        (SinkColumns(body="body", keys="k"), {"body": ["a"], "k": [["a b"]]}, "key 'a b' has a space"),
        (SinkColumns(body="body", topic="t"), {"body": ["a", "b"], "t": ["x", None]}, "row 1 of this task has no topic"),
        (
            SinkColumns(body="body", flag="f"), {"body": ["a", "b", "c"], "f": pa.array([7, None, 1 << 31], pa.int64())},
            "row 2 of this task has a flag that is not from -2147483648 to 2147483647 in column 'f'",
        ),
        (SinkColumns(body="body", flag="f"), {"body": ["a"], "f": [-(1 << 31) - 1]}, "row 0 of this task has a flag"),
        (
            SinkColumns(body="body", properties="p"),
            {"body": ["a", "b"], "p": pa.array([[("n", "1")], [("m", "")]], pa.map_(pa.string(), pa.string()))},
            "row 1 of this task has a value of a property that is empty",
        ),
        (
            SinkColumns(body="body", tag="t"), {"body": ["a"], "t": ["x" * 40_000]},
            "row 0 of this task has properties of more than 32767 bytes",
        ),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_sent_says_why(columns: SinkColumns, data: dict[str, Any], words: str) -> None:
    with pytest.raises(SinkWriteError, match=words):
        encoded(columns, data)


def schema(*names: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (schema("tag"), "no column 'body'"),
        (schema("body", "colour"), "column 'colour' means nothing to the sink; it takes body"),
        (schema("body", "value"), "mean the same"),
        (schema("body", "BODY"), "columns 'body' and 'BODY' mean the same: give one of them"),
        (schema("body", "Tag", "tag"), "columns 'Tag' and 'tag' mean the same"),
        (schema("body", "properties"), "column 'properties' is string; it must be map<string,string>"),
        (schema("body", "brokerName"), "give both columns, or neither"),
        (StructType([StructField("body", IntegerType())]), "column 'body' is int; it must be binary, string"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_with_what_can(columns: StructType, words: str) -> None:
    with pytest.raises(SinkSchemaError, match=words):
        sink_columns(columns, options())


def test_a_topic_must_come_from_somewhere() -> None:
    without = sink_options({"nameserver": "h:1"}, env=lambda _: None, content=lambda _: None)
    with pytest.raises(SinkSchemaError, match="no topic is named"):
        sink_columns(schema("body"), without)
    assert sink_columns(schema("value", "TOPIC"), without) == SinkColumns(body="value", topic="TOPIC")
    assert sink_columns(schema("body", "topic"), options()).topic is None, (
        "the option wins, as in Kafka's sink"
    )


@pytest.mark.parametrize("topic", ["", "a b", "orders!", "x" * 128])
def test_a_topic_that_no_broker_takes_is_refused_with_its_row(topic: str) -> None:
    rows = encoded(SinkColumns(body="body", topic="t"), {"body": ["1", "2"], "t": ["s", topic]}, first_row=40)
    with pytest.raises(SinkWriteError, match=r"row 41 of this task has the topic '.*', which is no name"):
        refuse_names(rows)


def test_a_row_for_a_queue_that_its_topic_does_not_have_is_found() -> None:
    columns = SinkColumns(body="body", topic="topic", broker_name="b", queue_id="q")

    def found(broker: str | None, queue_id: int | None) -> tuple[int, MessageQueue] | None:
        places = {"b": pa.array(["b", broker]), "q": pa.array([3, queue_id], pa.int64())}
        rows = encoded(columns, {"body": ["1", "2"], "topic": ["s", "t"], **places}, first_row=7)
        return misplaced(rows, options(), route)

    for queue_id in (4, -1, 1 << 40):
        assert found("b", queue_id) == (8, MessageQueue("t", "b", queue_id))
    assert found("b", 0) is None
    assert found("c", 9) is None, "that broker may be away"
    assert found(None, 9) is None
    assert found("b", None) is None


def test_flags_are_numbers() -> None:
    data: dict[str, Any] = {"b": ["x", "y"], "f": pa.array([-(1 << 31), (1 << 31) - 1], pa.int64())}
    assert encoded(SinkColumns(body="b", flag="f"), data).flags.tolist() == data["f"].to_pylist()
    assert np.array_equal(encoded(SinkColumns(body="b"), {"b": ["x"]}).flags, [0])
