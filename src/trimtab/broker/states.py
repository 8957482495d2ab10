"""The small states of a broker, as they lie in the store: topics, groups, offsets."""

from typing import TYPE_CHECKING, TypeVar

from trimtab.broker.store.errors import StoreDamagedError
from trimtab.broker.store.progress import StateStatus
from trimtab.broker.topics import SavedTopics
from trimtab.errors import ProtocolError
from trimtab.wire.bodies import ConsumerOffsets, SubscriptionGroupWrapper
from trimtab.wire.bodies.base import Body
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body

if TYPE_CHECKING:
    from trimtab.broker.offsets import OffsetTable
    from trimtab.broker.store import Store, StoreError
    from trimtab.broker.store.flusher import Waiter

B = TypeVar("B", bound=Body)

TOPICS = "topics"
GROUPS = "groups"
OFFSETS = "offsets"


class States:
    """Loads and saves. What Apache's broker keeps in its config folder, in the same JSON."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self.notes: list[str] = []
        """What was wrong with states that could be loaded, in sentences."""
        self._offset_changes = 0
        self._offsets_saved_ms: int | None = None

    def load_topics(self) -> SavedTopics | None:
        """The topics of the last run."""
        return self.load(TOPICS, SavedTopics)

    def load_groups(self) -> SubscriptionGroupWrapper | None:
        """The groups of the last run."""
        return self.load(GROUPS, SubscriptionGroupWrapper)

    def load_offsets(self) -> ConsumerOffsets | None:
        """The offsets of the last run."""
        return self.load(OFFSETS, ConsumerOffsets)

    def save_topics(self, topics: SavedTopics, saved: "Waiter | None" = None) -> None:
        """Calls back when they are on disk, as the others do."""
        self.save(TOPICS, topics, saved)

    def save_groups(self, groups: SubscriptionGroupWrapper, saved: "Waiter | None" = None) -> None:
        """All groups."""
        self.save(GROUPS, groups, saved)

    def save_offsets(self, offsets: "OffsetTable", saved: "Waiter | None" = None) -> None:
        """All offsets."""
        self._offset_changes = offsets.changes
        self.save(OFFSETS, offsets.snapshot(), saved)

    def save_offsets_if_due(self, offsets: "OffsetTable", now_ms: int, interval_ms: int) -> None:
        """Saves changed offsets, but not more often than that."""
        if self._offsets_saved_ms is None:
            self._offsets_saved_ms = now_ms
        if offsets.changes != self._offset_changes and now_ms - self._offsets_saved_ms >= interval_ms:
            self._offsets_saved_ms = now_ms
            self.save_offsets(offsets, self._saved_offsets)

    def _saved_offsets(self, failure: "StoreError | None") -> None:
        if failure is not None:
            self._offset_changes = -1  # they count as changed, so that the next time saves them

    def load(self, name: str, body_type: type[B]) -> B | None:
        """A state by name, if it was ever saved. `StoreDamagedError` if it was and nothing of it can be read.

        Going on without it would be worse than not starting: the next save would bury what a backup could mend.
        """
        loaded = self._store.load_state(name)
        if loaded.status is StateStatus.DAMAGED:
            raise self._damaged(name, loaded.note)
        if loaded.note:
            self.notes.append(loaded.note)
        if loaded.data is None:
            return None
        try:
            return decode_body(body_type, loaded.data)
        except ProtocolError as error:
            raise self._damaged(name, str(error)) from error

    @staticmethod
    def _damaged(name: str, what: str) -> StoreDamagedError:
        return StoreDamagedError(
            file=f"state/{name}.a",
            offset=0,
            what=what,
            advice="put state/ back from a backup, or go on without it after `trimtab store rebuild FOLDER`",
        )

    def save(self, name: str, body: Body, saved: "Waiter | None" = None) -> None:
        """States go to disk in the order in which they are given; calls back when this one is there."""
        self._store.save_state(name, encode_body(body), saved)
