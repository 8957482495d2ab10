"""Messages and batches, decoded and encoded: ours beside one `struct` call per field and a dictionary per message.

Run with `python -m bench.wire_messages`. 10,000 messages of 128 bytes with the properties a producer and a broker add.
"""

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from bench.report import Row, median_rate, print_rows
from trimtab.wire.batch import BatchEntry, decode_batch, encode_batch
from trimtab.wire.columns import COLUMNS, decode_columns
from trimtab.wire.hosts import host_bytes
from trimtab.wire.ids import UniqueIds
from trimtab.wire.messages import Storable, decode_messages, encode_stored

MESSAGES = 10_000
BODY_BYTES = 128
NOW_MS = 1_700_000_000_000
BORN_HOST = host_bytes("10.0.0.9:50000")
STORE_HOST = host_bytes("10.0.0.1:10911")

NUMBERS = ("queue_id", "queue_offset", "store_timestamp", "body")
SPARK = ("topic", "queue_id", "queue_offset", "store_timestamp", "tag", "keys", "message_id", "body")
FIXED = (
    ("stored_size", ">i"), ("magic", ">i"), ("body_crc", ">i"), ("queue_id", ">i"), ("flag", ">i"), ("queue_offset", ">q"),
    ("physical_offset", ">q"), ("sys_flag", ">i"), ("born_timestamp", ">q"), ("born_ip", ">4s"), ("born_port", ">i"),
    ("store_timestamp", ">q"), ("store_ip", ">4s"), ("store_port", ">i"), ("reconsume_times", ">i"),
    ("prepared_transaction_offset", ">q"), ("body_bytes", ">i"),
)  # fmt: skip


def storables() -> list[Storable]:
    chance = random.Random(1)
    ids = UniqueIds(BORN_HOST[:4], 4711, 0x14AE5A5, lambda _: (NOW_MS, 1 << 62))
    made = []
    for number in range(MESSAGES):
        properties = f"UNIQ_KEY\x01{ids.next(NOW_MS)}\x02CLUSTER\x01DefaultCluster\x02WAIT\x01true\x02TAGS\x01tag{number % 5}\x02KEYS\x01order-{number}"
        body = chance.randbytes(BODY_BYTES)
        made.append(
            Storable(
                topic=b"TopicTest",
                body=body,
                properties=properties.encode(),
                queue_id=number % 8,
                born_timestamp=NOW_MS,
                born_host=BORN_HOST,
            )
        )
    return made


def encode_all(messages: list[Storable]) -> list[bytes]:
    at, encoded = 0, []
    for number, message in enumerate(messages):
        data = encode_stored(message, number, at, NOW_MS, STORE_HOST)
        encoded.append(data)
        at += len(data)
    return encoded


def naive_encode(messages: list[Storable]) -> list[bytes]:
    at, encoded = 0, []
    for number, message in enumerate(messages):
        data = bytearray()
        size = 91 + len(message.body) + len(message.topic) + len(message.properties)
        for code, value in (
            (">i", size), (">I", 0xDAA320A7), (">i", zlib.crc32(message.body) & 0x7FFFFFFF), (">i", message.queue_id),
            (">i", 0), (">q", number), (">q", at), (">i", 0), (">q", message.born_timestamp), (">8s", message.born_host),
            (">q", NOW_MS), (">8s", STORE_HOST), (">i", 0), (">q", 0), (">i", len(message.body)),
        ):  # fmt: skip
            data += struct.pack(code, value)
        data += message.body
        data += struct.pack(">B", len(message.topic)) + message.topic
        data += struct.pack(">h", len(message.properties)) + message.properties
        encoded.append(bytes(data))
        at += size
    return encoded


def naive_decode(body: bytes) -> list[dict[str, Any]]:
    messages, at = [], 0
    while at < len(body):
        message: dict[str, Any] = {}
        for name, code in FIXED:
            (message[name],) = struct.unpack_from(code, body, at)
            at += struct.calcsize(code)
        message["body"] = body[at : at + message["body_bytes"]]
        at += message["body_bytes"]
        (topic_bytes,) = struct.unpack_from(">B", body, at)
        message["topic"] = body[at + 1 : at + 1 + topic_bytes].decode()
        at += 1 + topic_bytes
        (properties_bytes,) = struct.unpack_from(">h", body, at)
        pairs = body[at + 2 : at + 2 + properties_bytes].decode().split("\x02")
        message["properties"] = dict(pair.split("\x01", 1) for pair in pairs if pair)
        at += 2 + properties_bytes
        messages.append(message)
    return messages


def naive_columns(body: bytes, columns: tuple[str, ...]) -> pa.RecordBatch:
    rows = naive_decode(body)
    for row in rows:
        properties = row["properties"]
        row |= {
            "tag": properties.get("TAGS"),
            "keys": properties.get("KEYS", "").split(),
            "message_id": properties["UNIQ_KEY"],
        }
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in columns} for row in rows])


def touch_two(body: bytes) -> None:
    for message in decode_messages(body):
        _ = message.queue_offset, message.body


def touch_all(body: bytes) -> None:
    for message in decode_messages(body):
        _ = (
            message.queue_id, message.queue_offset, message.physical_offset, message.born_timestamp,
            message.store_timestamp, message.body, message.topic, message.properties, message.tag, message.keys,
            message.message_id, message.offset_message_id, message.born_host, message.store_host,
        )  # fmt: skip


def naive_batch(entries: list[BatchEntry]) -> bytes:
    batch = bytearray()
    for entry in entries:
        for number in (22 + len(entry.body) + len(entry.properties), 0, 0, entry.flag, len(entry.body)):
            batch += struct.pack(">i", number)
        batch += entry.body
        batch += struct.pack(">h", len(entry.properties)) + entry.properties
    return bytes(batch)


def naive_batch_decode(batch: bytes) -> list[dict[str, Any]]:
    entries, at = [], 0
    while at < len(batch):
        entry: dict[str, Any] = {}
        for name in ("size", "magic", "crc", "flag", "body_bytes"):
            (entry[name],) = struct.unpack_from(">i", batch, at)
            at += 4
        entry["body"] = batch[at : at + entry["body_bytes"]]
        at += entry["body_bytes"]
        (properties_bytes,) = struct.unpack_from(">h", batch, at)
        entry["properties"] = batch[at + 2 : at + 2 + properties_bytes]
        at += 2 + properties_bytes
        entries.append(entry)
    return entries


def rate(fn: Callable[[], object]) -> float:
    return median_rate(fn, MESSAGES, runs=7)


def rows() -> list[Row]:
    messages = storables()
    body = b"".join(encode_all(messages))
    entries = [BatchEntry(message.body, message.properties) for message in messages]
    batch = encode_batch(entries, batch_bytes_max=1 << 30)
    ids = UniqueIds(BORN_HOST[:4], 4711, 0x14AE5A5, lambda _: (NOW_MS, 1 << 62))
    naive = rate(lambda: naive_decode(body))
    return [
        Row("decode, no field touched", rate(lambda: decode_messages(body)), naive, "naive decodes all fields"),
        Row("decode, queue_offset and body", rate(lambda: touch_two(body)), naive, "naive decodes all fields"),
        Row("decode, all fields, ids and hosts", rate(lambda: touch_all(body)), naive, "naive without ids and hosts"),
        Row("columns: numbers and body", rate(lambda: decode_columns(body, NUMBERS)), rate(lambda: naive_columns(body, NUMBERS))),
        Row("columns: what Spark reads", rate(lambda: decode_columns(body, SPARK)), rate(lambda: naive_columns(body, SPARK))),
        Row("columns: one tag of five, body", rate(lambda: decode_columns(body, ("body",), tags=frozenset({"tag1"})))),
        Row("columns: properties as a map", rate(lambda: decode_columns(body, ("properties",)))),
        Row("columns: all 20", rate(lambda: decode_columns(body, COLUMNS))),
        Row("encode stored messages", rate(lambda: encode_all(messages)), rate(lambda: naive_encode(messages))),
        Row("encode a batch", rate(lambda: encode_batch(entries, batch_bytes_max=1 << 30)), rate(lambda: naive_batch(entries))),
        Row("decode a batch", rate(lambda: decode_batch(batch)), rate(lambda: naive_batch_decode(batch))),
        Row("unique ids, 300 a millisecond", rate(lambda: [ids.next(NOW_MS + number // 300) for number in range(MESSAGES)])),
    ]  # fmt: skip


if __name__ == "__main__":
    print_rows(rows())
