"""What a process is to the brokers, as heartbeats tell it; and who in it takes the brokers' own requests."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from trimtab.errors import ProtocolError
from trimtab.io.connection import PeerConnection
from trimtab.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from trimtab.wire.codes import LEASED_VERSION, SPOKEN_VERSION, RequestCode
from trimtab.wire.commands import Command

_log = logging.getLogger(__name__)

Listener = Callable[[PeerConnection, Command], bool | None]
"""Looks at a request of a broker; True if it answers it, or will."""

FOR_ONE = frozenset({int(RequestCode.CHECK_TRANSACTION_STATE)})
"""One-way requests that ask for something: one client sees to it, not each that could."""


class Heartbeat(NamedTuple):
    """One request."""

    data: HeartbeatData
    version: int


@dataclass(slots=True)
class Roles:
    """What this process is to the brokers: the content of its heartbeats."""

    producer_groups: dict[str, int] = field(default_factory=dict)
    """By group, how many producers of it there are."""
    consumers: dict[str, Callable[[], ConsumerData]] = field(default_factory=dict)
    leased: set[str] = field(default_factory=set)
    """Groups in which leases are kept; the other members must be able to see that."""
    producers_version: int = 0
    """Grows with every change of the producer groups: a heartbeat of an older version does not tell of all of them."""

    def heartbeats(self, client_id: str) -> list[Heartbeat]:
        """What there is to say. Groups with leases are told apart from the rest by the version, so they go alone."""
        producers = tuple(ProducerData(group_name=group) for group in self.producer_groups)
        leased = tuple(tell() for group, tell in self.consumers.items() if group in self.leased)
        others = tuple(tell() for group, tell in self.consumers.items() if group not in self.leased)
        found = []
        if leased:
            data = HeartbeatData(client_id=client_id, consumer_data_set=leased)
            found.append(Heartbeat(data, LEASED_VERSION))
        if producers or others:
            data = HeartbeatData(client_id=client_id, producer_data_set=producers, consumer_data_set=others)
            found.append(Heartbeat(data, SPOKEN_VERSION))
        return found

    def add_producer(self, group: str) -> None:
        """One more producer of a group."""
        self.producers_version += group not in self.producer_groups
        self.producer_groups[group] = self.producer_groups.get(group, 0) + 1

    def remove_producer(self, group: str) -> bool:
        """One producer less; whether that was the last of its group."""
        left = self.producer_groups.get(group, 0) - 1
        if left > 0:
            self.producer_groups[group] = left
            return False
        self.producers_version += 1
        return self.producer_groups.pop(group, None) is not None


class Listeners:
    """Who looks at requests of brokers, by code. Several may: each client of a session has its own groups."""

    def __init__(self) -> None:
        self._by_code: dict[int, list[Listener]] = {}

    def add(self, code: int, listener: Listener) -> Callable[[], None]:
        """From now on; call what you get to end it."""
        listeners = self._by_code.setdefault(int(code), [])
        listeners.append(listener)

        def remove() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return remove

    def pass_on(self, connection: PeerConnection, command: Command) -> bool:
        """A one-way request goes to everybody, unless one is enough; another one to the first who takes it; whether anybody did."""
        listeners = self._by_code.get(command.code, ())
        if command.is_oneway and command.code not in FOR_ONE:
            for listener in tuple(listeners):
                listener(connection, command)
            return bool(listeners)
        return any(listener(connection, command) for listener in tuple(listeners))


def guarded(taker: Listener) -> Listener:
    """A request that cannot be read is not taken; the connection is not to blame for it."""

    def take(connection: PeerConnection, command: Command) -> bool:
        try:
            return bool(taker(connection, command))
        except ProtocolError as error:
            _log.warning("request %d of %s cannot be read: %s", command.code, connection.address, error)
            return False

    return take
