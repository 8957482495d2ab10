"""The columns of the source: from the wire's Arrow columns to those that Spark was promised.

Each column names what it needs of the messages; nothing else is decoded. Topic, broker and queue are the same for all messages
of a range and are not read from them at all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.model import MessageQueue
from trimtab.spark.decisions import partition_number
from trimtab.wire import properties as names

_DELIVER_AT = ("TIMER_DELIVER_MS", "TIMER_OUT_MS")
_LOG_APPEND_TIME = 1
_TIME = pa.timestamp("ms", tz="UTC")

Build = Callable[[pa.RecordBatch, MessageQueue], Any]


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """One column: its Spark type as DDL, the wire columns it needs, and how it is made of them."""

    ddl: str
    needs: tuple[str, ...]
    build: Build


def _same(name: str) -> Build:
    return lambda batch, _queue: batch.column(name)


def _text_property(name: str) -> Build:
    return lambda batch, _queue: _looked_up(batch, name)


def _looked_up(batch: pa.RecordBatch, name: str) -> Any:
    """A property by its name. Where no message has it, which is found out quickly, no map is searched."""
    properties: Any = batch.column("properties")
    if pc.index(properties.keys, name).as_py() < 0:
        return pa.nulls(batch.num_rows, pa.string())
    return pc.map_lookup(properties, name, "last")


def _joined_keys(batch: pa.RecordBatch, _queue: MessageQueue) -> Any:
    """All keys of a message as one text, null where there are none."""
    keys: Any = batch.column("keys")
    has_none = pc.equal(pc.list_value_length(keys), pa.scalar(0))
    return pc.if_else(has_none, pa.scalar(None, pa.string()), pc.binary_join(keys, " "))


def _deliver_timestamps(batch: pa.RecordBatch, _queue: MessageQueue) -> Any:
    chosen: Any = pc.coalesce(*(_looked_up(batch, name) for name in _DELIVER_AT))
    if chosen.null_count == len(chosen):
        return pa.nulls(len(chosen), _TIME)
    numbers: Any = pc.if_else(
        pc.match_substring_regex(chosen, "^[0-9]{1,15}$"), chosen, pa.scalar(None, pa.string())
    )
    return numbers.cast(pa.int64()).cast(_TIME)


def _headers(batch: pa.RecordBatch, _queue: MessageQueue) -> Any:
    properties: Any = batch.column("properties")
    pairs = pa.StructArray.from_arrays(
        [properties.keys, properties.items.cast(pa.binary())], names=["key", "value"]
    )
    return pa.ListArray.from_arrays(properties.offsets, pairs)


def _repeated(value: Any, kind: pa.DataType) -> Build:
    def build(batch: pa.RecordBatch, queue: MessageQueue) -> Any:
        scalar = pa.scalar(value(queue), kind)
        return pa.repeat(scalar, batch.num_rows)  # type: ignore[call-overload]

    return build


_TOPIC = SourceColumn("STRING", (), _repeated(lambda queue: queue.topic, pa.string()))

OWN_COLUMNS: Mapping[str, SourceColumn] = {
    "topic": _TOPIC,
    "brokerName": SourceColumn("STRING", (), _repeated(lambda queue: queue.broker_name, pa.string())),
    "queueId": SourceColumn("INT", (), _repeated(lambda queue: queue.queue_id, pa.int32())),
    "queueOffset": SourceColumn("BIGINT", ("queue_offset",), _same("queue_offset")),
    "msgId": SourceColumn("STRING", ("message_id",), _same("message_id")),
    "offsetMsgId": SourceColumn("STRING", ("offset_message_id",), _same("offset_message_id")),
    "keys": SourceColumn("ARRAY<STRING>", ("keys",), _same("keys")),
    "tag": SourceColumn("STRING", ("tag",), _same("tag")),
    "body": SourceColumn("BINARY", ("body",), _same("body")),
    "properties": SourceColumn("MAP<STRING,STRING>", ("properties",), _same("properties")),
    "bornTimestamp": SourceColumn("TIMESTAMP", ("born_timestamp",), _same("born_timestamp")),
    "storeTimestamp": SourceColumn("TIMESTAMP", ("store_timestamp",), _same("store_timestamp")),
    "bornHost": SourceColumn("STRING", ("born_host",), _same("born_host")),
    "storeHost": SourceColumn("STRING", ("store_host",), _same("store_host")),
    "sysFlag": SourceColumn("INT", ("sys_flag",), _same("sys_flag")),
    "flag": SourceColumn("INT", ("flag",), _same("flag")),
    "reconsumeTimes": SourceColumn("INT", ("reconsume_times",), _same("reconsume_times")),
    "transactionId": SourceColumn("STRING", ("properties",), _text_property(names.TRANSACTION_ID)),
    "deliverTimestamp": SourceColumn("TIMESTAMP", ("properties",), _deliver_timestamps),
}
KAFKA_COLUMNS: Mapping[str, SourceColumn] = {
    "key": SourceColumn("BINARY", ("keys",), _joined_keys),
    "value": SourceColumn("BINARY", ("body",), _same("body")),
    "topic": _TOPIC,
    "partition": SourceColumn("INT", (), _repeated(partition_number, pa.int32())),
    "offset": SourceColumn("BIGINT", ("queue_offset",), _same("queue_offset")),
    "timestamp": SourceColumn("TIMESTAMP", ("store_timestamp",), _same("store_timestamp")),
    "timestampType": SourceColumn("INT", (), _repeated(lambda _queue: _LOG_APPEND_TIME, pa.int32())),
    "headers": SourceColumn("ARRAY<STRUCT<key: STRING, value: BINARY>>", ("properties",), _headers),
}

_ROW_COUNT = "queue_offset"
"""Decoded when nothing else is wanted: there must be something to count."""


def needed(columns: Iterable[SourceColumn]) -> tuple[str, ...]:
    """The wire columns to decode, each once."""
    wanted = dict.fromkeys(name for column in columns for name in column.needs)
    return tuple(wanted) or (_ROW_COUNT,)


def shaped(
    batch: pa.RecordBatch, queue: MessageQueue, columns: Sequence[SourceColumn], schema: pa.Schema
) -> pa.RecordBatch:
    """What Spark gets: exactly the schema that it expects."""
    arrays = [
        _fitting(column.build(batch, queue), field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fitting(array: Any, kind: pa.DataType) -> Any:
    if array.type == kind:
        return array
    if pa.types.is_string(kind) and pa.types.is_binary(array.type):
        return _as_text(array)
    return array.cast(kind)


def _as_text(bodies: Any) -> Any:
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(body.as_py()) for body in bodies], pa.string())


def _decoded(body: bytes | None) -> str | None:
    return None if body is None else body.decode(errors="replace")
