"""What was appended and is not yet written: records for the log, entries for the queues, keys for the index.

Messages get their offsets here, at once; queues and index hear of them only when the log has them.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec

from trimtab.broker.store.index import KeysOfSome
from trimtab.broker.store.parts import Parts
from trimtab.broker.store.queues import Queue, pack_entry
from trimtab.errors import InvalidMessageError
from trimtab.wire.hashing import crc32
from trimtab.wire.messages import Storable, StorableTogether, encode_stored, encode_stored_together


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a message got its place; `end` is what `on_visible` and `on_durable` want to know."""

    queue_offset: int
    physical_offset: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.physical_offset


class AppendedTogether(msgspec.Struct, frozen=True, gc=False):
    """Where several messages got their places, side by side."""

    queue_offsets: list[int]
    physical_offsets: list[int]
    end: int


class Grown(msgspec.Struct, frozen=True, gc=False):
    """What one write added to one queue."""

    topic: str
    queue_id: int
    messages: int
    bytes: int


class Fresh:
    """See above. `refusal` says why nothing can be appended while it `refuses`; `write` makes room when it is too much."""

    def __init__(self, parts: Parts, refusal: Callable[[], Exception], write: Callable[[], object]) -> None:
        self.refuses = False
        self._refusal = refusal
        self._write = write
        self._frame_bytes_max = parts.settings.frame_bytes_max
        self._log = parts.log
        self._catalog = parts.catalog
        self._queues_by_name = parts.catalog.queues
        self._index = parts.index
        self._record_bytes_max = parts.settings.record_bytes_max
        self._queues: list[Queue] = []
        self._keys: list[KeysOfSome] = []

    def __bool__(self) -> bool:
        return bool(self._queues)

    def append(
        self,
        message: Storable,
        store_timestamp: int,
        store_host: bytes,
        tags_code: int = 0,
        keys: Sequence[bytes] = (),
    ) -> Appended:
        """Gives a message its place. `keys` are what it will be found by: see `keys_of`."""
        log = self._log
        if self.refuses or log.next_offset - log.end > self._frame_bytes_max:
            self._make_room()
        queue = self._queues_by_name.get((message.topic, message.queue_id))
        if queue is None:
            queue = self._catalog.make(message.topic, message.queue_id, log.end)
        queue_offset = queue.next_offset
        physical_offset = log.next_offset
        record = encode_stored(message, queue_offset, physical_offset, store_timestamp, store_host)
        size = len(record)
        if size > self._record_bytes_max:
            raise self._too_long(size)
        checksum = crc32(record)
        log.records.append(record)
        log.checksums.append(checksum)
        log.next_offset = end = physical_offset + size
        if not queue.fresh:
            self._queues.append(queue)
        queue.fresh.append(pack_entry(physical_offset, size, tags_code, checksum))
        queue.fresh_bytes += size
        queue.next_offset = queue_offset + 1
        if keys:
            self._keys.append(
                KeysOfSome((keys,), queue.key_seed, (physical_offset,), (checksum,), store_timestamp)
            )
        return Appended(queue_offset, physical_offset, end)

    def append_together(
        self,
        messages: StorableTogether,
        store_timestamp: int,
        store_host: bytes,
        tags_codes: Sequence[int],
        keys: Sequence[Sequence[bytes]],
    ) -> AppendedTogether:
        """Gives several messages their places, one behind the other, or, with `InvalidMessageError`, none of them."""
        log = self._log
        if self.refuses or log.next_offset - log.end > self._frame_bytes_max:
            self._make_room()
        topic = messages.topic
        queues = [self._queue(topic, queue_id) for queue_id, _ in messages.queues]
        counts = [count for _, count in messages.queues]
        queue_offsets: list[int] = []
        for queue, count in zip(queues, counts, strict=True):
            queue_offsets += range(queue.next_offset, queue.next_offset + count)
        begin = log.next_offset
        records = encode_stored_together(messages, queue_offsets, begin, store_timestamp, store_host)
        sizes = list(map(len, records))
        if max(sizes) > self._record_bytes_max:
            raise self._too_long(max(sizes))
        checksums = list(map(crc32, records))
        *offsets, end = accumulate(sizes, initial=begin)
        log.add(records, checksums, end)
        entries = list(map(pack_entry, offsets, sizes, tags_codes, checksums))
        at = 0
        for queue, count in zip(queues, counts, strict=True):
            if not queue.fresh:
                self._queues.append(queue)
            upto = at + count
            queue.give(entries[at:upto], sum(sizes[at:upto]))
            at = upto
        self._keys.append(KeysOfSome(keys, queues[0].key_seed, offsets, checksums, store_timestamp))
        return AppendedTogether(queue_offsets, offsets, end)

    def _queue(self, topic: bytes, queue_id: int) -> Queue:
        queue = self._queues_by_name.get((topic, queue_id))
        return self._catalog.make(topic, queue_id, self._log.end) if queue is None else queue

    def _make_room(self) -> None:
        if self.refuses:
            raise self._refusal()
        self._write()

    def _too_long(self, size: int) -> InvalidMessageError:
        return InvalidMessageError(f"the message takes {size} bytes, at most {self._record_bytes_max} fit")

    def written(self, dirty: dict[Queue, None]) -> list[Grown]:
        """The log has it all: now the queues and the index do. Queues that a checkpoint must look at become `dirty`."""
        grown = []
        for queue in self._queues:
            if not queue.tail:
                dirty[queue] = None
            grown.append(Grown(queue.topic_name, queue.queue_id, len(queue.fresh), queue.fresh_bytes))
            queue.take_fresh()
        if self._keys:
            self._index.add_all(self._keys)
        self._queues, self._keys = [], []
        return grown

    def drop(self) -> None:
        """What was appended since the last write never was."""
        for queue in self._queues:
            queue.drop_fresh()
        self._queues, self._keys = [], []
        self._log.discard()


def summed(grown: list[Grown]) -> list[Grown]:
    """One for each queue."""
    sums: dict[tuple[str, int], Grown] = {}
    for more in grown:
        key = more.topic, more.queue_id
        known = sums.get(key)
        messages, size = (0, 0) if known is None else (known.messages, known.bytes)
        sums[key] = Grown(*key, messages + more.messages, size + more.bytes)
    return list(sums.values())
