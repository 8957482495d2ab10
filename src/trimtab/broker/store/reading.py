"""Getting messages out: by queue and offset, by place in the log, by key, by time.

Every record that leaves is checked against the checksum in its queue entry. Records that lie close together are read with one
call; if they lie side by side, the bytes go out as they are. What is not visible yet (with sync flush: not durable) is not
there, for anybody: a consumer must never have seen a message that a power cut then takes back.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import accumulate, chain, islice
from struct import Struct

import msgspec

from trimtab.broker.store.errors import StoreDamagedError, StoreSearchTooWideError
from trimtab.broker.store.index import key_hash_of
from trimtab.broker.store.log import segment_name
from trimtab.broker.store.parts import Parts
from trimtab.broker.store.queues import Entry, Queue, first_where
from trimtab.errors import ProtocolError
from trimtab.wire.hashing import crc32
from trimtab.wire.messages import (
    BORN_HOST_V6_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    STORED_BYTES_MIN,
    StoredMessage,
    decode_messages,
)
from trimtab.wire.properties import KEYS, UNIQ_KEY, find_property

GAP_BYTES_MAX = 4096
"""Reading over a gap of this size costs less than a second call."""
_CANDIDATES_MAX = 1024
_CANDIDATE_BYTES_MAX = 8 << 20
"""A query by key stops when it has looked at so much: that bounds its time, and its answer fits a frame."""
_KEYS = KEYS.encode()
_UNIQ_KEY = UNIQ_KEY.encode()

_PLACE = Struct(">ii20xq")  # size, magic, physical offset
_QUEUE_OFFSET_AT = 20
_SYS_FLAG_AT = 36
_STORE_TIME_AT = 56
_STORE_TIME_AT_V6 = 68
_HEAD_BYTES = _STORE_TIME_AT_V6 + 8

Entry4 = tuple[int, int, int, int]


class ReadStatus(Enum):
    """What a read found, in RocketMQ's words: the value is the remark of a pull's answer."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadResult(msgspec.Struct, frozen=True, gc=False):
    """`body` is `count` messages back to back; `max_offset` is the next one to come."""

    status: ReadStatus
    body: bytes
    count: int
    next_offset: int
    min_offset: int
    max_offset: int


class TimeRule(Enum):
    """Which message a time means."""

    NEAREST = "nearest"
    """4.9.3: the one at that time, else the nearer neighbour; after all of them the last."""
    LOWER = "lower"
    """5.x: the first at or after that time; after all of them the next to come."""
    UPPER = "upper"
    """5.x: the last at or before that time."""


AcceptTag = Callable[[int], bool]
AcceptMessage = Callable[[StoredMessage], bool]


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """What a read asks for."""

    offset: int
    messages_max: int
    bytes_max: int
    accept: AcceptTag | None = None
    accept_message: AcceptMessage | None = None

    @property
    def entries_max(self) -> int:
        """More messages than this do not fit, however small they are."""
        return min(self.messages_max, self.bytes_max // STORED_BYTES_MIN + 1)

    def choose(self, entries: list[Entry4], log_start: int) -> tuple[list[Entry4], int, bool]:
        """The entries that pass and fit, how many were looked at, and whether some are gone."""
        messages_max, bytes_max, accept = self.messages_max, self.bytes_max, self.accept
        sizes = [entry[1] for entry in entries]
        if accept is None and entries[0][0] >= log_start and all(sizes):
            count = max(1, bisect_right(list(accumulate(sizes)), bytes_max))
            return entries[:count], min(count, len(entries)), False
        chosen: list[Entry4] = []
        total = passed = 0
        removed = False
        for entry in entries:
            physical_offset, size, tags_code, _ = entry
            if physical_offset < log_start or not size:
                removed = True
            elif accept is None or accept(tags_code):
                total += size
                if total > bytes_max and chosen:
                    break
                chosen.append(entry)
                if len(chosen) == messages_max:
                    passed += 1
                    break
            passed += 1
        return chosen, passed, removed


class Reader:
    """See above. `visible_end` is asked at every read."""

    def __init__(self, parts: Parts, visible_end: Callable[[], int]) -> None:
        self._log = parts.log
        self._catalog = parts.catalog
        self._index = parts.index
        self._settings = parts.settings
        self._visible_end = visible_end

    def read(self, queue: Queue | None, wanted: Wanted) -> ReadResult:
        if queue is None:
            return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, b"", 0, 0, 0, 0)
        offset = wanted.offset
        low, high = queue.min_offset, queue.visible_max(self._visible_end())
        outside = _outside(offset, low, high)
        if outside is not None:
            status, next_offset = outside
            return ReadResult(status, b"", 0, next_offset, low, high)
        # However much is asked for: what a filter refuses must not hold up everybody else.
        is_filtered = wanted.accept is not None or wanted.accept_message is not None
        scan_max = self._settings.scan_entries_max
        scan_max = scan_max if is_filtered else max(wanted.messages_max, scan_max)
        step = scan_max if wanted.accept is not None else wanted.entries_max
        scan_stop = min(high, offset + scan_max)
        status = ReadStatus.NO_MATCHED_MESSAGE
        while offset < scan_stop:
            entries = queue.entries(offset, min(step, scan_stop - offset))
            chosen, passed, removed = wanted.choose(entries, self._log.start)
            offset += passed
            if chosen:
                body, count, offset = self._gather(chosen, offset)
                if wanted.accept_message is not None:
                    body, count = _accepted(body, wanted.accept_message)
                if count:
                    return ReadResult(ReadStatus.FOUND, body, count, offset, low, high)
            elif removed:
                status = ReadStatus.MESSAGE_WAS_REMOVING
        return ReadResult(status, b"", 0, offset, low, high)

    def _gather(self, entries: list[Entry4], next_offset: int) -> tuple[bytes, int, int]:
        """The records, their number, and where to go on. Before a damaged one it stops; it raises if that is the first."""
        pieces: list[bytes] = []
        done = 0
        for span in _spans(entries):
            try:
                pieces.append(self._read_span(span))
            except StoreDamagedError:
                return self._gather_singly(entries, next_offset)
            done += len(span)
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), done, next_offset

    def _read_span(self, span: list[Entry4]) -> bytes:
        begin = span[0][0]
        end = span[-1][0] + span[-1][1]
        data = self._log.read(begin, end - begin)
        total = 0
        for physical_offset, size, _, checksum in span:
            at = physical_offset - begin
            if crc32(data[at : at + size]) != checksum:
                raise self._damage(physical_offset, size)
            total += size
        if total == len(data):
            return data
        return b"".join([data[offset - begin : offset - begin + size] for offset, size, _, _ in span])

    def _gather_singly(self, entries: list[Entry4], next_offset: int) -> tuple[bytes, int, int]:
        # Between chosen entries others may lie that the filter refused, so the place to go on is not known by counting;
        # going on one message at a time finds the damaged one again, as the first.
        piece = self._read_span(entries[:1])
        return piece, 1, next_offset if len(entries) == 1 else _queue_offset(piece) + 1

    def _damage(self, physical_offset: int, size: int) -> StoreDamagedError:
        base = max(base for base in self._log.bases if base <= physical_offset)
        return StoreDamagedError(
            file=segment_name(base),
            offset=physical_offset - base,
            what=f"the message of {size} bytes there has changed, or its queue entry has",
            advice="it is not given out; stop the broker and put the file back from a backup, or give the message up with `trimtab store rebuild FOLDER`",
        )

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The message that begins there; None if none does. The number may come from anywhere."""
        raw = self._record_at(physical_offset)
        message = None if raw is None else _only_message(raw)
        if raw is None or message is None:
            return None
        # A body may look like a message, with the right numbers; only the queue knows where messages really are.
        entry = self._entry_of(message)
        if entry is None:
            return None
        if crc32(raw) != entry.checksum:
            raise self._damage(physical_offset, len(raw))
        return message

    def _record_at(self, physical_offset: int) -> bytes | None:
        """Bytes that may be the record that begins there, as far as its first numbers tell."""
        visible_end = self._visible_end()
        if not self._log.start <= physical_offset <= visible_end - STORED_BYTES_MIN:
            return None
        size, magic, own_offset = _PLACE.unpack(self._log.read(physical_offset, _PLACE.size))
        if magic not in (MAGIC_V1, MAGIC_V2) or own_offset != physical_offset:
            return None
        if (
            not STORED_BYTES_MIN
            <= size
            <= min(self._settings.record_bytes_max, visible_end - physical_offset)
        ):
            return None
        return self._log.read(physical_offset, size)

    def _entry_of(self, message: StoredMessage) -> Entry | None:
        """The message's entry in its queue; None if it has none, or not any more."""
        queue = self._catalog.queues.get((message.topic.encode(), message.queue_id))
        if queue is None or not queue.min_offset <= message.queue_offset < queue.end:
            return None
        entry = queue.entry(message.queue_offset)
        return entry if entry[:2] == (message.physical_offset, message.stored_size) else None

    def by_key(
        self,
        topic: str,
        key: str,
        results_max: int,
        begin_ms: int,
        end_ms: int,
        *,
        oldest_first: bool = False,
    ) -> list[StoredMessage]:
        """Messages of the topic with that key or unique key, stored in that time, newest first, or files oldest first.

        `StoreSearchTooWideError` if there are too many files to look at and those that were have none.
        """
        wanted = key.encode(errors="replace")
        key_hash = key_hash_of(topic.encode(errors="replace"), wanted)
        results_max = min(results_max, self._settings.query_results_max)
        found: dict[int, StoredMessage] = {}
        looked_at_bytes = 0
        sources = self._index.sources(begin_ms, end_ms)
        if oldest_first:
            sources.reverse()
        files_max = self._settings.query_index_files_max
        candidates = chain.from_iterable(
            self._index.candidates(source, key_hash, begin_ms, end_ms) for source in sources[:files_max]
        )
        for physical_offset, checksum in islice(candidates, _CANDIDATES_MAX):
            if len(found) >= results_max or looked_at_bytes >= _CANDIDATE_BYTES_MAX:
                break
            if physical_offset in found or not self._log.start <= physical_offset < self._visible_end():
                continue
            raw = self._record_at(physical_offset)
            if raw is None or crc32(raw) != checksum:  # the index knows that there is one
                raise self._damage(physical_offset, 0 if raw is None else len(raw))
            looked_at_bytes += len(raw)
            message = _only_message(raw)
            if message is None or message.topic != topic or not begin_ms <= message.store_timestamp <= end_ms:
                continue
            if wanted in keys_of(message.properties_bytes) and self._entry_of(message) is not None:
                found[physical_offset] = message
        if not found and len(sources) > files_max:
            side = "oldest" if oldest_first else "newest"
            raise StoreSearchTooWideError(
                f"the {side} {files_max} of {len(sources)} files of the index were searched and have no such key;"
                f" the next one is of {sources[files_max].oldest_ms} to {sources[files_max].newest_ms}: ask for a time around it"
            )
        return list(found.values())

    def store_ms(self, physical_offset: int) -> int:
        """When the message at a known place was stored."""
        size = min(_HEAD_BYTES, self._log.end - physical_offset)
        head = self._log.read(physical_offset, size)
        sys_flag = int.from_bytes(head[_SYS_FLAG_AT : _SYS_FLAG_AT + 4])
        at = _STORE_TIME_AT_V6 if sys_flag & BORN_HOST_V6_FLAG else _STORE_TIME_AT
        return int.from_bytes(head[at : at + 8], signed=True)

    def by_time(self, queue: Queue | None, timestamp_ms: int, rule: TimeRule) -> int:
        """The offset that a time means, 0 in an empty queue."""
        high = 0 if queue is None else queue.visible_max(self._visible_end())
        if queue is None or queue.min_offset == high:
            return high if rule is TimeRule.LOWER else 0

        def time_of(offset: int) -> int:
            return self.store_ms(max(queue.entry(offset).physical_offset, self._log.start))

        low = queue.min_offset
        if rule is TimeRule.LOWER:
            return first_where(low, high, lambda offset: time_of(offset) >= timestamp_ms)
        if rule is TimeRule.UPPER:
            return max(low, first_where(low, high, lambda offset: time_of(offset) > timestamp_ms) - 1)
        return _nearest(low, high - 1, timestamp_ms, time_of)


def keys_of(properties: bytes) -> list[bytes]:
    """What a message is found by: its unique key and each of its keys."""
    keys = []
    unique = find_property(properties, _UNIQ_KEY)
    if unique is not None:
        keys.append(unique)
    several = find_property(properties, _KEYS)
    if several is not None:
        keys += [key for key in several.split(b" ") if key]
    return keys


def _queue_offset(record: bytes) -> int:
    return int.from_bytes(record[_QUEUE_OFFSET_AT : _QUEUE_OFFSET_AT + 8])


def _only_message(raw: bytes) -> StoredMessage | None:
    """None if the bytes are not one message."""
    try:
        messages = decode_messages(raw)
    except ProtocolError:
        return None
    return messages[0] if len(messages) == 1 else None


def _outside(offset: int, low: int, high: int) -> tuple[ReadStatus, int] | None:
    if high == 0:
        return ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return ReadStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return ReadStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return ReadStatus.OFFSET_OVERFLOW_BADLY, high
    return None


def _spans(entries: list[Entry4]) -> list[list[Entry4]]:
    """Entries in groups that are worth one read each."""
    first, end = entries[0][0], entries[-1][0] + entries[-1][1]
    if end - first - sum([entry[1] for entry in entries]) <= GAP_BYTES_MAX:
        return [entries]
    spans = []
    begin, end = 0, first
    for at, (physical_offset, size, _, _) in enumerate(entries):
        if physical_offset - end > GAP_BYTES_MAX:
            spans.append(entries[begin:at])
            begin = at
        end = physical_offset + size
    spans.append(entries[begin:])
    return spans


def _accepted(body: bytes, accept_message: AcceptMessage) -> tuple[bytes, int]:
    messages: Sequence[StoredMessage] = decode_messages(body)
    kept = [message.stored_bytes for message in messages if accept_message(message)]
    return (body if len(kept) == len(messages) else b"".join(kept)), len(kept)


def _nearest(low: int, high: int, timestamp_ms: int, time_of: Callable[[int], int]) -> int:
    """4.9.3's own search, step by step, so that equal times end at the same message."""
    left = right = None
    while low <= high:
        middle = (low + high) // 2
        time_ms = time_of(middle)
        if time_ms == timestamp_ms:
            return middle
        if time_ms > timestamp_ms:
            high, right = middle - 1, (middle, time_ms)
        else:
            low, left = middle + 1, (middle, time_ms)
    if left is None:
        assert right is not None, "the queue has at least one message"
        return right[0]
    if right is None:
        return left[0]
    return right[0] if abs(timestamp_ms - left[1]) > abs(timestamp_ms - right[1]) else left[0]
