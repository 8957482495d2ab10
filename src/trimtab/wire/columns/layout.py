"""Where the parts of every message lie: the sizes walked one by one, everything else for all messages at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimtab.wire.columns.arrays import INT64, Mask, Places, gather
from trimtab.wire.compression import INFLATED_BYTES_MAX
from trimtab.wire.hosts import HOST_V4_BYTES, HOST_V6_BYTES
from trimtab.wire.messages import (
    BORN_HOST_V6_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_V6_FLAG,
    STORED_BYTES_MIN,
    TOPIC_BYTES_MAX,
    TOPIC_BYTES_MAX_V2,
    StoredMessage,
    decode_messages,
)

BODIES_BYTES_MAX = (1 << 31) - 1
"""Arrow's places in a binary column have 31 bits."""

Buffer: TypeAlias = bytes | bytearray | memoryview

HEAD = np.dtype(
    [
        ("stored_size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
TAIL = np.dtype([("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_bytes", ">i4")])
_SIZE = np.dtype(">i4")
_unpack_size = Struct(">i").unpack_from


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the parts of every message lie in `buffer`; all lengths have been judged."""

    buffer: bytes
    head: NDArray[Any]
    tail: NDArray[Any]
    starts: Places
    store_host_at: Places
    body_at: Places
    topic_at: Places
    properties_at: Places
    ends: Places

    def __len__(self) -> int:
        return len(self.starts)

    def keep(self, wanted: Mask) -> "Rows":
        if wanted.all():
            return self
        arrays = (getattr(self, name)[wanted] for name in Rows.__slots__[1:])
        return Rows(self.buffer, *arrays)

    def message(self, row: int, inflated_bytes_max: int = INFLATED_BYTES_MAX) -> StoredMessage:
        """One row as an object."""
        stored = self.buffer[self.starts[row] : self.ends[row]]
        return decode_messages(stored, inflated_bytes_max=inflated_bytes_max)[0]


def layout(bodies: Sequence[Buffer]) -> Rows:
    buffer = bodies[0] if len(bodies) == 1 and isinstance(bodies[0], bytes) else b"".join(bodies)
    if len(buffer) > BODIES_BYTES_MAX:
        raise ValueError(f"{len(buffer)} bytes at once; decode at most {BODIES_BYTES_MAX}, in several calls")
    starts = _walk(bodies, buffer)
    head = gather(buffer, starts, HEAD)
    ends = starts + head["stored_size"]
    long_topic = head["magic"] == MAGIC_V2
    hosts_bytes = [
        np.where(head["sys_flag"] & flag, HOST_V6_BYTES, HOST_V4_BYTES)
        for flag in (BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG)
    ]
    store_host_at = starts + HEAD.itemsize + hosts_bytes[0] + INT64.itemsize
    body_at = store_host_at + hosts_bytes[1] + TAIL.itemsize
    _require((long_topic | (head["magic"] == MAGIC_V1)) & (body_at + 3 + long_topic <= ends), bodies)
    tail = gather(buffer, body_at - TAIL.itemsize, TAIL)
    topic_at = body_at + tail["body_bytes"] + 1 + long_topic
    _require((tail["body_bytes"] >= 0) & (topic_at + 2 <= ends), bodies)
    data = np.frombuffer(buffer, np.uint8)
    topic_bytes = data[topic_at - 1] + (data[topic_at - 2].astype(np.int64) << 8) * long_topic
    properties_at = topic_at + topic_bytes + 2
    topic_bytes_max = np.where(long_topic, TOPIC_BYTES_MAX_V2, TOPIC_BYTES_MAX)
    _require((topic_bytes <= topic_bytes_max) & (properties_at <= ends), bodies)
    properties_bytes = gather(buffer, properties_at - 2, np.dtype(">i2"))
    _require((properties_bytes >= 0) & (properties_at + properties_bytes == ends), bodies)
    return Rows(buffer, head, tail, starts, store_host_at, body_at, topic_at, properties_at, ends)


def _walk(bodies: Sequence[Buffer], buffer: bytes) -> Places:
    even = _even_starts(bodies, buffer)
    if even is not None:
        return even
    starts: list[int] = []
    body_end = position = 0
    for body in bodies:
        body_end += len(body)
        while position < body_end:
            starts.append(position)
            try:
                (size,) = _unpack_size(buffer, position)
            except struct_error:
                _refuse(bodies)
            if size < STORED_BYTES_MIN:
                _refuse(bodies)
            position += size
        if position > body_end:
            _refuse(bodies)
    return np.array(starts, np.int64)


def _even_starts(bodies: Sequence[Buffer], buffer: bytes) -> Places | None:
    """Where messages begin that are all of one size, as many producers' are: nothing has to be walked then."""
    if len(buffer) < STORED_BYTES_MIN:
        return None
    (size,) = _unpack_size(buffer, 0)
    if size < STORED_BYTES_MIN or any(len(body) % size for body in bodies):
        return None
    starts = np.arange(0, len(buffer), size)
    return starts if bool((gather(buffer, starts, _SIZE) == size).all()) else None


def _require(sound: Mask, bodies: Sequence[Buffer]) -> None:
    if not sound.all():
        _refuse(bodies)


def _refuse(bodies: Sequence[Buffer]) -> NoReturn:
    """Lets the other decoder say what is wrong."""
    for body in bodies:
        decode_messages(body)
    raise AssertionError("decode_columns refused what decode_messages takes")
