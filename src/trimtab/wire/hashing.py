"""The hashes that RocketMQ's wire and files carry.

Java's `String.hashCode` is a polynomial in 31 over UTF-16 units, wrapped to 32 bits. Python is quickest at it as a sum of
products with ready-made powers, done in C by `map`; long texts go in pieces, short ones (tags, keys) are remembered.

CRC-32 comes from zlib-ng, which takes a sixth of zlib's time for a message of a kibibyte: a broker reckons two for each.
"""

from functools import lru_cache
from operator import mul
from struct import unpack

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # a platform without it: slower, and the same numbers
    from zlib import crc32

__all__ = ["body_crc", "crc32", "index_key_hash", "java_hash", "tags_code"]

_PIECE_UNITS = 256
_REMEMBERED_CHARACTERS_MAX = 64
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(_PIECE_UNITS - 1, -1, -1))


def java_hash(text: str) -> int:
    """`text.hashCode()` in Java: a signed 32-bit number."""
    return _remembered(text) if len(text) <= _REMEMBERED_CHARACTERS_MAX else _computed(text)


def tags_code(tag: str | None) -> int:
    """What a consume queue keeps of a tag: its hash as a signed 64-bit number, 0 without a tag."""
    return java_hash(tag) if tag else 0


def body_crc(stored_body: bytes | memoryview) -> int:
    """The checksum beside a body as it is stored; Java cuts the top bit off."""
    return crc32(stored_body) & 0x7FFFFFFF


def index_key_hash(topic: str, key: str) -> int:
    """The number under which an index file keeps a key; the smallest integer has no positive twin and becomes 0."""
    number = abs(java_hash(f"{topic}#{key}"))
    return 0 if number == 1 << 31 else number


def _computed(text: str) -> int:
    units = text.encode() if text.isascii() else _utf16_units(text)
    total = 0
    for start in range(0, len(units), _PIECE_UNITS):
        piece = units[start : start + _PIECE_UNITS]
        total = total * pow(31, len(piece), 1 << 32) + sum(map(mul, piece, _POWERS[-len(piece) :]))
    return ((total + 0x80000000) & 0xFFFFFFFF) - 0x80000000


_remembered = lru_cache(maxsize=4096)(_computed)


def _utf16_units(text: str) -> tuple[int, ...]:
    # A lone half of a surrogate pair is a unit like any other to Java.
    data = text.encode("utf-16-be", "surrogatepass")
    return unpack(f">{len(data) // 2}H", data)
