"""Messages as brokers store and send them, in both directions.

A pull body is messages back to back. `decode_messages` lays a light view over each: one `struct` call takes the few numbers that every
reader needs, the lengths are judged at once, and all else is cut out of the buffer when somebody asks. After that nothing but
inflating a body can fail. `encode_stored` is the other way, for a broker: the head in one `struct` call, the rest joined on.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat, starmap
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

import msgspec
from msgspec.structs import force_setattr, replace

from trimtab.errors import InvalidMessageError, ProtocolError
from trimtab.wire import properties as names
from trimtab.wire.compression import COMPRESSED_FLAG, INFLATED_BYTES_MAX, compression_of, inflate
from trimtab.wire.hashing import body_crc, crc32
from trimtab.wire.hosts import HOST_V4_BYTES, HOST_V6_BYTES, host_text
from trimtab.wire.ids import offset_message_id
from trimtab.wire.properties import PROPERTIES_BYTES_MAX

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
"""5.x: the length of the topic takes two bytes."""
MAGIC_FILLER = -875286124
"""Begins the unused rest of an Apache commit log file; never part of an answer."""

BORN_HOST_V6_FLAG = 0x10
STORE_HOST_V6_FLAG = 0x20
V6_FLAGS = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG

TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC

STORED_BYTES_MIN = 91
TOPIC_BYTES_MAX = 127
TOPIC_BYTES_MAX_V2 = 32_767


class Head(NamedTuple):
    """Everything before the body, in the order of the wire."""

    stored_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host_bytes: bytes
    store_timestamp: int
    store_host_bytes: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    stored_body_bytes: int


def _head(born_host_bytes: int, store_host_bytes: int) -> Struct:
    """The layout of `Head`."""
    return Struct(f">5i 2q i q{born_host_bytes}s q{store_host_bytes}s iqi")


_HEADS = {
    0: _head(HOST_V4_BYTES, HOST_V4_BYTES),
    BORN_HOST_V6_FLAG: _head(HOST_V6_BYTES, HOST_V4_BYTES),
    STORE_HOST_V6_FLAG: _head(HOST_V4_BYTES, HOST_V6_BYTES),
    V6_FLAGS: _head(HOST_V6_BYTES, HOST_V6_BYTES),
}
_HEAD_BYTES = _HEADS[0].size
_unpack_needed = Struct(f">2i 12x q 8x i {8 + HOST_V4_BYTES + 8 + HOST_V4_BYTES + 4 + 8}x i").unpack_from
"""Of a head with short hosts: sizes, magic, queue offset and system flags."""
_unpack_i32 = Struct(">i").unpack_from
_pack_head = _HEADS[0].pack
_pack_u16 = Struct(">H").pack
_pack_i32 = Struct(">i").pack
_pack_i32x2 = Struct(">2i").pack
_pack_i64 = Struct(">q").pack
_ONE_BYTE = [bytes((number,)) for number in range(TOPIC_BYTES_MAX + 1)]


class StoredMessage(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One message of a received buffer, which it keeps alive. Made by `decode_messages`.

    What nearly everybody asks for is there at once; the rest is cut out when asked for, and then kept. `gc=False`
    takes it off the garbage collector's list: it holds bytes, numbers and text, so it cannot be part of a cycle.
    """

    _buffer: bytes | bytearray | memoryview
    _start: int
    _body_at: int
    _topic_at: int
    _properties_at: int
    _inflated_bytes_max: int
    stored_size: int
    magic: int
    queue_offset: int
    sys_flag: int
    stored_body_bytes: int
    _head: Head | None = None
    _body: bytes | None = None
    _topic: str | None = None
    _properties: dict[str, str] | None = None

    @property
    def body_crc(self) -> int:
        return (self._head or self._unpacked()).body_crc

    @property
    def queue_id(self) -> int:
        return (self._head or self._unpacked()).queue_id

    @property
    def flag(self) -> int:
        return (self._head or self._unpacked()).flag

    @property
    def physical_offset(self) -> int:
        return (self._head or self._unpacked()).physical_offset

    @property
    def born_timestamp(self) -> int:
        return (self._head or self._unpacked()).born_timestamp

    @property
    def born_host_bytes(self) -> bytes:
        return (self._head or self._unpacked()).born_host_bytes

    @property
    def store_timestamp(self) -> int:
        return (self._head or self._unpacked()).store_timestamp

    @property
    def store_host_bytes(self) -> bytes:
        return (self._head or self._unpacked()).store_host_bytes

    @property
    def reconsume_times(self) -> int:
        return (self._head or self._unpacked()).reconsume_times

    @property
    def prepared_transaction_offset(self) -> int:
        return (self._head or self._unpacked()).prepared_transaction_offset

    @property
    def topic(self) -> str:
        topic = self._topic
        if topic is None:
            topic = names.decode_text(bytes(self._buffer[self._topic_at : self._properties_at - 2]))
            force_setattr(self, "_topic", topic)
        return topic

    @property
    def body(self) -> bytes:
        """The body as it was sent; a compressed one is inflated, within the limit given to `decode_messages`."""
        body = self._body
        if body is None:
            body_at = self._body_at
            piece = self._buffer[body_at : body_at + self.stored_body_bytes]
            body = piece if type(piece) is bytes else bytes(piece)
            if self.sys_flag & COMPRESSED_FLAG and body:
                body = self._inflated(body)
            force_setattr(self, "_body", body)
        return body

    @property
    def stored_body(self) -> bytes:
        return bytes(self._buffer[self._body_at : self._body_at + self.stored_body_bytes])

    @property
    def stored_bytes(self) -> bytes:
        """The whole message as it came."""
        return bytes(self._buffer[self._start : self._start + self.stored_size])

    @property
    def crc_matches(self) -> bool:
        return self.body_crc == body_crc(self.stored_body)

    @property
    def properties(self) -> dict[str, str]:
        """All properties; one dictionary for all who ask, so do not change it."""
        properties = self._properties
        if properties is None:
            properties = names.decode_properties(self.properties_bytes)
            force_setattr(self, "_properties", properties)
        return properties

    @property
    def properties_bytes(self) -> bytes:
        return bytes(self._buffer[self._properties_at : self._start + self.stored_size])

    @property
    def tag(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return names.split_keys(self.properties.get(names.KEYS))

    @property
    def unique_id(self) -> str | None:
        """The id that the producer gave."""
        return self.properties.get(names.UNIQ_KEY)

    @property
    def offset_message_id(self) -> str:
        """The id that the broker gave: its address and the place in its log."""
        return offset_message_id(self.store_host_bytes, self.physical_offset)

    @property
    def message_id(self) -> str:
        """The producer's id if it gave one, else the broker's."""
        return self.unique_id or self.offset_message_id

    @property
    def born_host(self) -> str:
        return host_text(self.born_host_bytes)

    @property
    def store_host(self) -> str:
        return host_text(self.store_host_bytes)

    def tried(self, times: int) -> "StoredMessage":
        """The same message, handed out so often before."""
        return replace(self, _head=self._unpacked()._replace(reconsume_times=times))

    def _unpacked(self) -> Head:
        head = Head._make(_HEADS[self.sys_flag & V6_FLAGS].unpack_from(self._buffer, self._start))
        force_setattr(self, "_head", head)
        return head

    def _inflated(self, stored: bytes) -> bytes:
        compression = compression_of(self.sys_flag)
        assert compression is not None
        return inflate(stored, compression, inflated_bytes_max=self._inflated_bytes_max)

    def __repr__(self) -> str:
        return (
            f"<StoredMessage {self.topic}:{self.queue_id} offset={self.queue_offset} id={self.message_id}"
            f" body={self.stored_body_bytes} B>"
        )


def decode_messages(
    body: bytes | bytearray | memoryview, *, inflated_bytes_max: int = INFLATED_BYTES_MAX
) -> list[StoredMessage]:
    """The messages that stand in `body` back to back; `ProtocolError` unless every length in it fits exactly."""
    messages: list[StoredMessage] = []
    body_end = len(body)
    start = 0
    while start < body_end:
        if body_end - start < STORED_BYTES_MIN:
            raise _damage(body, start)
        size, magic, queue_offset, sys_flag, body_bytes = _unpack_needed(body, start)
        body_at = start + _HEAD_BYTES
        if sys_flag & V6_FLAGS:
            body_at = start + _HEADS[sys_flag & V6_FLAGS].size
            if body_at > body_end:
                raise _damage(body, start)
            (body_bytes,) = _unpack_i32(body, body_at - 4)
        end = start + size
        topic_at = body_at + body_bytes + 1
        if body_bytes < 0 or topic_at + 2 > end or end > body_end:
            raise _damage(body, start)
        topic_bytes = body[topic_at - 1]
        if magic == MAGIC_V1:
            topic_fits = topic_bytes <= TOPIC_BYTES_MAX
        else:
            topic_bytes = topic_bytes << 8 | body[topic_at]
            topic_at += 1
            topic_fits = magic == MAGIC_V2 and topic_bytes <= TOPIC_BYTES_MAX_V2
        properties_at = topic_at + topic_bytes + 2
        if not topic_fits or properties_at > end:
            raise _damage(body, start)
        properties_bytes = body[properties_at - 2] << 8 | body[properties_at - 1]
        if properties_at + properties_bytes != end or properties_bytes > PROPERTIES_BYTES_MAX:
            raise _damage(body, start)
        messages.append(
            StoredMessage(
                body, start, body_at, topic_at, properties_at, inflated_bytes_max,
                size, magic, queue_offset, sys_flag, body_bytes,
            )
        )  # fmt: skip
        start = end
    return messages


def _damage(body: bytes | bytearray | memoryview, start: int) -> ProtocolError:
    left = len(body) - start
    where = f"message at byte {start} of {len(body)}"
    if left < STORED_BYTES_MIN:
        return ProtocolError(
            f"{where} is cut off: {left} bytes are left, at least {STORED_BYTES_MIN} are needed"
        )
    size, magic = _unpack_needed(body, start)[:2]
    if magic == MAGIC_FILLER:
        return ProtocolError(f"{where} is the filler at the end of a commit log file, not a message")
    if magic not in (MAGIC_V1, MAGIC_V2):
        return ProtocolError(f"{where} has magic {magic & 0xFFFFFFFF:#x}, which is not a message's")
    return ProtocolError(f"{where} says it has {size} bytes, {left} are left, and its lengths do not fit")


class Storable(msgspec.Struct, frozen=True, gc=False):
    """What a broker knows of a message before it has a place: body as stored, properties and hosts as bytes."""

    topic: bytes
    body: bytes
    properties: bytes
    queue_id: int
    born_timestamp: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def encode_stored(
    message: Storable, queue_offset: int, physical_offset: int, store_timestamp: int, store_host: bytes
) -> bytes:
    """The bytes to append to a log at `physical_offset`; `InvalidMessageError` if something does not fit its field.

    The flags for IPv6 follow the hosts, whatever `sys_flag` says; a topic of more than 127 bytes takes 5.x's second layout.
    """
    topic, body, properties, born_host = message.topic, message.body, message.properties, message.born_host
    magic, topic_length, v6_flags, pack_head, head_bytes = MAGIC_V1, b"", 0, _pack_head, _HEAD_BYTES
    if len(born_host) != HOST_V4_BYTES or len(store_host) != HOST_V4_BYTES:
        v6_flags = _v6_flags(born_host, store_host)
        pack_head, head_bytes = _HEADS[v6_flags].pack, _HEADS[v6_flags].size
    if len(topic) <= TOPIC_BYTES_MAX:
        topic_length = _ONE_BYTE[len(topic)]
    else:
        magic, topic_length = MAGIC_V2, _long_topic_length(topic)
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise _too_many_properties(properties)
    size = head_bytes + len(body) + len(topic_length) + len(topic) + 2 + len(properties)
    try:
        head = pack_head(
            size,
            magic,
            crc32(body) & 0x7FFFFFFF,
            message.queue_id,
            message.flag,
            queue_offset,
            physical_offset,
            message.sys_flag & ~V6_FLAGS | v6_flags,
            message.born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            len(body),
        )
    except struct_error as exc:
        raise InvalidMessageError(f"a number of the message does not fit its field: {exc}") from exc
    return b"".join((head, body, topic_length, topic, _pack_u16(len(properties)), properties))


class StorableTogether(msgspec.Struct, frozen=True, gc=False):
    """Messages of one peer for one topic, field by field: what `Storable` says of one, each list says of all, in their order."""

    topic: bytes
    queues: Sequence[tuple[int, int]]
    """Queue ids, each once, and how many messages are for each: those of one queue stand together."""
    born_host: bytes
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    flags: Sequence[int]
    sys_flags: Sequence[int]
    born_timestamps: Sequence[int]
    reconsume_times: Sequence[int]

    @property
    def queue_ids(self) -> list[int]:
        """Of each message."""
        return list(chain.from_iterable(starmap(repeat, self.queues)))


def encode_stored_together(
    messages: StorableTogether,
    queue_offsets: Sequence[int],
    physical_offset: int,
    store_timestamp: int,
    store_host: bytes,
) -> list[bytes]:
    """What `encode_stored` gives for each of them, one behind the other from `physical_offset` on.

    Field by field, so that the loops run inside of `map` and `zip` and hardly a line of Python runs once per message. Those that
    are all equally long, as they often are, take one call each.
    """
    topic, bodies, properties = messages.topic, messages.bodies, messages.properties
    v6_flags = _v6_flags(messages.born_host, store_host)
    if len(topic) <= TOPIC_BYTES_MAX:
        magic, counted_topic = MAGIC_V1, _ONE_BYTE[len(topic)] + topic
    else:
        magic, counted_topic = MAGIC_V2, _long_topic_length(topic) + topic
    body_sizes, property_sizes = list(map(len, bodies)), list(map(len, properties))
    if max(property_sizes) > PROPERTIES_BYTES_MAX:
        raise _too_many_properties(max(properties, key=len))
    sys_flags = messages.sys_flags
    if v6_flags or any(sys_flags):
        sys_flags = [flag & ~V6_FLAGS | v6_flags for flag in sys_flags]
    frame = _Frame(magic, counted_topic, v6_flags, physical_offset, store_timestamp, store_host)
    are_alike = body_sizes.count(body_sizes[0]) == property_sizes.count(property_sizes[0]) == len(bodies)
    try:
        if are_alike:
            return _encode_alike(messages, queue_offsets, sys_flags, frame)
        return _encode_unlike(messages, queue_offsets, sys_flags, frame, body_sizes, property_sizes)
    except struct_error as exc:
        raise InvalidMessageError(f"a number of a message does not fit its field: {exc}") from exc


class _Frame(NamedTuple):
    """What messages that are stored together have in common, besides what `StorableTogether` says."""

    magic: int
    counted_topic: bytes
    v6_flags: int
    physical_offset: int
    store_timestamp: int
    store_host: bytes


def _encode_alike(
    messages: StorableTogether, queue_offsets: Sequence[int], sys_flags: Sequence[int], frame: _Frame
) -> list[bytes]:
    bodies, properties, count = messages.bodies, messages.properties, len(messages.bodies)
    topic_and_length = frame.counted_topic + _pack_u16(len(properties[0]))
    hosts = messages.born_host + _pack_i64(frame.store_timestamp) + frame.store_host
    whole = _whole(len(hosts), len(bodies[0]), len(topic_and_length), len(properties[0]))
    begin, end = frame.physical_offset, frame.physical_offset + count * whole.size
    return list(
        map(
            whole.pack,
            repeat(_pack_i32x2(whole.size, frame.magic)),
            [crc32(body) & 0x7FFFFFFF for body in bodies],
            messages.queue_ids,
            messages.flags,
            queue_offsets,
            range(begin, end, whole.size),
            sys_flags,
            messages.born_timestamps,
            repeat(hosts),
            messages.reconsume_times,
            repeat(_pack_i64(0) + _pack_i32(len(bodies[0]))),
            bodies,
            repeat(topic_and_length),
            properties,
        )
    )


@lru_cache(maxsize=256)
def _whole(hosts_bytes: int, body_bytes: int, topic_bytes: int, properties_bytes: int) -> Struct:
    """The layout of whole messages whose parts have these lengths; what is the same in all of them is packed before."""
    return Struct(f">8s 3i 2q iq {hosts_bytes}s i 12s {body_bytes}s {topic_bytes}s {properties_bytes}s")


def _encode_unlike(
    messages: StorableTogether,
    queue_offsets: Sequence[int],
    sys_flags: Sequence[int],
    frame: _Frame,
    body_sizes: Sequence[int],
    property_sizes: Sequence[int],
) -> list[bytes]:
    head = _HEADS[frame.v6_flags]
    fixed_bytes = head.size + len(frame.counted_topic) + 2
    sizes = [fixed_bytes + body + rest for body, rest in zip(body_sizes, property_sizes, strict=True)]
    heads = map(
        head.pack,
        sizes,
        repeat(frame.magic),
        [crc32(body) & 0x7FFFFFFF for body in messages.bodies],
        messages.queue_ids,
        messages.flags,
        queue_offsets,
        accumulate(sizes, initial=frame.physical_offset),
        sys_flags,
        messages.born_timestamps,
        repeat(messages.born_host),
        repeat(frame.store_timestamp),
        repeat(frame.store_host),
        messages.reconsume_times,
        repeat(0),
        body_sizes,
    )
    counts = map(_pack_u16, property_sizes)
    pieces = zip(heads, messages.bodies, repeat(frame.counted_topic), counts, messages.properties)
    return list(map(b"".join, pieces))


def _too_many_properties(properties: bytes) -> InvalidMessageError:
    return InvalidMessageError(f"properties take {len(properties)} bytes, at most {PROPERTIES_BYTES_MAX} fit")


def _v6_flags(born_host: bytes, store_host: bytes) -> int:
    for host in (born_host, store_host):
        if len(host) not in (HOST_V4_BYTES, HOST_V6_BYTES):
            raise InvalidMessageError(
                f"a host takes {HOST_V4_BYTES} or {HOST_V6_BYTES} bytes, not {len(host)}"
            )
    return (BORN_HOST_V6_FLAG if len(born_host) == HOST_V6_BYTES else 0) | (
        STORE_HOST_V6_FLAG if len(store_host) == HOST_V6_BYTES else 0
    )


def _long_topic_length(topic: bytes) -> bytes:
    if len(topic) > TOPIC_BYTES_MAX_V2:
        raise InvalidMessageError(f"the topic takes {len(topic)} bytes, at most {TOPIC_BYTES_MAX_V2} fit")
    return _pack_u16(len(topic))
