"""What a group wants of a topic, as users say it and as heartbeats carry it: point B1. PURE."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from trimtab.client.checks import check_topic
from trimtab.client.namespaces import with_namespace
from trimtab.client.pulls_values import ALL, SQL92, TAG, Wanted
from trimtab.errors import SettingsError
from trimtab.wire.bodies import SubscriptionData
from trimtab.wire.hashing import java_hash


@dataclass(frozen=True, slots=True)
class SQL:
    """A filter over properties, as in `SQL("region = 'eu' AND amount > 5")`. Brokers must have enablePropertyFilter=true."""

    expression: str


Expression: TypeAlias = str | SQL
"""`"*"` for all, `"a || b"` for messages with one of these tags, or `SQL(...)`."""


def subscription_of(topic: str, expression: Expression, version: int) -> SubscriptionData:
    """A subscription, its version in ms. Topic and expression are checked as far as that can be done here."""
    check_topic(topic)
    if not isinstance(expression, str | SQL):
        raise SettingsError(
            f"the filter {expression!r} for topic {topic!r} is neither a text like 'a || b' nor SQL(...)"
        )
    if isinstance(expression, SQL):
        if not expression.expression.strip():
            raise SettingsError(f"the SQL filter for topic {topic!r} is empty")
        return SubscriptionData(
            topic=topic, sub_string=expression.expression, expression_type=SQL92, sub_version=version
        )
    text = expression.strip()
    if text in ("", ALL):
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version)
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split("||") if tag.strip()))
    if not tags:
        raise SettingsError(f"{expression!r} names no tag for topic {topic!r}; write '*' or 'a || b'")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set=tuple(map(java_hash, tags)),
        sub_version=version,
    )


def on_wire(namespace: str | None, subscribe: Mapping[str, Expression]) -> dict[str, Expression]:
    """What users say by topic, with the topics' names on the wire."""
    if not isinstance(subscribe, Mapping):
        raise SettingsError(
            f"subscribe={subscribe!r} is no table: say a filter for each topic, as in {{'orders': '*'}}"
        )
    return {with_namespace(namespace, topic): expression for topic, expression in subscribe.items()}


def wanted_of(data: SubscriptionData) -> Wanted:
    """The same for pulls. Each says its filter: then no other member's subscription can be taken for ours."""
    return Wanted(data.sub_string or ALL, data.expression_type, data.sub_version)


class Subscriptions:
    """The subscriptions of one consumer, by topic as it is on the wire."""

    def __init__(self, wanted: Mapping[str, Expression], now_ms: int) -> None:
        self._by_topic: dict[str, SubscriptionData] = {}
        for topic, expression in wanted.items():
            self.add(topic, expression, now_ms)

    def __len__(self) -> int:
        return len(self._by_topic)

    def __contains__(self, topic: object) -> bool:
        return topic in self._by_topic

    @property
    def topics(self) -> tuple[str, ...]:
        """In the order in which they came."""
        return tuple(self._by_topic)

    @property
    def all(self) -> tuple[SubscriptionData, ...]:
        """As heartbeats carry them."""
        return tuple(self._by_topic.values())

    @property
    def filtered_by_sql(self) -> tuple[SubscriptionData, ...]:
        """Those that only a broker can check."""
        return tuple(data for data in self._by_topic.values() if data.expression_type not in (TAG, None))

    def get(self, topic: str) -> SubscriptionData | None:
        """The subscription of a topic."""
        return self._by_topic.get(topic)

    def add(self, topic: str, expression: Expression, now_ms: int) -> SubscriptionData:
        """Adds a subscription or changes one; its version is the time, and above the one before it."""
        before = self._by_topic.get(topic)
        version = now_ms if before is None else max(now_ms, before.sub_version + 1)
        data = self._by_topic[topic] = subscription_of(topic, expression, version)
        return data

    def remove(self, topic: str) -> bool:
        """Takes one back; whether it was there."""
        return self._by_topic.pop(topic, None) is not None

    def bump(self, topic: str, now_ms: int) -> None:
        """A new version of the same, after the queues changed."""
        data = self._by_topic.get(topic)
        if data is not None:
            version = max(now_ms, data.sub_version + 1)
            self._by_topic[topic] = msgspec.structs.replace(data, sub_version=version)
