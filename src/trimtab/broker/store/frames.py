"""How the log lies on disk.

A segment file is frames back to back, one frame per written batch:

    "trim" | version u16 | 0 u16 | count u32 | payload bytes u32 | previous u32 | log offset i64 | durable i64 | check u32
    count records in RocketMQ's stored-message layout
    count checksums u32, one per record

`check` is over the head, the checksums and the store's own number, so every byte is covered in one pass and a frame of another
store does not fit. `previous` is the check of the frame before: bytes left over from an earlier life can never follow a new
frame. `durable` is how far the log was known to be on stable storage when the frame was written: if a frame is whole, damage
below its `durable` cannot be a torn tail. Records stand together, so that messages of one queue that came in one batch go to a
consumer as one slice.
"""

from struct import Struct, pack, unpack_from
from typing import NamedTuple

from trimtab.errors import ProtocolError
from trimtab.wire.hashing import crc32
from trimtab.wire.messages import StoredMessage, decode_messages

MAGIC = b"trim"
VERSION = 1

_HEAD = Struct(">4sHHIIIqqI")
_UNCHECKED_BYTES = _HEAD.size - 4
HEAD_BYTES = _HEAD.size
CHECKSUM_BYTES = 4


class Head(NamedTuple):
    """The beginning of a frame, not yet checked."""

    records: int
    payload_bytes: int
    previous: int
    offset: int
    durable: int
    check: int

    @property
    def total_bytes(self) -> int:
        return HEAD_BYTES + self.payload_bytes + CHECKSUM_BYTES * self.records


class Frame(NamedTuple):
    """A frame whose every byte was checked."""

    head: Head
    messages: list[StoredMessage]
    checksums: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.head.offset + self.head.total_bytes


def seal(
    checksums: list[int], *, payload_bytes: int, offset: int, previous: int, durable: int, salt: int
) -> tuple[bytes, bytes, int]:
    """What stands before the records, what stands behind them, and the check of it."""
    count = len(checksums)
    table = pack(f">{count}I", *checksums)
    fields = _HEAD.pack(MAGIC, VERSION, 0, count, payload_bytes, previous, offset, durable, 0)
    unchecked = fields[:_UNCHECKED_BYTES]
    check = crc32(table, crc32(unchecked, salt))
    return unchecked + check.to_bytes(4), table, check


def read_head(data: bytes, at: int, offset: int) -> Head | None:
    """The head at `at`, if there is one and it says that it stands at `offset` of the log."""
    if len(data) - at < HEAD_BYTES:
        return None
    magic, version, zero, *fields = _HEAD.unpack_from(data, at)
    head = Head(*fields)
    if magic != MAGIC or version != VERSION or zero or head.offset != offset or head.records == 0:
        return None
    return head


def is_true_head(head: Head, raw_head: bytes, table: bytes, salt: int) -> bool:
    """Whether head and checksums are as they were written: then the payload between them is worth reading, however long."""
    return crc32(table, crc32(raw_head[:_UNCHECKED_BYTES], salt)) == head.check


def read_frame(data: bytes, at: int, head: Head, salt: int) -> Frame | None:
    """The frame at `at`, of which all bytes are in `data`; None unless all of them are as they were written."""
    table_at = at + HEAD_BYTES + head.payload_bytes
    table = data[table_at : table_at + CHECKSUM_BYTES * head.records]
    if crc32(table, crc32(data[at : at + _UNCHECKED_BYTES], salt)) != head.check:
        return None
    checksums = unpack_from(f">{head.records}I", table)
    payload = memoryview(data)[at + HEAD_BYTES : table_at]
    try:
        messages = decode_messages(payload)
    except ProtocolError:
        return None
    if len(messages) != head.records:
        return None
    start = 0
    offset = head.offset + HEAD_BYTES
    for message, checksum in zip(messages, checksums, strict=True):
        size = message.stored_size
        if crc32(payload[start : start + size]) != checksum or message.physical_offset != offset + start:
            return None
        start += size
    return Frame(head, messages, checksums)
