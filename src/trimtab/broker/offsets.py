"""How far each group has consumed each queue, as the groups say.

The last word counts, even if it is lower: resetting offsets backwards is an ordinary commit. The one exception is a commit
that carries the epoch of a lease: it is refused when somebody else has held the queue since.
"""

from collections.abc import Iterator, Mapping

from trimtab.broker import names
from trimtab.broker.requests import Refused
from trimtab.wire.bodies import ConsumerOffsets
from trimtab.wire.codes import ResponseCode

ENTRIES_MAX = 1_000_000
"""Queues times groups that offsets are kept of; whoever commits can name any."""

_SEPARATOR = "@"


class OffsetTable:
    """Offsets by topic and group, then by queue."""

    def __init__(self, saved: ConsumerOffsets | None, *, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        if saved is not None:
            for name, queues in saved.offset_table.items():
                topic, _, group = name.partition(_SEPARATOR)
                self._offsets[topic, group] = dict(queues)
        self._entries = sum(map(len, self._offsets.values()))
        self.changes = 0

    def __len__(self) -> int:
        return self._entries

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(list(self._offsets))

    def snapshot(self) -> ConsumerOffsets:
        """All of it, as it is saved and shown: `topic@group` by queue."""
        table = {
            f"{topic}{_SEPARATOR}{group}": dict(queues) for (topic, group), queues in self._offsets.items()
        }
        return ConsumerOffsets(offset_table=table)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Takes the group's word."""
        if queue_id not in self._offsets.get((topic, group), {}):
            self._require_names(group, topic)
            self._require_room(1)
            self._entries += 1
        self._offsets.setdefault((topic, group), {})[queue_id] = offset
        self.changes += 1

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """What was committed last, if anything."""
        return self._offsets.get((topic, group), {}).get(queue_id)

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """All queues of a topic for a group."""
        return self._offsets.get((topic, group), {})

    def topics_of(self, group: str) -> list[str]:
        """The topics that the group has committed anything of."""
        return [topic for topic, name in self._offsets if name == group]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have committed anything of the topic."""
        return [group for name, group in self._offsets if name == topic]

    def clone(self, source: str, target: str, topic: str) -> None:
        """Gives one group the offsets of another."""
        offsets = self._offsets.get((topic, source))
        if offsets is not None:
            more = len(offsets) - len(self._offsets.get((topic, target), {}))
            self._require_room(more)
            self._entries += more
            self._offsets[topic, target] = dict(offsets)
            self.changes += 1

    def drop_group(self, group: str) -> None:
        """The group was deleted together with its offsets."""
        for topic in self.topics_of(group):
            self._drop(topic, group)

    def drop_topic(self, topic: str) -> None:
        """The topic was deleted; its next namesake begins anew."""
        for group in self.groups_of(topic):
            self._drop(topic, group)

    def _drop(self, topic: str, group: str) -> None:
        self._entries -= len(self._offsets.pop((topic, group)))
        self.changes += 1

    @staticmethod
    def _require_names(group: str, topic: str) -> None:
        """The table is bounded by its entries, so an entry must be bounded too."""
        complaint = names.group_complaint(group) or names.address_complaint(topic)
        if complaint is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, complaint)

    def _require_room(self, more: int) -> None:
        if self._entries + more > self._entries_max:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"no offset is kept beyond the {self._entries_max} that are; delete groups that are gone",
            )
