"""Whether another live process has this member's client id: both would be granted the same leases, because brokers tell members by their ids.

A list of members shows an id twice for two reasons: another process has it, or a connection of this one is half-open, and the broker has not noticed yet
(up to two minutes on Apache's). They are told apart in three steps. A connection from an address from which this process itself spoke lately is its own. If
addresses are changed on the way, so many connections as this process had lately count as its own. Of what is left the broker is asked to reach the
member with this id (GET_CONSUMER_RUNNING_INFO): who answers with another mark of life than ours is alive and not us. What does not answer is no
proof, and is asked about again.

A member that comes asks before its first heartbeat, when only others can answer, and refuses to start. Later, of two the one that the broker does not reach stops.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from trimtab.client.push_members import MemberLists, Seen
from trimtab.client.session import Session
from trimtab.errors import (
    ClientIdTakenError,
    ConnectionLostError,
    ConsumeTimeoutError,
    RequestTimeoutError,
    TrimtabError,
)
from trimtab.wire.bodies import ConsumerRunningInfo
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.callbacks import GetConsumerRunningInfo

_log = logging.getLogger(__name__)

LIFE: Final = "trimtab.life"
"""A property of what a member tells of itself: which process speaks."""
REACH_S: Final = 2.0
"""How long a live member may take to answer."""
LEAVING_S: Final = 3.0
"""How long one that came before may take to leave: a restart begins before the old process is quite gone."""
LOOK_EVERY_S: Final = 0.25


def not_mine(namesakes: Iterable[str], own: Collection[str]) -> tuple[str, ...]:
    """Of the addresses from which a broker has connections under my id, those that are not mine. PURE."""
    found = Counter(namesakes)
    mine = [address for address in found if address in own]
    if mine:
        return tuple(address for address in found if address not in own)
    # Somebody on the way changes addresses. As many as were mine are mine, nobody can tell which.
    addresses = sorted(found.elements())
    return tuple(addresses[len(own) :])


class Rivals:
    """See the module's own words."""

    def __init__(self, session: Session, group: str, life: str) -> None:
        self._session = session
        self._group = group
        self._life = life
        self._lists = MemberLists(session, group)

    async def refuse_second(self) -> None:
        """Raises `ClientIdTakenError` if a live member has this id. Call it before the first heartbeat."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LEAVING_S
        while (where := await self._living()) is not None:
            if loop.time() >= deadline:
                raise ClientIdTakenError(
                    f"client id {self._session.client_id!r} of group {self._group!r} is in use: a live member answers from {where};"
                    " stop it, or give each member a client_id of its own"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    async def _living(self) -> str | None:
        """From where a member with this id answers."""
        for address, name in self._session.masters().items():
            try:
                namesakes = await self._lists.namesakes_at(name)
            except TrimtabError:
                continue  # nobody of the group is there, or the broker is away: it lists nobody
            if namesakes and await self._answers(address):
                return ", ".join(namesakes)
            if namesakes:
                _log.warning(
                    "%s still lists client id %s of group %s from %s, but nobody answers there: taken for a connection of one that is gone",
                    name, self._session.client_id, self._group, ", ".join(namesakes),
                )  # fmt: skip
        return None

    async def _answers(self, address: str) -> bool:
        """Anything but silence is an answer: one that is about to leave has no better one."""
        try:
            await self._reach(address)
        except (ConsumeTimeoutError, RequestTimeoutError, ConnectionLostError):
            return False
        except TrimtabError as error:
            _log.info("a member with the id of this one: %s", error)
        return True

    async def found(self, seen: Seen) -> str:
        """Where a live member with this id was reached; nothing if none was. Raises nothing."""
        for address, others in self._others(seen):
            try:
                life = await self._reach(address)
            except TrimtabError as error:
                _log.info("who else has client id %s is not known: %s", self._session.client_id, error)
                continue
            if life != self._life:
                return ", ".join(others)
            _log.warning("%s is the client id of another process too, at %s", self._session.client_id, others)
        return ""

    def may_have(self, seen: Seen) -> bool:
        """Whether a list shows this id for somebody else, alive or not."""
        return bool(self._others(seen))

    def _others(self, seen: Seen) -> list[tuple[str, tuple[str, ...]]]:
        """The brokers, in the order of their names, that list this id from elsewhere, and from where."""
        found = []
        for address, name in sorted(self._session.masters().items(), key=lambda pair: pair[1]):
            others = not_mine(seen.namesakes.get(name, ()), self._session.own_addresses(address))
            if others:
                found.append((address, others))
        return found

    async def _reach(self, address: str) -> str:
        """The mark of life of whoever the broker reaches under this id."""
        header = GetConsumerRunningInfo(consumer_group=self._group, client_id=self._session.client_id)
        answer = await self._session.ask(
            address, RequestCode.GET_CONSUMER_RUNNING_INFO, header,
            asked=f"who is {self._session.client_id} of group {self._group}", timeout_s=REACH_S,
        )  # fmt: skip
        return decode_body(ConsumerRunningInfo, answer.body).properties.get(LIFE, "")
