"""The shell of leased mode: look at topics and members, tell the machine, do what it says, keep its leases.

Three things go on at once: a *look* at routes and member lists at the start, at every notice and every 20 s; a *tick* many times a second, with which
the machine renews, fences and asks again; and the questions to brokers, each a task of its own, whose answers are told to the machine. What the
machine decides is in `balance/leased.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol

from trimtab.balance.leased import TICK_MS, LeasedRebalance
from trimtab.balance.leased_effects import (
    Abandon,
    Acquire,
    AskAge,
    Commit,
    Drain,
    EndTurn,
    Evict,
    Happened,
    LeasedEffect,
    LookAtMembers,
    Measure,
    Question,
    Recheck,
    Renew,
    TakeTurn,
    Unlock,
)
from trimtab.balance.rebalance_effects import Changed, ReadStart, ShareFailed, StartPull
from trimtab.balance.recorder import Kind
from trimtab.balance.strategies.plans import follows_load
from trimtab.balance.trust import TRUST_MS
from trimtab.client.push_canary import CanaryOrders
from trimtab.client.push_leases import Leases
from trimtab.client.push_loads import LoadLooks
from trimtab.client.push_members import MemberLists, Seen
from trimtab.client.push_recording import Records
from trimtab.client.push_rivals import Rivals
from trimtab.client.session import Session
from trimtab.errors import ProtocolError, TrimtabError
from trimtab.model import MessageQueue
from trimtab.wire.resources import RETRY_PREFIX

_log = logging.getLogger(__name__)

FAREWELL_S_MAX: Final = 2.0
"""How long the others are not told that this member leaves, while its handlers end."""
RETRY_LOOKS_MAX: Final = 60
"""A broker that makes no retry topic is not waited for for ever."""
STOOD_STILL_MS: Final = TRUST_MS // 2
"""After so long without a tick this process was stopped, or its loop was."""
CANARY_WAIT_S_MAX: Final = 0.5
BLIND_RETRY_S: Final = 0.5
"""How soon a look that could not see everything is repeated."""


class LeasedMember(Protocol):
    """Who does what the machine says with queues."""

    def topics(self) -> tuple[str, ...]:
        """What is subscribed, the retry topic included."""

    async def start_of(self, queue: MessageQueue) -> int:
        """Where to read from; negative: not now."""

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        """Reads a queue."""

    async def drain(self, queue: MessageQueue) -> None:
        """Pulls no more and starts no handler; back when those at work have ended."""

    async def commit(self, queue: MessageQueue) -> bool:
        """Writes the offset of a drained queue; whether the broker has it."""

    async def is_unchanged(self, queue: MessageQueue) -> bool:
        """Whether the group's offset at the broker is still this member's own word."""

    def let_go(self, queue: MessageQueue) -> None:
        """Keeps nothing of a queue."""

    async def abandon(self, queue: MessageQueue) -> None:
        """The queue is somebody else's: keeps nothing of it and writes nothing."""

    def go_on(self) -> None:
        """Leases may be trusted again: what waited for that may be handed out."""

    async def changed(self, changes: list[Changed]) -> None:
        """A round is over."""


class LeasedRounds:
    """See the module's own words."""

    def __init__(
        self,
        machine: LeasedRebalance,
        member: LeasedMember,
        session: Session,
        records: Records,
        *,
        every_s: float,
        on_seen: Callable[[Seen], bool],
        rivals: Rivals,
        on_rival: Callable[[str], None],
    ) -> None:
        self._machine = machine
        self._member = member
        self._session = session
        self._records = records
        self._every_s = every_s
        self._on_seen = on_seen
        self._rivals = rivals
        self._on_rival = on_rival
        self._looking_for_rivals: asyncio.Task[None] | None = None
        self._ticked_ms = session.clock.monotonic_ms()
        self._is_id_sure = True
        self._leases = Leases(session, machine.group)
        self._lists = MemberLists(session, machine.group)
        self._loads = LoadLooks(session, machine.group, self._lists)
        self._canaries = CanaryOrders(session, machine.group)
        self._asking_for_canary: asyncio.Task[None] | None = None
        self._is_due = asyncio.Event()
        self._looking = asyncio.Lock()
        self._doing: set[asyncio.Task[None]] = set()
        self._retry_looks = 0
        self._idle = asyncio.Event()
        self._drained = asyncio.Event()
        self.count = 0
        """Looks so far."""

    def soon(self) -> None:
        """Somebody joined or left, or the subscriptions changed."""
        self._is_due.set()

    async def run(self) -> None:
        """Looks and ticks until it is cancelled."""
        ticking = asyncio.get_running_loop().create_task(self._tick())
        try:
            while True:
                self._is_due.clear()
                saw_all = await self.round()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._every_s if saw_all else BLIND_RETRY_S):
                        await self._is_due.wait()
        finally:
            ticking.cancel()

    async def round(self) -> bool:
        """One look at everything; whether everything could be seen."""
        async with self._looking:
            queues, saw_all = await self._queues()
            seen = await self._lists.look(queues)
            for look in seen.lists:
                self._tell(
                    self._machine.on_members(
                        None, look.broker_name, look.members, look.sent_ms, look.answered_ms
                    )
                )
            if self._has_rival(await self._rivals.found(seen)):
                return True
            await self._look_for_canary()
            if self._on_seen(seen) and queues and seen.lists:
                self._on_view(queues, seen)
            self.count += 1
            return saw_all and seen.is_whole and not self._rivals.listed(seen)

    def _has_rival(self, where: str) -> bool:
        if where:
            self._tell(self._machine.on_rival(f"another live member has this client id, at {where}"))
            self._on_rival(where)
        return bool(where)

    async def _look_for_rivals(self) -> None:
        queues, _ = await self._queues()
        if not self._has_rival(self._rivals.listed(await self._lists.look(queues))):
            self._is_id_sure = True

    @property
    def is_id_sure(self) -> bool:
        """Whether nobody can have been started in the place of this member without its knowing."""
        return self._is_id_sure and self._now_ms() - self._ticked_ms <= STOOD_STILL_MS

    async def _make_sure_of_id(self) -> None:
        """After a pause or a lost connection another process may have been started under this id, which is granted the same leases."""
        if self.is_id_sure or not self._rivals.is_id_chosen:
            return
        self._is_id_sure = False
        if self._looking_for_rivals is None or self._looking_for_rivals.done():
            self._looking_for_rivals = asyncio.get_running_loop().create_task(self._look_for_rivals())
            self._doing.add(self._looking_for_rivals)
            self._looking_for_rivals.add_done_callback(self._doing.discard)
        await asyncio.wait([self._looking_for_rivals])

    async def _look_for_canary(self) -> None:
        """Before its first share a member waits a moment for the order; later no look waits for name servers."""
        if self._asking_for_canary is None or self._asking_for_canary.done():
            self._asking_for_canary = self._spawn(self._follow_canary())
        if not self.count:
            await asyncio.wait([self._asking_for_canary], timeout=CANARY_WAIT_S_MAX)

    async def _follow_canary(self) -> None:
        canary = await self._canaries.now()
        self._tell(self._machine.on_canary(canary, self._now_ms()))

    def _on_view(self, queues: dict[str, tuple[MessageQueue, ...]], seen: Seen) -> None:
        effects = self._machine.on_view(
            queues, seen.members, self._now_ms(), stable=seen.stable, holders=seen.holders
        )
        self._tell(effects)

    async def move(self, queues: Iterable[MessageQueue]) -> None:
        """Queues whose offsets were set elsewhere are given up and taken anew from there."""
        for queue in queues:
            self._tell(self._machine.on_moved(queue, self._now_ms()))

    def commit_refused(self, queue: MessageQueue, epoch: int) -> None:
        """The broker has granted the queue anew since it was granted under this epoch."""
        self._tell(self._machine.on_commit_refused(queue, epoch, self._now_ms()))

    async def stop(self, wait_s_max: float, farewell: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Gives everything up in order; whether that was done in time. The others are told by `farewell` as soon as handlers are done.

        Not later, because they look for free queues only then. Not earlier, because a member that is not listed cannot renew its leases.
        """
        self._tell(self._machine.on_stop(self._now_ms()))
        ticking = asyncio.get_running_loop().create_task(self._tick())
        try:
            async with asyncio.timeout(wait_s_max):
                with suppress(TimeoutError):
                    async with asyncio.timeout(FAREWELL_S_MAX):
                        await self._drained.wait()
                self._machine.on_farewell()
                await farewell()
                await self._idle.wait()
        except TimeoutError:
            return False
        finally:
            ticking.cancel()
        return True

    async def close(self) -> None:
        """Ends what is under way."""
        doing = list(self._doing)
        for task in doing:
            task.cancel()
        await asyncio.gather(*doing, return_exceptions=True)

    # --- looking ----------------------------------------------------------------------------------------------

    async def _queues(self) -> tuple[dict[str, tuple[MessageQueue, ...]], bool]:
        queues: dict[str, tuple[MessageQueue, ...]] = {}
        saw_all = True
        for topic in self._member.topics():
            try:
                route = self._session.route_now(topic) or await self._session.refresh_route(topic)
                queues[topic] = route.readable
            except TrimtabError as error:
                saw_all = False
                if not topic.startswith(RETRY_PREFIX):
                    _log.warning("%s cannot share %s: %s", self._machine.group, topic, error)
        return queues, await self._sees_all_retries(queues) and saw_all

    async def _sees_all_retries(self, queues: dict[str, tuple[MessageQueue, ...]]) -> bool:
        """The retry topic of a new group appears at one broker after the other, and who sees less of it than others shares wrongly."""
        retries = [topic for topic in queues if topic.startswith(RETRY_PREFIX)]
        brokers = {queue.broker_name for found in queues.values() for queue in found}
        for topic in retries:
            if {
                queue.broker_name for queue in queues[topic]
            } < brokers and self._retry_looks < RETRY_LOOKS_MAX:
                self._retry_looks += 1
                with suppress(TrimtabError):
                    queues[topic] = (await self._session.refresh_route(topic)).readable
                return {queue.broker_name for queue in queues[topic]} == brokers
        return True

    async def _tick(self) -> None:
        while True:
            now_ms = self._now_ms()
            self._is_id_sure, self._ticked_ms = self.is_id_sure, now_ms
            for listing in self._leases.listings():
                if listing.was_lost:
                    self._is_id_sure = False
                    self._tell(self._machine.on_connection_lost(listing.broker_name, now_ms))
                if listing.heard_ms is not None:
                    self._tell(self._machine.on_listed(listing.broker_name, listing.heard_ms))
            self._tell(self._machine.on_tick(now_ms))
            self._member.go_on()
            await asyncio.sleep(TICK_MS / 1000)

    # --- doing ------------------------------------------------------------------------------------------------

    def _tell(self, effects: list[LeasedEffect]) -> None:
        """Records what is to be recorded, and sets the rest going."""
        changes = []
        for effect in effects:
            if isinstance(effect, Happened):
                self._records.note(effect)
                if effect.kind is Kind.MISFIT:
                    _log.warning(
                        "the settings of strategy %s do not fit group %s as it is: %s; queues are shared without them where they"
                        " cannot be used",
                        effect.detail,
                        self._machine.group,
                        effect.cause,
                    )
            elif isinstance(effect, Changed):
                changes.append(effect)
            elif isinstance(effect, ShareFailed):
                _log.error(
                    "strategy %s failed for %s (%s); what is held stays",
                    effect.strategy,
                    self._machine.group,
                    effect.reason,
                )
            else:
                self._spawn(self._do(effect))
        if changes:
            self._spawn(self._member.changed(changes))
        _show(self._idle, self._machine.is_idle)
        _show(self._drained, self._machine.is_drained)

    async def _do(self, effect: LeasedEffect) -> None:
        if isinstance(effect, StartPull):
            await self._member.begin(effect.queue, effect.offset)
        elif isinstance(effect, Abandon):
            await self._member.abandon(effect.queue)
        elif isinstance(effect, EndTurn):
            with suppress(TrimtabError):  # it ends by itself when nobody renews it
                await self._leases.unlock(effect.broker_name, [effect.turn])
        elif not isinstance(effect, Changed | ShareFailed | Happened):
            try:
                effects = await self._ask(effect)
            except TrimtabError as error:
                _log.info("%s of %s: %s", type(effect).__name__, self._machine.group, error)
                effects = self._machine.on_failed(
                    effect,
                    self._now_ms(),
                    may_have_happened=error.indeterminate or isinstance(error, ProtocolError),
                )
            self._tell(effects)

    async def _ask(self, question: Question) -> list[LeasedEffect]:
        if isinstance(question, Acquire | Renew):
            await self._make_sure_of_id()
        machine, sent_ms = self._machine, self._now_ms()
        if isinstance(question, Acquire):
            granted, epochs = await self._leases.lock(question.broker_name, question.queues)
            return machine.on_acquired(question, granted, sent_ms, self._now_ms(), epochs=epochs)
        if isinstance(question, Renew):
            granted, epochs = await self._leases.lock(question.broker_name, question.queues)
            return machine.on_renewed(question, granted, sent_ms, self._now_ms(), epochs=epochs)
        if isinstance(question, Unlock):
            for queue in question.queues:
                self._member.let_go(queue)
            await self._leases.unlock(question.broker_name, question.queues)
            return machine.on_unlocked(question, self._now_ms())
        if isinstance(question, Evict):
            await self._leases.unlock(question.broker_name, question.queues, owner=question.member)
            effects = machine.on_evicted(question, self._now_ms())
            if effects:
                text = "%s is gone without goodbye: its queues at %s are free"
                _log.warning(text, question.member, question.broker_name)
            return effects
        if isinstance(question, LookAtMembers | AskAge):
            return await self._look_at(question)
        if isinstance(question, Measure | TakeTurn):
            return await self._follow_load(question)
        return await self._ask_member(question)

    async def _look_at(self, question: LookAtMembers | AskAge) -> list[LeasedEffect]:
        machine, broker_name, sent_ms = self._machine, question.broker_name, self._now_ms()
        if isinstance(question, AskAge):
            up_ms = await self._lists.lease_memory_ms(broker_name)
            return machine.on_age(question, up_ms, self._now_ms())
        members = await self._lists.at(broker_name)
        return machine.on_members(question, broker_name, members, sent_ms, self._now_ms())

    async def _follow_load(self, question: Measure | TakeTurn) -> list[LeasedEffect]:
        machine, sent_ms = self._machine, self._now_ms()
        if isinstance(question, TakeTurn):
            granted, _ = await self._leases.lock(question.broker_name, [question.turn])
            return machine.on_turn(question, is_granted=question.turn in granted, now_ms=self._now_ms())
        queues, _ = await self._queues()
        asks_members = follows_load(machine.planner)
        ends, holders = await asyncio.gather(
            self._loads.ends(), self._loads.holders(queues, asks_members=asks_members)
        )
        return machine.on_measured(question, ends, holders, sent_ms, self._now_ms())

    async def _ask_member(self, question: ReadStart | Recheck | Drain | Commit) -> list[LeasedEffect]:
        machine, member, queue = self._machine, self._member, question.queue
        if isinstance(question, ReadStart):
            return machine.on_start(question, await member.start_of(queue), self._now_ms())
        if isinstance(question, Recheck):
            is_unchanged = await member.is_unchanged(queue)
            return machine.on_rechecked(question, is_unchanged=is_unchanged, now_ms=self._now_ms())
        if isinstance(question, Drain):
            await member.drain(queue)
            return machine.on_drained(question, self._now_ms())
        is_written = await member.commit(queue)
        return machine.on_committed(question, is_written=is_written, now_ms=self._now_ms())

    def _spawn(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(doing)
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)
        return task

    def _now_ms(self) -> int:
        return self._session.clock.monotonic_ms()


def _show(event: asyncio.Event, is_so: bool) -> None:  # noqa: FBT001 - it is what is shown
    if is_so:
        event.set()
    else:
        event.clear()
