"""From a key to a queue, so that all messages of a key go to the same one. PURE.

Which queue that is depends on the client that sends: each kind has its own hash. To keep the order of a key across
programs in several languages, all must use the same. The queues are in the order in which all clients sort a route.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from trimtab.errors import InvalidMessageError, SettingsError
from trimtab.model import Message, MessageQueue
from trimtab.wire.hashing import java_hash

Selector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
"""A user's own way: gets the queues, the message and what was given as `arg`; gives one of the queues."""

_FNV_START = 2_166_136_261
_FNV_PRIME = 16_777_619
_SIP_KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
_U64 = 0xFFFFFFFFFFFFFFFF


def index_by(selector: str, key: str, count: int) -> int:
    """The number of the queue for a key, among `count`."""
    hashed = _HASHES.get(selector)
    if hashed is None:
        raise SettingsError(f"selector {selector!r} is none of {', '.join(_HASHES)}; or give a function")
    return hashed(key, count)


def chosen_by(
    selector: Selector, queues: Sequence[MessageQueue], message: Message, arg: object
) -> MessageQueue:
    """What a user's selector gives, which must be one of the queues."""
    queue = selector(queues, message, arg)
    if queue not in queues:
        raise InvalidMessageError(
            f"the selector gave {queue!r}, which is none of the {len(queues)} queues of topic {message.topic!r}"
        )
    return queue


def _java(key: str, count: int) -> int:
    """`Math.abs(key.hashCode() % count)`, the remainder with the sign of the hash."""
    return abs(java_hash(key)) % count


def _fnv1a(key: str, count: int) -> int:
    return fnv1a(key.encode()) % count


def _siphash(key: str, count: int) -> int:
    """The hash as a signed number, its remainder never negative."""
    number = siphash24(key.encode())
    return (number - (1 << 64) if number >> 63 else number) % count


@lru_cache(maxsize=4_096)
def fnv1a(data: bytes) -> int:
    """FNV-1a of 32 bits."""
    number = _FNV_START
    for byte in data:
        number = (number ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return number


@lru_cache(maxsize=4_096)
def siphash24(data: bytes, key: tuple[int, int] = _SIP_KEY) -> int:
    """SipHash-2-4 of 64 bits, with the key 00 01 … 0f that the gRPC clients use."""
    state = (
        key[0] ^ 0x736F6D6570736575,
        key[1] ^ 0x646F72616E646F6D,
        key[0] ^ 0x6C7967656E657261,
        key[1] ^ 0x7465646279746573,
    )
    whole = len(data) & ~7
    last = int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56
    for word in (*(int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)), last):
        v0, v1, v2, v3 = _sip_round(_sip_round((state[0], state[1], state[2], state[3] ^ word)))
        state = (v0 ^ word, v1, v2, v3)
    state = (state[0], state[1], state[2] ^ 0xFF, state[3])
    for _ in range(4):
        state = _sip_round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _sip_round(state: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    v0, v1, v2, v3 = state
    v0 = v0 + v1 & _U64
    v2 = v2 + v3 & _U64
    v1 = _turned(v1, 13) ^ v0
    v3 = _turned(v3, 16) ^ v2
    v0 = _turned(v0, 32)
    v2 = v2 + v1 & _U64
    v0 = v0 + v3 & _U64
    v1 = _turned(v1, 17) ^ v2
    v3 = _turned(v3, 21) ^ v0
    v2 = _turned(v2, 32)
    return v0, v1, v2, v3


def _turned(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _U64


_HASHES: dict[str, Callable[[str, int], int]] = {"java": _java, "fnv1a": _fnv1a, "siphash": _siphash}
