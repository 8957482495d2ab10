"""Whether another live process has this member's client id: both would be granted the same leases, because brokers tell members by their ids.

A list of members shows an id twice for two reasons: another process has it, or a connection of this one is half-open, and the broker has not noticed yet
(up to two minutes on Apache's). They are told apart in three steps. A connection from an address from which this process itself spoke lately is its own. If
addresses are changed on the way, so many connections as this process had lately count as its own. Of what is left the broker is asked to reach the
member with this id (GET_CONSUMER_RUNNING_INFO): who answers with another mark of life than ours is alive and not us. What does not answer is no
proof, and is asked about again.

A member that comes asks before its first heartbeat, when only others can answer, and refuses to start. One that does not answer for as long as a lease is trusted
is gone, or asleep and without trust in its leases; when it wakes up and finds its id listed from elsewhere, it stops. Of two that came at the same moment the one that the broker does not reach stops.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from trimtab.balance.takeover import TAKEOVER_AFTER_MS
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
UNSURE: Final = "?"
"""Says one that was asleep, until it knows whether somebody was started in its place."""
REACH_S: Final = 2.0
"""How long a live member may take to answer."""
LEAVING_S: Final = 3.0
"""How long one that came before may take to leave: a restart begins before the old process is quite gone."""
GHOST_S: Final = TAKEOVER_AFTER_MS / 1000
"""Who has not answered for so long trusts no lease any more."""
LOOK_EVERY_S: Final = 0.25
SILENT_MS: Final = 5_000
"""One that did not answer is not waited for again so soon: who waits cannot look at its queues."""


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

    def __init__(self, session: Session, group: str, life: str, *, is_id_chosen: bool) -> None:
        self._session = session
        self._group = group
        self._life = life
        self.is_id_chosen = is_id_chosen
        """An id that we made for ourselves nobody else has."""
        self._lists = MemberLists(session, group)
        self._ghosts: set[str] = set()
        """Where nobody answered when this member started, for so long that whoever is there trusts no lease any more."""
        self._silent_until_ms: dict[str, int] = {}

    async def refuse_second(self) -> None:
        """Raises `ClientIdTakenError` if a live member has this id. Call it before the first heartbeat."""
        time_s = asyncio.get_running_loop().time
        began_s = heard_s = time_s()
        while self.is_id_chosen and (standing := await self._standing()):
            where = ", ".join(sorted({other for others in standing.values() for other in others}))
            if await self._do_any_answer(standing):
                heard_s = time_s()
                if heard_s - began_s >= LEAVING_S:
                    raise ClientIdTakenError(
                        f"client id {self._session.client_id!r} of group {self._group!r} is in use: a live member answers from {where};"
                        " stop it, or give each member a client_id of its own"
                    )
            elif time_s() - heard_s >= GHOST_S:
                self._ghosts.update(*standing.values())
                _log.warning(
                    "client id %s of group %s is still listed from %s, but nobody answers there: taken for a connection of one that is gone",
                    self._session.client_id, self._group, where,
                )  # fmt: skip
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _standing(self) -> dict[str, tuple[str, ...]]:
        """The brokers that list this id, by address, and from where."""
        standing = {}
        for address, name in self._session.masters().items():
            with suppress(
                TrimtabError
            ):  # nobody of the group is there, or the broker is away: it lists nobody
                namesakes = await self._lists.namesakes_at(name)
                if namesakes:
                    standing[address] = namesakes
        return standing

    async def _do_any_answer(self, addresses: Iterable[str]) -> bool:
        return any(await asyncio.gather(*map(self._answers, addresses)))

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
        now_ms = self._session.clock.monotonic_ms()
        for address, others in self._others(seen):
            if all(now_ms < self._silent_until_ms.get(other, 0) for other in others):
                continue
            try:
                life = await self._reach(address)
            except TrimtabError as error:
                self._note_silent(others)
                _log.info("who else has client id %s is not known: %s", self._session.client_id, error)
                continue
            if life not in (self._life, UNSURE):
                return ", ".join(others)
            _log.warning("%s is the client id of another process too, at %s", self._session.client_id, others)
        return ""

    def listed(self, seen: Seen) -> str:
        """From where else a list has this id, since this member started; nothing if from nowhere."""
        found = {other for _, others in self._others(seen) for other in others}
        return ", ".join(sorted(found - self._ghosts))

    def _others(self, seen: Seen) -> list[tuple[str, tuple[str, ...]]]:
        """The brokers, in the order of their names, that list this id from elsewhere, and from where."""
        if not self.is_id_chosen:
            return []
        found = []
        for address, name in sorted(self._session.masters().items(), key=lambda pair: pair[1]):
            others = not_mine(seen.namesakes.get(name, ()), self._session.own_addresses(address))
            if others:
                found.append((address, others))
        return found

    def _note_silent(self, addresses: Iterable[str]) -> None:
        now_ms = self._session.clock.monotonic_ms()
        known = {at: until_ms for at, until_ms in self._silent_until_ms.items() if until_ms > now_ms}
        self._silent_until_ms = known | dict.fromkeys(addresses, now_ms + SILENT_MS)

    async def _reach(self, address: str) -> str:
        """The mark of life of whoever the broker reaches under this id."""
        header = GetConsumerRunningInfo(consumer_group=self._group, client_id=self._session.client_id)
        answer = await self._session.ask(
            address, RequestCode.GET_CONSUMER_RUNNING_INFO, header,
            asked=f"who is {self._session.client_id} of group {self._group}", timeout_s=REACH_S,
        )  # fmt: skip
        return decode_body(ConsumerRunningInfo, answer.body).properties.get(LIFE, "")
