"""The topics of one broker: which there are, who may make one, and since when they look as they do."""

from collections.abc import Iterator

from msgspec import field

from trimtab.broker import names
from trimtab.broker.requests import Refused
from trimtab.broker.settings import BrokerSettings
from trimtab.model import Now
from trimtab.wire.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from trimtab.wire.codes import ResponseCode
from trimtab.wire.scalars import I64

DELETED_REMEMBERED_MAX = 10_000


class SavedTopics(TopicConfigSerializeWrapper, frozen=True, kw_only=True):
    """Apache's topics.json, and how long the log was when a topic that is no more was deleted."""

    deleted: dict[str, I64] = field(default_factory=dict)


class TopicTable:
    """All topics by name. `version` grows with every change; name servers compare it."""

    def __init__(self, settings: BrokerSettings, saved: SavedTopics | None, now: Now) -> None:
        self._settings = settings
        self._topics: dict[str, TopicConfig] = {}
        self._deleted: dict[str, int] = {}
        """Where the log ended then; the oldest are forgotten first."""
        self.version = DataVersion(timestamp=now.wall_ms)
        if saved is not None:
            self._topics.update(saved.topic_config_table)
            self._deleted.update(saved.deleted)
            self.version = saved.data_version
        for topic in self._system_topics():
            self._topics.setdefault(topic.topic_name, topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, topic: str) -> TopicConfig | None:
        """The topic, if it exists."""
        return self._topics.get(topic)

    def snapshot(self) -> TopicConfigSerializeWrapper:
        """All of it, as it is registered and shown."""
        return TopicConfigSerializeWrapper(topic_config_table=dict(self._topics), data_version=self.version)

    def saved(self) -> SavedTopics:
        """All of it, as it is saved."""
        return SavedTopics(
            topic_config_table=dict(self._topics), data_version=self.version, deleted=dict(self._deleted)
        )

    def is_deleted_since(self, topic: str, place: int) -> bool:
        """Whether a topic that is no more was deleted when the log had come beyond this place already."""
        return topic not in self._topics and place < self._deleted.get(topic, 0)

    def settings_changed(self, settings: BrokerSettings, now: Now) -> None:
        """Takes other settings; a system topic that they ask for is made."""
        self._settings = settings
        for topic in self._system_topics():
            if topic.topic_name not in self._topics:
                self._topics[topic.topic_name] = topic
                self.version = self.version.next(now.wall_ms)

    def put(self, topic: TopicConfig, now: Now) -> bool:
        """Creates or alters a topic; False if it is there already and just so."""
        known = self._topics.get(topic.topic_name)
        if known == topic:
            return False
        if known is None and len(self._topics) >= self._settings.topics_max:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic.topic_name} not created: this broker holds {len(self._topics)} topics, its limit",
            )
        self._topics[topic.topic_name] = topic
        self._deleted.pop(topic.topic_name, None)
        self.version = self.version.next(now.wall_ms)
        return True

    def remove(self, topic: str, place: int, now: Now) -> bool:
        """Forgets a topic; the log ends at this place now."""
        if self._topics.pop(topic, None) is None:
            return False
        self._deleted[topic] = place
        if len(self._deleted) > DELETED_REMEMBERED_MAX:
            del self._deleted[next(iter(self._deleted))]
        self.version = self.version.next(now.wall_ms)
        return True

    def create_on_send(self, topic: str, default_topic: str, queues: int, now: Now) -> TopicConfig | None:
        """A topic made because somebody sends to it: as the default topic allows, or None."""
        default = self._topics.get(default_topic)
        if default is None or not default.perm & names.PERM_INHERIT:
            return None
        if default_topic == names.DEFAULT_TOPIC and not self._settings.auto_create_topics:
            return None
        queues = max(1, min(queues, default.write_queue_nums))  # nobody could ever send to one without
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=default.perm & ~names.PERM_INHERIT,
            topic_sys_flag=0,
        )
        self.put(created, now)
        return created

    def ensure(self, topic: str, queues: int, now: Now) -> tuple[TopicConfig, bool]:
        """A topic of the broker's own making (retry, dead letters, half messages), and whether it is new."""
        known = self._topics.get(topic)
        if known is not None:
            return known, False
        created = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
        self.put(created, now)
        return created, True

    def is_system(self, topic: str) -> bool:
        """Topics that nobody may alter or delete."""
        return (
            topic in names.SYSTEM_TOPICS
            or topic.startswith(names.SYSTEM_TOPIC_PREFIX)
            or topic in (self._settings.cluster_name, self._settings.broker_name, self.reply_topic)
        )

    @property
    def reply_topic(self) -> str:
        """Where answers to requests are stored."""
        return f"{self._settings.cluster_name}_REPLY_TOPIC"

    def system_topic_names(self) -> list[str]:
        """The system topics that exist here."""
        return [topic for topic in self._topics if self.is_system(topic)]

    def _system_topics(self) -> list[TopicConfig]:
        def topic(name: str, queues: int, perm: int = names.PERM_READ_WRITE) -> TopicConfig:
            return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

        inherited = names.PERM_READ_WRITE | names.PERM_INHERIT
        found = [
            topic(names.SELF_TEST_TOPIC, 1),
            topic(names.OFFSET_MOVED_TOPIC, 1),
            topic(names.BENCHMARK_TOPIC, 1024),
            topic(self._settings.cluster_name, 16, inherited),
            topic(self._settings.broker_name, 1, inherited),
            topic(names.SCHEDULE_TOPIC, 18),
            topic(self.reply_topic, 1),
            topic(names.HALF_TOPIC, 1),
            topic(names.OP_HALF_TOPIC, 1),
            topic(names.TIMER_TOPIC, 1),
        ]
        if self._settings.auto_create_topics:
            found.append(topic(names.DEFAULT_TOPIC, self._settings.default_topic_queues, inherited))
        if self._settings.trace_topic:
            found.append(topic(names.TRACE_TOPIC, 1))
        return found
