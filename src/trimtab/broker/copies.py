"""A stored message put into the log once more: later, under its real topic, for another try, for another check.

Every copy that a delivery makes names the place of its source, in the field that a committed message keeps the place of its
half message in. So the log itself says what was delivered, and a crash need not deliver anything twice: whoever delivers saves
now and then how far it is and how long the log was; after a crash the copies behind that place are looked for in the queues
they would lie in. Saving is only what keeps that search short.
"""

from typing import TYPE_CHECKING

from trimtab.broker.placing import Placed
from trimtab.broker.store.errors import StoreDamagedError
from trimtab.broker.store.queues import first_where
from trimtab.broker.store.reading import keys_of
from trimtab.wire import properties as keys
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import Storable, StoredMessage, decode_messages

if TYPE_CHECKING:
    from trimtab.broker.core import BrokerCore
    from trimtab.broker.store import Appended, Store, StoreError
    from trimtab.model import Now
    from trimtab.wire.bodies.base import Body

SAVED_EVERY_MS = 3_000
LOG_BYTES_UNSEEN_MAX = 64 << 20
"""A cursor that did not move is saved anew when the log grew by this much, so that a crash means little to look through."""

_READ_MESSAGES = 1_000
_READ_BYTES = 1 << 20
_TAGS = keys.TAGS.encode()


def copy_of(
    message: StoredMessage,
    topic: str,
    queue_id: int,
    *,
    properties: bytes | None = None,
    sys_flag: int | None = None,
    reconsume_times: int | None = None,
    source: int = 0,
) -> Placed:
    """The same message under this topic and queue; what is not given is as it was. The body stays as it is stored."""
    if properties is None:
        properties = message.properties_bytes
    tag = keys.find_property(properties, _TAGS)
    storable = Storable(
        topic.encode(),
        message.stored_body,
        properties,
        queue_id,
        message.born_timestamp,
        message.born_host_bytes,
        message.flag,
        message.sys_flag if sys_flag is None else sys_flag,
        message.reconsume_times if reconsume_times is None else reconsume_times,
        source,
    )
    return Placed(
        topic, storable, tags_code(None if tag is None else keys.decode_text(tag)), tuple(keys_of(properties))
    )


def append_copy(core: "BrokerCore", placed: Placed, now: "Now") -> "Appended":
    """Gives it its place; `StoreError` if the store takes nothing."""
    return core.writes.append(placed.message, now, placed.tags_code, placed.keys)


def destination_of(message: StoredMessage) -> tuple[str, int] | None:
    """Where a message that waits is to go, if that can be read."""
    topic, queue = message.properties.get(keys.REAL_TOPIC), message.properties.get(keys.REAL_QUEUE_ID)
    if not topic or queue is None or not (queue.isascii() and queue.isdigit() and len(queue) < 10):
        return None
    return topic, int(queue)


class EarlierCopies:
    """Which messages an earlier life had copied, after the place in the log at which it last saved its cursor."""

    def __init__(self, store: "Store", since: int) -> None:
        self._store = store
        self._since = since
        self._until = store.written_end
        self._sources: dict[tuple[str, int], frozenset[int]] = {}

    def has(self, message: StoredMessage) -> bool:
        """Whether a copy of this message lies in the queue that it is for."""
        queue = destination_of(message)
        if queue is None or self._since >= self._until:
            return False
        sources = self._sources.get(queue)
        if sources is None:
            sources = self._sources[queue] = frozenset(self._sources_in(*queue))
        return message.physical_offset in sources

    def _sources_in(self, topic: str, queue_id: int) -> list[int]:
        store, found = self._store, []
        offset = first_where(
            store.min_offset(topic, queue_id),
            store.max_offset(topic, queue_id),
            lambda at: self._place_of(topic, queue_id, at) >= self._since,
        )
        while self._place_of(topic, queue_id, offset) < self._until:
            try:
                result = store.read(
                    topic, queue_id, offset, messages_max=_READ_MESSAGES, bytes_max=_READ_BYTES
                )
            except StoreDamagedError:
                offset += 1
                continue
            sources = (message.prepared_transaction_offset for message in decode_messages(result.body))
            found += [source for source in sources if source]
            offset = max(result.next_offset, offset + 1)
        return found

    def _place_of(self, topic: str, queue_id: int, offset: int) -> int:
        entry = self._store.entry(topic, queue_id, offset)
        return self._until if entry is None else entry.physical_offset


class Savings:
    """When a cursor is saved. It is never saved before what it speaks of is on disk."""

    def __init__(self, name: str, place: int) -> None:
        self._name = name
        self._place = place
        self._saved_ms: int | None = None
        self._is_changed = False

    def changed(self) -> None:
        """The cursor moved."""
        self._is_changed = True

    def is_due(self, core: "BrokerCore", now: "Now") -> bool:
        """Whether it is time to save."""
        if self._saved_ms is None:
            self._saved_ms = now.monotonic_ms
        if now.monotonic_ms - self._saved_ms < SAVED_EVERY_MS:
            return False
        return self._is_changed or core.store.written_end - self._place > LOG_BYTES_UNSEEN_MAX

    def save(self, core: "BrokerCore", body: "Body", now: "Now") -> None:
        """Saves `body`, which must say all of it as of now, as soon as the log is durable as far as it is written."""
        self._saved_ms, self._place, self._is_changed = now.monotonic_ms, core.store.written_end, False

        def durable(failure: "StoreError | None") -> None:
            if failure is None:
                core.states.save(self._name, body)

        core.store.on_durable(self._place, durable)
