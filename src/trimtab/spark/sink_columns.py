"""Which columns the sink takes, checked when a query is planned."""

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from trimtab.spark.options import SinkOptions
from trimtab.spark.problems import SinkSchemaError, one_of

_TEXT = (StringType,)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "body": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": _TEXT,
    "tag": _TEXT,
    "keys": (StringType, ArrayType),
    "key": (StringType, BinaryType),
    "properties": (MapType,),
    "shardingKey": _TEXT,
    "brokerName": _TEXT,
    "queueId": _WHOLE,
    "delayLevel": _WHOLE,
    "deliverTimestamp": (TimestampType,),
    "flag": _WHOLE,
    "rowId": _TEXT,
    "partition": _WHOLE,
    "headers": (ArrayType,),
}
_HEADERS = "array<struct<key: string, value: binary>>"
_EXCLUSIVE = (
    (
        "brokerName",
        "shardingKey",
        "a queue is chosen by shardingKey or by brokerName and queueId, not by both",
    ),
    ("brokerName", "partition", "a queue is chosen by partition or by brokerName and queueId, not by both"),
    ("delayLevel", "deliverTimestamp", "a delay is said by delayLevel or by deliverTimestamp, not by both"),
    ("properties", "headers", "columns 'properties' and 'headers' mean the same: give one of them"),
)
_IGNORED = ("bornTimestamp", "storeTimestamp")
ACCEPTED = "body (binary or string; required), topic, tag, keys (string or array), properties (map), shardingKey, brokerName with queueId, delayLevel, deliverTimestamp, flag, rowId, and of Kafka's value, key, partition and headers"


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Which column of the DataFrame, if any, says what of a message."""

    body: str
    topic: str | None = None
    tag: str | None = None
    keys: str | None = None
    properties: str | None = None
    sharding_key: str | None = None
    broker_name: str | None = None
    queue_id: str | None = None
    delay_level: str | None = None
    deliver_at: str | None = None
    flag: str | None = None
    row_id: str | None = None
    partition: str | None = None
    headers: str | None = None
    kafka_key: str | None = None
    """Kafka's word for `keys`. It chooses the queue, too, as it chooses the partition there."""


def sink_columns(schema: StructType, options: SinkOptions) -> SinkColumns:
    """Refuses what cannot be written, with what can."""
    by_lower = {name.lower(): name for name in _KINDS}
    ignored = {name.lower() for name in _IGNORED}
    found: dict[str, str] = {}
    for field in schema.fields:
        if field.name.lower() in ignored:
            continue
        name = by_lower.get(field.name.lower())
        if name is None:
            raise SinkSchemaError(f"column {field.name!r} means nothing to the sink; it takes {ACCEPTED}")
        _check_type(name, field.name, field.dataType)
        if name in found:
            raise SinkSchemaError(
                f"columns {found[name]!r} and {field.name!r} mean the same: give one of them"
            )
        found[name] = field.name
    body = _one(found, "body", "value")
    if body is None:
        raise SinkSchemaError(f"there is no column 'body'; the sink takes {ACCEPTED}")
    if options.topic is None and "topic" not in found:
        raise SinkSchemaError("no topic is named: set the option topic, or give a column topic")
    _refuse_contradictions(found)
    return SinkColumns(
        body=body,
        topic=None if options.topic is not None else found.get("topic"),
        tag=found.get("tag"),
        keys=_one(found, "keys", "key"),
        properties=found.get("properties"),
        sharding_key=found.get("shardingKey"),
        broker_name=found.get("brokerName"),
        queue_id=found.get("queueId"),
        delay_level=found.get("delayLevel"),
        deliver_at=found.get("deliverTimestamp"),
        flag=found.get("flag"),
        row_id=found.get("rowId"),
        partition=found.get("partition"),
        headers=found.get("headers"),
        kafka_key=found.get("key"),
    )


def _refuse_contradictions(found: Collection[str]) -> None:
    if ("brokerName" in found) != ("queueId" in found):
        raise SinkSchemaError("brokerName and queueId name a queue together: give both columns, or neither")
    for one, other, what in _EXCLUSIVE:
        if one in found and other in found:
            raise SinkSchemaError(what)


def _one(found: dict[str, str], name: str, other: str) -> str | None:
    if name in found and other in found:
        raise SinkSchemaError(f"columns {found[name]!r} and {found[other]!r} mean the same: give one of them")
    return found.get(name) or found.get(other)


def _check_type(name: str, given: str, kind: DataType) -> None:
    allowed = _KINDS[name]
    fits = isinstance(kind, allowed)
    if isinstance(kind, ArrayType):
        fits = fits and (_is_headers(kind) if name == "headers" else isinstance(kind.elementType, StringType))
    if isinstance(kind, MapType):
        fits = fits and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not fits:
        words = one_of(_word(option) for option in allowed) if name != "headers" else _HEADERS
        raise SinkSchemaError(f"column {given!r} is {kind.simpleString()}; it must be {words}")


def _is_headers(kind: ArrayType) -> bool:
    """As Kafka's source gives them and its sink takes them."""
    pair = kind.elementType
    if not isinstance(pair, StructType) or pair.fieldNames() != ["key", "value"]:
        return False
    return isinstance(pair[0].dataType, StringType) and isinstance(pair[1].dataType, BinaryType)


def _word(kind: type[DataType]) -> str:
    special = {ArrayType: "array<string>", MapType: "map<string,string>"}
    return special.get(kind) or kind.typeName()
