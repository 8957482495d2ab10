"""Message ids: what a broker gives (address and place in its log) and what a producer gives (who, when, which).

Both are upper-case hexadecimal. A producer's id holds the milliseconds since its month began *in its own time zone*, so the
caller brings the calendar: `month(now_ms)` is the beginning of that month and of the next one, in ms since 1970.
"""

from collections.abc import Callable
from itertools import count, islice
from struct import Struct
from typing import NamedTuple

from trimtab.errors import ProtocolError
from trimtab.wire.hosts import HOST_V4_BYTES, HOST_V6_BYTES, host_text

Month = Callable[[int], tuple[int, int]]

_BACKWARD_MS_MAX = 1_000_000
_V4_ID_CHARACTERS = 32
_V6_ID_CHARACTERS = 56
_HEX = tuple(f"{byte:02X}" for byte in range(256))

_OFFSET = Struct(">q")
_pack_offset = _OFFSET.pack
_WHO = Struct(">HI")
_UNIQUE = Struct(">HIIH")


class OffsetMessageId(NamedTuple):
    """Where a message lies: the broker's address as stored (4 or 16 bytes and a port), and the place in its log."""

    store_host: bytes
    physical_offset: int

    @property
    def address(self) -> str:
        """`ip:port` to dial."""
        return host_text(self.store_host)


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """32 digits for IPv4, 56 for IPv6."""
    return (store_host + _pack_offset(physical_offset)).hex().upper()


def decode_offset_message_id(text: str) -> OffsetMessageId:
    """The parts of a broker's id; `ProtocolError` if it is not one."""
    data = _id_bytes(text)
    host_bytes = HOST_V4_BYTES if len(data) == _V4_ID_CHARACTERS // 2 else HOST_V6_BYTES
    return OffsetMessageId(data[:host_bytes], _OFFSET.unpack_from(data, host_bytes)[0])


class UniqueIds:
    """Gives producers' ids: address, process, class loader (any number of 32 bits that tells processes apart), time, counter.

    `next` may be called from several threads.
    """

    __slots__ = ("_begins_ms", "_counts", "_ends_ms", "_head", "_month", "_who")

    def __init__(self, ip: bytes, pid: int, loader_hash: int, month: Month) -> None:
        assert len(ip) in (4, 16), "an address has 4 or 16 bytes"
        self._who = (ip + _WHO.pack(pid & 0xFFFF, loader_hash & 0xFFFFFFFF)).hex().upper()
        self._month = month
        self._counts = count()
        self._begins_ms: int | None = None
        self._ends_ms = 0
        self._head = (-1, "")

    def next(self, now_ms: int) -> str:
        """A new id. 65,536 ids of one millisecond are distinct."""
        head_ms, head = self._head
        if head_ms != now_ms:
            head = self._begin(now_ms)
        counted = next(self._counts)
        return f"{head}{_HEX[counted >> 8 & 0xFF]}{_HEX[counted & 0xFF]}"

    def several(self, number: int, now_ms: int) -> list[str]:
        """New ids, of which the same is true."""
        head, counts = self.parts_of_several(number, now_ms)
        given: list[str] = []
        while len(given) < number:
            high, low = divmod(counts[len(given)] & 0xFFFF, 256)
            begin = head + _HEX[high]
            given += [begin + digits for digits in _HEX[low : low + number - len(given)]]
        return given

    def parts_of_several(self, number: int, now_ms: int) -> tuple[str, list[int]]:
        """New ids, not yet written: how all of them begin, and the numbers whose lower sixteen bits end them, in four digits."""
        head_ms, head = self._head
        if head_ms != now_ms:
            head = self._begin(now_ms)
        return head, list(islice(self._counts, number))

    def _begin(self, now_ms: int) -> str:
        if self._begins_ms is None or now_ms >= self._ends_ms:
            self._begins_ms, self._ends_ms = self._month(now_ms)
        since_ms = now_ms - self._begins_ms
        if -_BACKWARD_MS_MAX < since_ms < 0:
            since_ms = 0  # the clock was set back a little over the beginning of a month
        head = f"{self._who}{since_ms & 0xFFFFFFFF:08X}"
        self._head = now_ms, head
        return head


class UniqueIdParts(NamedTuple):
    """What a producer's id says about its origin; `since_ms` counts from the beginning of some month there."""

    ip: bytes
    pid: int
    loader_hash: int
    since_ms: int
    counter: int


def decode_unique_id(text: str) -> UniqueIdParts:
    """The parts of a producer's id; `ProtocolError` if it is not laid out as one."""
    data = _id_bytes(text)
    ip = data[: -_UNIQUE.size]
    return UniqueIdParts(ip, *_UNIQUE.unpack_from(data, len(ip)))


def born_ms_of(unique_id: str, now_ms: int, month: Month) -> int:
    """When an id was given, if that was in this month or the last and in this time zone: the latest such time before now."""
    since_ms = decode_unique_id(unique_id).since_ms
    begins_ms, _ = month(now_ms)
    if begins_ms + since_ms >= now_ms:
        begins_ms, _ = month(begins_ms - 1)
    return begins_ms + since_ms


def _id_bytes(text: str) -> bytes:
    if len(text) not in (_V4_ID_CHARACTERS, _V6_ID_CHARACTERS):
        raise ProtocolError(f"{text[:80]!r} is not a message id: {len(text)} characters instead of 32 or 56")
    try:
        data = bytes.fromhex(text)
    except ValueError as exc:
        raise ProtocolError(f"{text!r} is not a message id: {exc}") from exc
    if 2 * len(data) != len(text):  # fromhex skips blanks
        raise ProtocolError(f"{text!r} is not a message id: it has blanks in it")
    return data
