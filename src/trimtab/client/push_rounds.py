"""The rounds of a member: look at topics and members, ask the machine, do what it says. Points C6 to C9 and C11.

A round begins at the start, when a broker says that the group changed, and every 20 s as the safety net. Rounds never overlap. Where
something could not be seen (a topic without a route, a broker that does not answer) the next round comes earlier.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol

from trimtab.balance.rebalance import Rebalance
from trimtab.balance.rebalance_effects import (
    Changed,
    Drop,
    Effect,
    Lock,
    ReadStart,
    Release,
    ShareFailed,
    StartPull,
    Unlock,
    UnlockLater,
)
from trimtab.client.push_recording import Records
from trimtab.client.routes import MASTER, Route
from trimtab.client.session import Session
from trimtab.errors import NoRouteError, TrimtabError
from trimtab.io.chance import Chance
from trimtab.model import MessageQueue
from trimtab.wire.bodies import ConsumerIdList
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.consume import GroupOnly
from trimtab.wire.resources import RETRY_PREFIX

_log = logging.getLogger(__name__)

BLIND_RETRY_S_MIN: Final = 0.2


class Member(Protocol):
    """Who does what the machine says."""

    def topics(self) -> tuple[str, ...]:
        """What is subscribed, the retry topic included."""

    def note_pulls(self) -> None:
        """Tells the machine when each queue was last pulled."""

    async def start_of(self, queue: MessageQueue) -> int:
        """Where to read from; negative: not now."""

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        """Reads a queue."""

    async def drop(self, effect: Drop) -> None:
        """Gives a queue up at once."""

    async def release(self, effect: Release) -> tuple[bool, bool]:
        """Gives an ordered queue up: whether that could be done in time, and whether it had messages in hand."""

    async def lock(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """The queues whose locks were granted."""

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Tells brokers that queues are free."""

    async def changed(self, changes: list[Changed]) -> None:
        """What this member holds has changed."""


class Rounds:
    """See the module's own words."""

    def __init__(
        self,
        machine: Rebalance,
        member: Member,
        session: Session,
        chance: Chance,
        records: Records,
        *,
        every_s: float,
    ) -> None:
        self._machine = machine
        self._member = member
        self._session = session
        self._chance = chance
        self._records = records
        self._every_s = every_s
        self._is_due = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._late: set[asyncio.Task[None]] = set()
        self.count = 0
        """Rounds so far."""

    def soon(self) -> None:
        """Something may have changed: a round begins when the present one is over."""
        self._is_due.set()

    async def run(self) -> None:
        """Rounds until it is cancelled."""
        blind_s = BLIND_RETRY_S_MIN
        while True:
            self._is_due.clear()
            saw_all = await self._safe_round()
            blind_s = BLIND_RETRY_S_MIN if saw_all else min(blind_s * 2, self._every_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s if saw_all else blind_s):
                    await self._is_due.wait()

    async def _safe_round(self) -> bool:
        try:
            return await self.round()
        except Exception:  # noqa: BLE001 - a round that fails must not be the last one
            _log.exception("a round of %s failed; the next one follows soon", self._machine.group)
            return False

    async def round(self) -> bool:
        """One round over all topics; whether everything could be seen."""
        async with self._one_at_a_time:
            saw_all = True
            self._member.note_pulls()
            changes: list[Changed] = []
            for topic in self._member.topics():
                queues, members = await self._view(topic)
                saw_all = saw_all and queues is not None and members is not None
                changes += await self._do(self._machine.on_view(topic, queues, members, self._now_ms()))
            changes += await self._do(self._machine.on_subscriptions(self._member.topics(), self._now_ms()))
            if changes:
                await self._member.changed(changes)
            self.count += 1
            return saw_all

    async def move(self, queues: Iterable[MessageQueue]) -> None:
        """Queues whose offsets were set elsewhere are let go; the next round takes them from there."""
        async with self._one_at_a_time:
            for queue in queues:
                await self._do(self._machine.on_moved(queue, self._now_ms()))
        self.soon()

    async def close(self) -> None:
        """Late unlocks are not waited for: the brokers are told when the member leaves."""
        late = list(self._late)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    # --- views ------------------------------------------------------------------------------------------------

    async def _view(self, topic: str) -> tuple[tuple[MessageQueue, ...] | None, list[str] | None]:
        try:
            route = self._session.route_now(topic) or await self._session.refresh_route(topic)
        except TrimtabError as error:
            if not topic.startswith(
                RETRY_PREFIX
            ):  # it is made by the first heartbeat and known a little later
                _log.warning("%s cannot rebalance %s: %s", self._machine.group, topic, error)
            return None, None
        if self._machine.is_broadcast:
            return route.readable, []
        return route.readable, await self._members(route)

    async def _members(self, route: Route) -> list[str] | None:
        group = self._machine.group
        try:
            answer = await self._session.ask(
                self._any_broker(route), RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupOnly(consumer_group=group),
                asked=f"members of group {group!r}",
            )  # fmt: skip
            return list(decode_body(ConsumerIdList, answer.body).consumer_id_list)
        except TrimtabError as error:
            _log.info("the members of %s are not known: %s", group, error)
            return None

    def _any_broker(self, route: Route) -> str:
        """One of the topic's brokers by chance, its master if it has one."""
        brokers = [by_id for by_id in route.addresses.values() if by_id]
        if not brokers:
            raise NoRouteError(f"topic {route.topic!r} has no broker now")
        by_id = brokers[self._chance.randrange(len(brokers))]
        return by_id.get(MASTER) or next(iter(by_id.values()))

    # --- effects ----------------------------------------------------------------------------------------------

    async def _do(self, effects: list[Effect]) -> list[Changed]:
        """Does them all and what follows from them: what is given up first, then what is taken."""
        changes: list[Changed] = []
        while effects:
            leaving = [effect for effect in effects if isinstance(effect, Drop | Release)]
            taking = [effect for effect in effects if not isinstance(effect, Drop | Release | Changed)]
            changes += [effect for effect in effects if isinstance(effect, Changed)]
            effects = await self._all(self._do_one(effect) for effect in leaving)
            effects += await self._all(self._do_one(effect) for effect in taking)
        return changes

    async def _all(self, doings: Iterable[Coroutine[Any, Any, list[Effect]]]) -> list[Effect]:
        return [effect for effects in await asyncio.gather(*doings) for effect in effects]

    async def _do_one(self, effect: Effect) -> list[Effect]:
        member, machine = self._member, self._machine
        if isinstance(effect, Drop):
            self._records.dropped(effect)
            await member.drop(effect)
        elif isinstance(effect, Release):
            began_ms = self._now_ms()
            was_released, has_messages = await member.release(effect)
            self._records.released(effect, self._now_ms() - began_ms, was_released=was_released)
            return machine.on_released(
                effect, was_released=was_released, has_messages=has_messages, now_ms=self._now_ms()
            )
        elif isinstance(effect, Lock):
            granted = await member.lock(effect.queues)
            self._records.refused(effect, granted)
            return machine.on_locked(effect, granted, self._now_ms())
        elif isinstance(effect, ReadStart):
            return machine.on_start(effect, await member.start_of(effect.queue), self._now_ms())
        elif isinstance(effect, StartPull):
            self._records.began(effect)
            await member.begin(effect.queue, effect.offset)
        elif isinstance(effect, Unlock):
            await member.unlock([effect.queue])
        elif isinstance(effect, UnlockLater):
            self._unlock_later(effect)
        elif isinstance(effect, ShareFailed):
            _log.error(
                "strategy %s failed for topic %s of %s (%s); what is held stays",
                effect.strategy, effect.topic, machine.group, effect.reason,
            )  # fmt: skip
        return []

    def _unlock_later(self, effect: UnlockLater) -> None:
        async def unlock() -> None:
            await asyncio.sleep(effect.after_ms / 1000)
            async with self._one_at_a_time:
                await self._do(self._machine.on_unlock_due(effect.queue))

        task = asyncio.get_running_loop().create_task(unlock())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def _now_ms(self) -> int:
        return self._session.clock.monotonic_ms()
