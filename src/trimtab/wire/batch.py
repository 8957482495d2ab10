"""The body of SEND_BATCH_MESSAGE: many small messages of one topic in one request."""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, Protocol

import msgspec

from trimtab.errors import InvalidMessageError, ProtocolError
from trimtab.wire.properties import PROPERTIES_BYTES_MAX

ENTRY_BYTES_MIN = 22
BATCH_BYTES_MAX = 4 << 20
"""A stock broker's maxMessageSize."""
BATCHED_PROPERTIES_BYTES_MAX = PROPERTIES_BYTES_MAX - 1_024
"""Brokers put properties of their own behind those of each message of a batch. Apache's do not look whether both fit: a message that is longer then stops its queue for good."""
PIECES_EACH = 4
"""In how many pieces a message lies in a batch."""

_ALIKE_MAX = 4_096
"""Messages that are split at one go: each takes several small objects for a moment."""

_HEAD = Struct(
    ">5i"
)  # size, magic, CRC, flag, body length; brokers reckon the CRC themselves and ignore the magic
_HEAD_BYTES = _HEAD.size
_pack_head = _HEAD.pack
_unpack_head = Struct(">i8x2i").unpack_from  # without magic and CRC
_pack_length = Struct(">h").pack


class BatchEntry(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch; what all have in common (topic, queue, born host and time) stands in the request."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


class Entry(Protocol):
    """What a batch needs to know of a message."""

    @property
    def body(self) -> bytes: ...

    @property
    def properties(self) -> bytes: ...

    @property
    def flag(self) -> int: ...


class BatchColumns(NamedTuple):
    """The messages of a batch, field by field."""

    bodies: list[bytes]
    properties: list[bytes]
    flags: list[int]


def columns_of(entries: Iterable[Entry]) -> BatchColumns:
    """The fields of messages, ready for a batch."""
    entries = list(entries)
    return BatchColumns(
        [entry.body for entry in entries],
        [entry.properties for entry in entries],
        [entry.flag for entry in entries],
    )


def encode_batch(entries: Iterable[Entry], *, batch_bytes_max: int = BATCH_BYTES_MAX) -> bytes:
    """The request body; `InvalidMessageError` if it or the properties of an entry are too long."""
    pieces, total = batch_pieces(columns_of(entries))
    if total > batch_bytes_max:
        raise InvalidMessageError(
            f"the batch takes {total} bytes, at most {batch_bytes_max} fit; send fewer messages at once"
        )
    return b"".join(pieces)


def batch_pieces(columns: BatchColumns) -> tuple[list[bytes], int]:
    """The same in pieces, and how many bytes they have: bodies are not copied yet.

    Messages of one size have the same lengths around them, which are laid out once: the messages of a batch are often alike.
    """
    pieces: list[bytes] = []
    total = 0
    known: dict[tuple[int, int, int], tuple[int, bytes, bytes]] = {}
    for body, properties, flag in zip(*columns, strict=True):
        shape = flag, len(body), len(properties)
        lengths = known.get(shape)
        if lengths is None:
            lengths = known[shape] = _lengths(*shape)
        size, head, properties_length = lengths
        total += size
        pieces += (head, body, properties_length, properties)
    return pieces, total


def _lengths(flag: int, body_bytes: int, properties_bytes: int) -> tuple[int, bytes, bytes]:
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"properties take {properties_bytes} bytes, at most {PROPERTIES_BYTES_MAX} fit; move something into the body"
        )
    size = ENTRY_BYTES_MIN + body_bytes + properties_bytes
    return size, _pack_head(size, 0, 0, flag, body_bytes), _pack_length(properties_bytes)


def decode_batch(batch: bytes | memoryview) -> list[BatchEntry]:
    """The messages of a request body; `ProtocolError` unless every length in it fits exactly."""
    return list(map(BatchEntry, *split_batch(bytes(batch))))


def split_batch(batch: bytes) -> BatchColumns:
    """The same without an object for each."""
    return _split_alike(batch) or _split_one_by_one(batch)


def _split_alike(batch: bytes) -> BatchColumns | None:
    """If the messages have the same flag and lengths, which many batches have, no line of Python runs once per message."""
    if len(batch) < 2 * ENTRY_BYTES_MIN:
        return None
    size, flag, body_bytes = _unpack_head(batch, 0)
    properties_bytes = size - ENTRY_BYTES_MIN - body_bytes
    if not (0 <= body_bytes <= size and 0 <= properties_bytes <= PROPERTIES_BYTES_MAX):
        return None
    if len(batch) % size or len(batch) // size > _ALIKE_MAX:
        return None
    entries = _entry(body_bytes, properties_bytes).iter_unpack(batch)
    heads, bodies, lengths, properties = map(list, zip(*entries, strict=True))
    count = len(heads)
    if heads.count(batch[:_HEAD_BYTES]) != count or lengths.count(_pack_length(properties_bytes)) != count:
        return None
    return BatchColumns(bodies, properties, [flag] * count)


@lru_cache(maxsize=256)
def _entry(body_bytes: int, properties_bytes: int) -> Struct:
    """The layout of an entry with parts of these lengths: head, body, length of the properties, properties."""
    return Struct(f">{_HEAD_BYTES}s{body_bytes}s2s{properties_bytes}s")


def _split_one_by_one(batch: bytes) -> BatchColumns:
    bodies: list[bytes] = []
    properties: list[bytes] = []
    flags: list[int] = []
    batch_end = len(batch)
    start = 0
    while start < batch_end:
        if batch_end - start < ENTRY_BYTES_MIN:
            raise _damage(batch, start)
        size, flag, body_bytes = _unpack_head(batch, start)
        end = start + size
        body_at = start + _HEAD_BYTES
        properties_at = body_at + body_bytes + 2
        if body_bytes < 0 or properties_at > end or end > batch_end:
            raise _damage(batch, start)
        properties_bytes = batch[properties_at - 2] << 8 | batch[properties_at - 1]
        if properties_at + properties_bytes != end or properties_bytes > PROPERTIES_BYTES_MAX:
            raise _damage(batch, start)
        bodies.append(batch[body_at : properties_at - 2])
        properties.append(batch[properties_at:end])
        flags.append(flag)
        start = end
    return BatchColumns(bodies, properties, flags)


def _damage(batch: bytes, start: int) -> ProtocolError:
    return ProtocolError(
        f"batch entry at byte {start} of {len(batch)} is cut off or its lengths do not fit each other"
    )
