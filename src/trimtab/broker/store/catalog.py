"""Which topics and queues there are. On disk a topic is a number that is never used again; its name is only data."""

import msgspec

from trimtab.broker.store.checkpoint import Topic
from trimtab.broker.store.queues import Queue, QueueFiles
from trimtab.errors import InvalidMessageError


def _check_name(topic: bytes) -> None:
    try:
        topic.decode()
    except UnicodeDecodeError as exc:
        raise InvalidMessageError(f"topic {topic!r} is not UTF-8; use letters, digits and _ - % |") from exc


class Catalog:
    """Topics and their queues. A topic may be deleted and come again: then it is a new one, with a new number."""

    def __init__(self, files: QueueFiles) -> None:
        self._files = files
        self.queues: dict[tuple[bytes, int], Queue] = {}
        self.topics: dict[bytes, Topic] = {}
        self.deleted: dict[bytes, int] = {}
        self.next_number = 1
        self._queues_of: dict[bytes, list[Queue]] = {}

    def queues_of(self, topic: bytes) -> list[Queue]:
        return self._queues_of.get(topic, [])

    def make(self, topic: bytes, queue_id: int, since: int) -> Queue:
        """A new, empty queue; `since` is where the log is, for a topic that is new as well."""
        assert queue_id >= 0, "queues are counted from 0"
        entry = self.topics.get(topic)
        if entry is None:
            _check_name(topic)
            entry = self.topics[topic] = Topic(topic, self.next_number, since)
            self.next_number += 1
        queue = Queue(self._files, topic, entry.number, queue_id)
        self.take(queue)
        return queue

    def take(self, queue: Queue) -> None:
        self.queues[queue.topic, queue.queue_id] = queue
        self._queues_of.setdefault(queue.topic, []).append(queue)

    def of_record(self, topic: bytes, queue_id: int, physical_offset: int) -> Queue | None:
        """The queue that a record found in the log belongs to, made if need be; None if its topic was deleted since."""
        entry = self.topics.get(topic)
        since = self.deleted.get(topic, 0) if entry is None else entry.since
        if physical_offset < since:
            return None
        return self.queues.get((topic, queue_id)) or self.make(topic, queue_id, physical_offset)

    def delete(self, topic: bytes, log_end: int) -> list[Queue]:
        """Forgets a topic; everything under its name before `log_end` is its past. Gives the queues that were."""
        if self.topics.pop(topic, None) is None:
            return []
        self.deleted[topic] = log_end
        queues = self._queues_of.pop(topic, [])
        for queue in queues:
            del self.queues[topic, queue.queue_id]
        return queues

    def begin_anew(self, topic: bytes, since: int) -> None:
        """Everything under its name before `since` of the log is the topic's past: it was deleted there and came again."""
        self.topics[topic] = msgspec.structs.replace(self.topics[topic], since=since)

    def clamp(self, log_end: int) -> bool:
        """After the log lost its tail: births and deletions that lay in it count from its new end. True if there were any."""
        late = [topic for topic in self.topics.values() if topic.since > log_end]
        for topic in late:
            self.topics[topic.name] = msgspec.structs.replace(topic, since=log_end)
        late_names = [name for name, end in self.deleted.items() if end > log_end]
        for name in late_names:
            self.deleted[name] = log_end
        return bool(late or late_names)

    def forget_deleted(self, log_start: int) -> None:
        """Deleted topics need not be remembered once none of their messages are left."""
        self.deleted = {name: end for name, end in self.deleted.items() if end > log_start}
