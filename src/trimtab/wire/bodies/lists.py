"""Lists of names and tables of texts."""

from msgspec import field

from trimtab.wire.bodies.base import Body


class TopicList(Body, frozen=True, kw_only=True):
    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


class GroupList(Body, frozen=True, kw_only=True):
    group_list: tuple[str, ...] = ()


class ConsumerIdList(Body, frozen=True, kw_only=True):
    """The clients of a group; one that is connected twice is listed twice."""

    consumer_id_list: tuple[str, ...] = ()


class KVTable(Body, frozen=True, kw_only=True):
    table: dict[str, str] = field(default_factory=dict)
