"""What a push consumer in leased mode does with its queues: as in classic mode, but nothing without a lease, and given up in order."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from trimtab.balance.holdings import Holding
from trimtab.balance.leased import LeasedRebalance
from trimtab.balance.ordered import QueueLock
from trimtab.client.pulls_values import Riding
from trimtab.client.push_engine import Engine, Since
from trimtab.client.push_offsets import BrokerOffsets
from trimtab.client.push_queue import HeldQueue
from trimtab.model import MessageQueue

_log = logging.getLogger(__name__)

STORE_WAIT_S_MAX: Final = 0.4
"""After a crash what was finished since the last store comes again."""


class Lease(QueueLock):
    """The lease of one queue as handlers' keeper sees it: the machine's own holding says whether it may be relied on."""

    def __init__(self, holding: Holding | None) -> None:
        super().__init__(is_locked=True)
        self._holding = holding

    def is_trusted(self, now_ms: int) -> bool:
        holding = self._holding
        return holding is not None and holding.may_hand_out(now_ms)


class LeaseRight:
    """The right to write an offset: the very holding for which the write was asked is still there, and its lease trusted."""

    def __init__(
        self, engine: "LeasedEngine", machine: LeasedRebalance, queue: MessageQueue, now_ms: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._machine = machine
        self._queue = queue
        self._now_ms = now_ms
        self._holding = machine.holding(queue)
        self.epoch = None if self._holding is None else self._holding.epoch

    def holds(self) -> bool:
        is_same = self._holding is not None and self._machine.holding(self._queue) is self._holding
        return is_same and self._machine.may_commit(self._queue, self._now_ms())

    def refused(self) -> None:
        if self.epoch is not None:
            self._engine.on_refused(self._queue, self.epoch)


class LeasedEngine(Engine):
    """See the module's own words."""

    leased: LeasedRebalance
    on_refused: Callable[[MessageQueue, int], None]
    """Called when a broker refuses an offset by the epoch of its lease."""

    def lease_by(self, machine: LeasedRebalance, *, is_ordered: bool) -> None:
        """Who says whether leases may be relied on."""
        self.leased = machine
        self.is_ordered = is_ordered
        self._offsets = self._brokers = BrokerOffsets(self._session, machine.group, self._right_to)

    def _right_to(self, queue: MessageQueue) -> LeaseRight:
        return LeaseRight(self, self.leased, queue, self._session.clock.monotonic_ms)

    def holding(self, queue: MessageQueue) -> Since | None:
        return self.leased.holding(queue)

    def _lock_of(self, queue: MessageQueue) -> QueueLock:
        return Lease(self.leased.holding(queue))

    def riding(self, queue: MessageQueue) -> Riding | None:  # noqa: ARG002 - never, whatever the queue
        """No offset rides on a pull: one that is overtaken would take the group back behind a handover."""
        return None

    async def store_offsets(self) -> None:
        """A broker that is slow does not hold up what others are told: its writes go on, and are waited for by the next ones."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STORE_WAIT_S_MAX):
                await super().store_offsets()

    def _may_store(self, held: HeldQueue) -> bool:
        """Not without a lease: somebody else may have taken the group further meanwhile."""
        if self._brokers.is_writing(held.queue):
            return False
        return super()._may_store(held) and self.leased.may_hand_out(
            held.queue, self._session.clock.monotonic_ms()
        )

    async def lock_one(self, held: HeldQueue) -> bool:
        """Leases are asked for by the machine alone."""
        return held.lock is not None and held.lock.is_trusted(self._session.clock.monotonic_ms())

    # --- what the machine wants -------------------------------------------------------------------------------

    async def drain(self, queue: MessageQueue) -> None:
        """Pulls no more and starts no handler; back when those at work have ended and the user was told."""
        held = self.held.get(queue)
        if held is None:
            return
        held.leave()
        self._held_back.pop(queue, None)
        await held.at_rest()
        await self._tell(self._callbacks.on_revoked, [queue], "on_revoked")

    async def commit(self, queue: MessageQueue) -> bool:
        """Writes the offset of a drained queue, after any other write of it that is under way."""
        held = self.held.get(queue)
        return held is None or await self._offsets.write(queue, held.offset_to_store)

    async def is_unchanged(self, queue: MessageQueue) -> bool:
        """Whether nobody has taken the group further than this member did, or set it back."""
        held = self.held.get(queue)
        if held is None:
            return False
        stored = await self._offsets.read(queue)
        return held.began_offset <= stored <= held.offset_to_store or stored == held.stored_offset

    def let_go(self, queue: MessageQueue) -> None:
        """Keeps nothing of a queue."""
        held = self.held.pop(queue, None)
        if held is not None:
            self._forget(held)

    async def abandon(self, queue: MessageQueue) -> None:
        """The queue is somebody else's: keeps nothing of it and writes nothing."""
        held = self.held.pop(queue, None)
        if held is None:
            return
        self._forget(held)
        _log.warning("%s lost %s: another member has, or may have, its lease", self.leased.group, queue)
        await self._tell(self._callbacks.on_lost, [queue], "on_lost")

    def go_on(self) -> None:
        """What waited for its lease is handed out, if that may be relied on again."""
        now_ms = self._session.clock.monotonic_ms()
        for held in self.held.values():
            if held.waiting and held.lock is not None and held.lock.is_trusted(now_ms):
                self.dispatcher.go_on(held)

    def _forget(self, held: HeldQueue) -> None:
        held.drop()
        self._held_back.pop(held.queue, None)
        held.forget()
        self.recheck()

    async def close(self) -> None:
        """What could not be given up in order is let go; its messages come again. Giving up has waited for handlers: nobody waits twice."""
        for held in self.held.values():
            held.leave()
        await self.dispatcher.close(drain_s=0)
        self._let_all_go(list(self.held))

    def _let_all_go(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self.let_go(queue)
