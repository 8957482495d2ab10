"""Who is there: groups of consumers and producers as a broker sees them through heartbeats.

A member is a connection, not a client id: two connections may carry the same id, and the broker then lists it twice, as
Apache's does. What counts as a change of a group (and so makes its members compute their shares anew) is a connection
not seen before, a connection that is gone, or a topic added or removed. A subscription that merely has a newer version,
and a known connection that comes with another client id, are taken over without a change.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

MEMBER_SILENCE_MS_MAX = 120_000
"""A member that has not sent a heartbeat for longer is removed."""


class Subscribed(Protocol):
    """What must be known of a subscription here."""

    @property
    def topic(self) -> str: ...
    @property
    def sub_version(self) -> int: ...


S = TypeVar("S", bound=Subscribed)


@dataclass(frozen=True, slots=True)
class Member:
    """One connection that belongs to a group."""

    connection: int
    client_id: str
    language: str
    version: int
    address: str
    last_heartbeat_ms: int


@dataclass(frozen=True, slots=True)
class Manner:
    """How a group consumes. The newest heartbeat decides for the whole group."""

    consume_type: str
    message_model: str
    consume_from_where: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A group that changed, and the connections to be told."""

    group: str
    connections: tuple[int, ...]
    is_gone: bool = False


@dataclass(slots=True)
class ConsumerGroup(Generic[S]):
    """One group: its members by connection, its subscriptions by topic."""

    name: str
    manner: Manner
    members: dict[int, Member] = field(default_factory=dict)
    subscriptions: dict[str, S] = field(default_factory=dict)

    def client_ids(self) -> list[str]:
        """The ids of all members; an id that two connections carry stands there twice."""
        return [member.client_id for member in self.members.values()]

    def member_named(self, client_id: str) -> Member | None:
        """The newest member that carries this id."""
        found = [member for member in self.members.values() if member.client_id == client_id]
        return max(found, key=lambda member: member.last_heartbeat_ms, default=None)

    def take_subscriptions(self, given: Mapping[str, S]) -> bool:
        """Takes what a heartbeat brought; True if the topics are others than before."""
        changed = given.keys() != self.subscriptions.keys()
        for topic in [topic for topic in self.subscriptions if topic not in given]:
            del self.subscriptions[topic]
        for topic, subscription in given.items():
            known = self.subscriptions.get(topic)
            if known is None or subscription.sub_version > known.sub_version:
                self.subscriptions[topic] = subscription
        return changed


class ConsumerGroups(Generic[S]):
    """All groups of consumers that are connected to one broker."""

    def __init__(self, silence_ms_max: int = MEMBER_SILENCE_MS_MAX) -> None:
        self._silence_ms_max = silence_ms_max
        self._groups: dict[str, ConsumerGroup[S]] = {}
        self._joined = _Joined()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ConsumerGroup[S]]:
        return iter(self._groups.values())

    def get(self, group: str) -> ConsumerGroup[S] | None:
        """The group, if anybody of it is connected."""
        return self._groups.get(group)

    def heartbeat(
        self, group: str, manner: Manner, member: Member, subscriptions: Iterable[S]
    ) -> Changed | None:
        """Takes a heartbeat; says whom to tell if it changed the group."""
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = ConsumerGroup(group, manner)
        known.manner = manner
        is_new = member.connection not in known.members
        known.members[member.connection] = member
        self._joined.add(member.connection, group)
        topics_changed = known.take_subscriptions(
            {subscription.topic: subscription for subscription in subscriptions}
        )
        return Changed(group, tuple(known.members)) if is_new or topics_changed else None

    def unregister(self, group: str, connection: int) -> Changed | None:
        """A member says goodbye."""
        known = self._groups.get(group)
        if known is None or known.members.pop(connection, None) is None:
            return None
        self._joined.remove(connection, group)
        if not known.members:
            del self._groups[group]
        return Changed(group, tuple(known.members), is_gone=not known.members)

    def close(self, connection: int) -> list[Changed]:
        """A connection is gone, and with it its membership in every group."""
        gone = [self.unregister(group, connection) for group in self._joined.of(connection)]
        return [change for change in gone if change is not None]

    def silent(self, now_ms: int) -> list[int]:
        """The connections that have not been heard of for too long. Close them."""
        members = (member for group in self._groups.values() for member in group.members.values())
        return _silent(members, now_ms - self._silence_ms_max)


class ProducerGroups:
    """All groups of producers that are connected to one broker."""

    def __init__(self, silence_ms_max: int = MEMBER_SILENCE_MS_MAX) -> None:
        self._silence_ms_max = silence_ms_max
        self._groups: dict[str, dict[int, Member]] = {}
        self._joined = _Joined()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[tuple[str, list[Member]]]:
        return ((group, list(members.values())) for group, members in self._groups.items())

    def heartbeat(self, group: str, member: Member) -> None:
        """Takes a heartbeat."""
        self._groups.setdefault(group, {})[member.connection] = member
        self._joined.add(member.connection, group)

    def members(self, group: str) -> list[Member]:
        """Everybody of the group, in the order of arrival."""
        return list(self._groups.get(group, {}).values())

    def connection_of(self, client_id: str) -> int | None:
        """Where a reply to this client goes: its newest connection."""
        members = (m for group in self._groups.values() for m in group.values() if m.client_id == client_id)
        newest = max(members, key=lambda member: member.last_heartbeat_ms, default=None)
        return None if newest is None else newest.connection

    def unregister(self, group: str, connection: int) -> None:
        """A producer says goodbye."""
        members = self._groups.get(group, {})
        members.pop(connection, None)
        self._joined.remove(connection, group)
        if not members:
            self._groups.pop(group, None)

    def close(self, connection: int) -> None:
        """A connection is gone."""
        for group in self._joined.of(connection):
            self.unregister(group, connection)

    def silent(self, now_ms: int) -> list[int]:
        """The connections that have not been heard of for too long. Close them."""
        members = (member for group in self._groups.values() for member in group.values())
        return _silent(members, now_ms - self._silence_ms_max)


class _Joined:
    """Which groups a connection belongs to, so that its end costs no look at all the others."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[str, None]] = {}

    def of(self, connection: int) -> list[str]:
        return list(self._groups.get(connection, ()))

    def add(self, connection: int, group: str) -> None:
        self._groups.setdefault(connection, {})[group] = None

    def remove(self, connection: int, group: str) -> None:
        groups = self._groups.get(connection, {})
        groups.pop(group, None)
        if not groups:
            self._groups.pop(connection, None)


def _silent(members: Iterable[Member], since_ms: int) -> list[int]:
    """The connections, each once, of members last heard of before that."""
    return list(dict.fromkeys(member.connection for member in members if member.last_heartbeat_ms < since_ms))
