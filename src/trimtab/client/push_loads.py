"""What strategies that follow load need to know: how far the group is in each queue, and who holds what.

Offsets come from every broker's consume stats. Who holds what our own brokers say beside their list of members. Apache's do not; there the
members are asked, through a broker, as tools do it, and answer with nothing but what they hold. A group with many members is not asked that way, and one
member that does not answer makes the picture useless: a queue of its would look free.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from trimtab.balance.holders import Told
from trimtab.balance.loads import Ends
from trimtab.client.holdings import PROPERTY as HOLDINGS
from trimtab.client.holdings import read_holdings
from trimtab.client.push_members import MemberLists, Seen
from trimtab.client.session import Session
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.wire.bodies import ConsumerRunningInfo, ConsumeStats
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import GetConsumeStats
from trimtab.wire.headers.callbacks import GetHoldings

_log = logging.getLogger(__name__)

ASK_S: Final = 2.0
MEMBERS_ASKED_MAX: Final = 64


class LoadLooks:
    """Asks brokers and members of one group."""

    def __init__(self, session: Session, group: str, lists: MemberLists) -> None:
        self._session = session
        self._group = group
        self._lists = lists
        self._has_told = False

    async def ends(self) -> dict[MessageQueue, Ends]:
        """How far each queue and the group in it are, of all brokers that answer."""
        masters = self._session.masters()
        found: dict[MessageQueue, Ends] = {}
        answers = await asyncio.gather(*(self._stats(address) for address in masters), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, TrimtabError):
                _log.info("the progress of %s is not known everywhere: %s", self._group, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found |= answer
        return found

    async def _stats(self, address: str) -> dict[MessageQueue, Ends]:
        answer = await self._session.ask(
            address, RequestCode.GET_CONSUME_STATS, GetConsumeStats(consumer_group=self._group),
            asked=f"progress of group {self._group!r}", timeout_s=ASK_S,
        )  # fmt: skip
        table = decode_body(ConsumeStats, answer.body).offset_table
        return {queue: Ends(at.broker_offset, at.consumer_offset) for queue, at in table.items()}

    async def holders(self, queues: Mapping[str, Iterable[MessageQueue]], *, asks_members: bool) -> Told:
        """By broker, who holds what there, where somebody can tell."""
        seen = await self._lists.look(queues)
        silent = [look.broker_name for look in seen.lists if look.broker_name not in seen.holders]
        if not silent or not asks_members:
            return seen.holders
        held = await self._held_by_members(seen)
        if held is None:
            return seen.holders
        there: dict[str, dict[MessageQueue, str]] = {name: {} for name in silent}
        for queue, member in held.items():
            if queue.broker_name in there:
                there[queue.broker_name][queue] = member
        return {**seen.holders, **there}

    async def _held_by_members(self, seen: Seen) -> dict[MessageQueue, str] | None:
        members = sorted(seen.members - {self._session.client_id})
        if len(members) > MEMBERS_ASKED_MAX:
            if not self._has_told:
                _log.warning(
                    "%s has more than %d members, too many to ask each what it holds: queues are shared by their number, not by load",
                    self._group, MEMBERS_ASKED_MAX,
                )  # fmt: skip
            self._has_told = True
            return None
        held: dict[MessageQueue, str] = {}
        with suppress(TrimtabError):
            for member, queues in zip(members, await self._ask_all(members, seen), strict=True):
                held.update(dict.fromkeys(queues, member))
            return held
        return None

    async def _ask_all(self, members: list[str], seen: Seen) -> list[list[MessageQueue]]:
        names = {name: address for address, name in self._session.masters().items()}
        listed = {
            member: names[look.broker_name]
            for look in seen.lists
            if look.broker_name in names
            for member in look.members
        }
        return await asyncio.gather(*(self._held_by(member, listed[member]) for member in members))

    async def _held_by(self, member: str, address: str) -> list[MessageQueue]:
        header = GetHoldings(consumer_group=self._group, client_id=member, holdings_only=True)
        answer = await self._session.ask(
            address, RequestCode.GET_CONSUMER_RUNNING_INFO, header,
            asked=f"holdings of {member} in {self._group!r}", timeout_s=ASK_S,
        )  # fmt: skip
        told = decode_body(ConsumerRunningInfo, answer.body).properties.get(HOLDINGS)
        return [holding.queue for holding in read_holdings(told)]
