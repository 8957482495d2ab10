"""Who is in a group, asked of every broker, with what is known of each member."""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab.balance.identity import is_ours
from trimtab.client.session import Session
from trimtab.errors import NoRouteError, TrimtabError
from trimtab.model import MessageQueue
from trimtab.wire.bodies import Connection, ConsumerConnection, ConsumerConnectionAndLeases, KVTable
from trimtab.wire.codes import RequestCode, keeps_leases
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.consume import GroupAndLeases

_log = logging.getLogger(__name__)

ASK_S = 1.0
_RUNTIME = re.compile(r"\[ (\d{1,9}) days, (\d{1,2}) hours, (\d{1,2}) minutes, (\d{1,2}) seconds")


@dataclass(frozen=True, slots=True)
class Look:
    """One broker's list."""

    broker_name: str
    members: frozenset[str]
    sent_ms: int
    answered_ms: int
    holders: Mapping[MessageQueue, str] | None = None
    """Who has which lease there, if the broker tells it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All lists together."""

    lists: tuple[Look, ...]
    is_whole: bool
    """Whether every broker answered."""
    members: frozenset[str]
    foreign: frozenset[str]
    """Members that do not keep our rules."""
    mismarked: frozenset[str]
    """The brokers that list this member itself only as one that does not."""
    namesakes: dict[str, tuple[str, ...]]
    """By broker, the addresses from which it has connections under this member's own id; one of them is this member's."""
    stable: frozenset[str]
    """Members that keep their id over a restart."""

    @property
    def holders(self) -> dict[str, Mapping[MessageQueue, str]]:
        """By broker, who has which lease there, of the brokers that tell it."""
        return {look.broker_name: look.holders for look in self.lists if look.holders is not None}


class MemberLists:
    """Asks brokers for the members of a group."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def look(self, queues: Mapping[str, Iterable[MessageQueue]]) -> Seen:
        """Asks every broker that has queues of the group, all at once."""
        names = sorted({queue.broker_name for found in queues.values() for queue in found})
        answers = await asyncio.gather(*(self._look_at(name) for name in names))
        found = [answer for answer in answers if answer is not None]
        connections = [connection for _, table in found for connection in table.connection_set]
        foreign = {connection.client_id or "" for connection in connections if not _keeps_leases(connection)}
        members = frozenset(connection.client_id or "" for connection in connections)
        return Seen(
            lists=tuple(look for look, _ in found),
            is_whole=len(found) == len(names),
            members=members,
            foreign=frozenset(foreign),
            mismarked=frozenset(look.broker_name for look, table in found if self._is_mismarked(table)),
            namesakes={look.broker_name: self._namesakes(table) for look, table in found},
            stable=frozenset(client_id for client_id in members - foreign if not is_ours(client_id)),
        )

    async def at(self, broker_name: str) -> frozenset[str]:
        """The members that one broker lists."""
        table = await self._ask(broker_name)
        return _ids(table)

    async def lease_memory_ms(self, broker_name: str) -> int:
        """For how long a broker has known of every lease that it gave: since it was started, if it does not say so itself."""
        table = await self._ask(broker_name)
        if table.lease_memory_ms is not None:
            return table.lease_memory_ms
        answer = await self._session.ask(
            self._address(broker_name), RequestCode.GET_BROKER_RUNTIME_INFO,
            asked=f"for how long {broker_name} has been up", timeout_s=ASK_S,
        )  # fmt: skip
        return up_ms(decode_body(KVTable, answer.body).table)

    async def namesakes_at(self, broker_name: str) -> tuple[str, ...]:
        """From where one broker has connections under this member's own id."""
        return self._namesakes(await self._ask(broker_name))

    def _namesakes(self, table: ConsumerConnection) -> tuple[str, ...]:
        mine = [one for one in table.connection_set if one.client_id == self._session.client_id]
        return tuple(one.client_addr or "" for one in mine)

    def _is_mismarked(self, table: ConsumerConnection) -> bool:
        mine = [one for one in table.connection_set if one.client_id == self._session.client_id]
        return bool(mine) and not any(map(_keeps_leases, mine))

    async def _look_at(self, broker_name: str) -> tuple[Look, ConsumerConnectionAndLeases] | None:
        sent_ms = self._session.clock.monotonic_ms()
        try:
            table = await self._ask(broker_name)
        except TrimtabError as error:
            _log.info("the members of %s at %s are not known: %s", self._group, broker_name, error)
            return None
        now_ms = self._session.clock.monotonic_ms()
        return Look(broker_name, _ids(table), sent_ms, now_ms, _holders(broker_name, table)), table

    async def _ask(self, broker_name: str) -> ConsumerConnectionAndLeases:
        header = GroupAndLeases(consumer_group=self._group, with_leases=True)
        answer = await self._session.ask(
            self._address(broker_name), RequestCode.GET_CONSUMER_CONNECTION_LIST, header,
            asked=f"members of group {self._group!r} at {broker_name}", timeout_s=ASK_S,
        )  # fmt: skip
        return decode_body(ConsumerConnectionAndLeases, answer.body)

    def _address(self, broker_name: str) -> str:
        masters = self._session.masters().items()
        address = next((address for address, name in masters if name == broker_name), None)
        if address is None:
            raise NoRouteError(f"broker {broker_name!r} has no master now")
        return address


def _ids(table: ConsumerConnection) -> frozenset[str]:
    return frozenset(connection.client_id or "" for connection in table.connection_set)


def _keeps_leases(connection: Connection) -> bool:
    """One of ours in classic mode, or a pull consumer, does not say it. PURE."""
    return connection.language is not None and keeps_leases(connection.language.name, connection.version)


def up_ms(facts: Mapping[str, str]) -> int:
    """For how long a broker has been up, by its own words and to the second; 0 if it does not say so. PURE."""
    found = _RUNTIME.search(facts.get("runtime", ""))
    if found is None:
        return 0
    days, hours, minutes, seconds = map(int, found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000


def _holders(broker_name: str, table: ConsumerConnectionAndLeases) -> dict[MessageQueue, str] | None:
    if table.leases is None:
        return None
    return {
        MessageQueue(held.topic, broker_name, queue_id): held.client_id
        for held in table.leases
        for queue_id in held.queue_ids
    }
