"""What a push consumer does with the queues that it holds: pull, hand to the handler, keep the offset, give back.

It is the `Member` of `push_rounds` and the `PullOwner` of the pulls. Everything happens on one loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from trimtab.balance.ordered import QueueLock
from trimtab.balance.progress import FlowLimits, Load, limits_of_queue, why_to_hold
from trimtab.balance.rebalance import Rebalance
from trimtab.balance.rebalance_effects import Changed, Drop, Release, Why
from trimtab.balance.start import StartRule
from trimtab.client.pulls import QueuePulls
from trimtab.client.pulls_values import OffsetMoved, Pulled, Riding, Room
from trimtab.client.push_ending import Task
from trimtab.client.push_locks import Locks
from trimtab.client.push_offsets import BrokerOffsets, Offsets, start_of
from trimtab.client.push_queue import HeldQueue, Work
from trimtab.client.push_settings import Consuming
from trimtab.client.push_stats import Counts, TopicStats
from trimtab.client.session import Session
from trimtab.client.subscriptions import Subscriptions, wanted_of
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.settings import Pulling
from trimtab.wire.resources import RETRY_PREFIX

_log = logging.getLogger(__name__)

OnQueues = Callable[[tuple[MessageQueue, ...]], Awaitable[None] | None]
ANSWERS_AT_ONCE_BYTES_MAX = 4 << 20
PULL_BYTES_MIN = 4 << 10
CROWD = 64
CROWD_RECHECK_S = 0.005
STORED_ANYWAY_EVERY = 12
"""Offsets that did not change are stored again each so many times, for brokers that lost them."""


class Since(Protocol):
    """What a machine knows of a queue it holds."""

    since_ms: int


class Dispatcher(Protocol):
    """Hands work to the handler."""

    @property
    def workers(self) -> int: ...

    def submit(self, work: Iterable[Work]) -> None: ...

    def go_on(self, held: HeldQueue) -> None: ...

    async def send_back_overdue(self, held: HeldQueue) -> None: ...

    async def close(self, drain_s: float) -> None: ...

    def without(self, task: Task | None) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What the user wants to hear of."""

    on_assigned: OnQueues | None = None
    on_revoked: OnQueues | None = None
    on_lost: OnQueues | None = None


class Engine:
    """See the module's own words."""

    def __init__(
        self,
        session: Session,
        machine: Rebalance,
        subscriptions: Subscriptions,
        *,
        rule: StartRule,
        offsets: Offsets,
        consuming: Consuming,
        pulling: Pulling,
        callbacks: Callbacks,
        batch_messages_max: int,
    ) -> None:
        self.machine = machine
        self.held: dict[MessageQueue, HeldQueue] = {}
        self.load = Load()
        self.room = Room(pulling.held_bytes_max)
        self.stats: dict[str, TopicStats] = {}
        self.dispatcher: Dispatcher
        self.on_offset_moved: Callable[[OffsetMoved], None] = lambda _: None
        """Told when reading goes on elsewhere, because the broker does not have the next offset."""
        self.is_paused = False
        self.is_ordered = machine.needs_lock
        self._session = session
        self._subscriptions = subscriptions
        self._rule = rule
        self._offsets = offsets
        self._brokers = BrokerOffsets(session, machine.group)
        self._locks = Locks(session, machine.group)
        self._consuming = consuming
        messages_max = min(pulling.pull_messages_max, consuming.limits.queue_messages_max)
        self._pulling = replace(pulling, pull_messages_max=messages_max)
        self._callbacks = callbacks
        self._batch_messages_max = batch_messages_max
        self._held_back: dict[MessageQueue, HeldQueue] = {}
        self._is_recheck_due = False
        self._stored_times = 0

    # --- what the rounds want ---------------------------------------------------------------------------------

    def topics(self) -> tuple[str, ...]:
        return self._subscriptions.topics

    def in_flight(self, queue: MessageQueue) -> int:
        """Messages of a queue that are pulled and not finished."""
        held = self.held.get(queue)
        return 0 if held is None else held.progress.messages

    def holding(self, queue: MessageQueue) -> Since | None:
        """Since when a queue is held, if it is."""
        return self.machine.holding(queue)

    def note_pulls(self) -> None:
        now_ms = self._session.clock.monotonic_ms()
        for queue, held in self.held.items():
            if held.pulls is not None:
                self.machine.on_pull(queue, now_ms if held.pulls.is_held_back else held.pulls.last_pull_ms)

    async def start_of(self, queue: MessageQueue) -> int:
        return await start_of(queue, self._rule, self._offsets, self._brokers)

    async def begin(self, queue: MessageQueue, offset: int) -> None:
        subscription = self._subscriptions.get(queue.topic)
        if subscription is None:
            return  # unsubscribed while it was being taken; the end of the round lets it go
        held = HeldQueue(queue, offset, self.load, self._lock_of(queue), self._counts_of(queue.topic))
        held.pulls = QueuePulls(
            self._session, self, self.machine.group, queue, offset, wanted_of(subscription),
            pulling=self._pulling_now(), room=self.room,
        )  # fmt: skip
        self.held[queue] = held
        await self._tell(self._callbacks.on_assigned, [queue], "on_assigned")
        if not held.is_leaving:
            if self.is_paused:
                held.pulls.stop()
            held.pulls.start()

    def _lock_of(self, queue: MessageQueue) -> QueueLock | None:  # noqa: ARG002 - leased mode wants to know
        """What a handler needs before it may be called for the queue, just granted."""
        if not self.machine.needs_lock:
            return None
        lock = QueueLock()
        lock.granted(self._session.clock.monotonic_ms())
        return lock

    def _pulling_now(self) -> Pulling:
        """Pulls of many queues may all be answered at once: each asks for so little that a broker has no pile of unread answers."""
        queues = max(len(self.held) + 1, len(self.machine))
        share_bytes = ANSWERS_AT_ONCE_BYTES_MAX // (queues * self._pulling.depth_max)
        bytes_max = max(PULL_BYTES_MIN, min(self._pulling.pull_bytes_max, share_bytes))
        return replace(self._pulling, pull_bytes_max=bytes_max)

    async def drop(self, effect: Drop) -> None:
        held = self.held.pop(effect.queue, None)
        if held is None:
            return
        held.drop()
        self._held_back.pop(effect.queue, None)
        is_lost = effect.why is Why.SILENT
        callback = self._callbacks.on_lost if is_lost else self._callbacks.on_revoked
        await self._tell(callback, [effect.queue], "on_lost" if is_lost else "on_revoked")
        await self._offsets.write(effect.queue, held.offset_to_store)
        held.forget()
        self.recheck()

    async def release(self, effect: Release) -> tuple[bool, bool]:
        held = self.held.get(effect.queue)
        if held is None:
            return True, False
        held.leave()
        self._held_back.pop(effect.queue, None)
        try:
            async with asyncio.timeout(effect.wait_ms_max / 1000):
                await held.turn.acquire()
        except TimeoutError:
            held.unlock_tries += 1
            _log.warning(
                "%s must be given up, but its handler is at work since long; tried %d time(s)", held.queue, held.unlock_tries
            )  # fmt: skip
            return False, held.progress.messages > 0
        held.is_dropped = True
        held.turn.release()
        self.held.pop(effect.queue, None)
        await self._tell(self._callbacks.on_revoked, [effect.queue], "on_revoked")
        await self._offsets.write(effect.queue, held.offset_to_store)
        held.forget()
        # Java unlocks later when messages are in hand, because their handler may run; here none does any more.
        return True, False

    async def lock(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        answers = await self._locks.lock(queues)
        return [queue for queue, is_granted in answers.items() if is_granted]

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        await self._locks.unlock(queues)

    async def changed(self, changes: list[Changed]) -> None:
        for change in changes:
            _log.info("%s", change)
            self._subscriptions.bump(change.topic, self._session.clock.wall_ms())
        await self._session.send_heartbeats()

    # --- what the pulls bring ---------------------------------------------------------------------------------

    def on_pulled(self, pulled: Pulled) -> None:
        held = self.held.get(pulled.queue)
        if held is None or held.is_leaving:
            pulled.release()
            return
        # An answer that cannot be read is raised: the pulls ask for it again, and hand on nothing behind it before.
        work = held.take_in(pulled, self._batch_messages_max)
        held.counts.pulls += 1
        held.counts.pulled_messages += len(pulled.messages)
        if work:
            self.dispatcher.submit(work)
            self._check_flow(held)

    def on_moved(self, moved: OffsetMoved) -> int | None:
        """What is in hand stays so, and holds the offset; only what comes next is read from elsewhere."""
        held = self.held.get(moved.queue)
        if held is None or held.is_leaving:
            return None
        if moved.offset >= moved.asked:
            held.progress.passed(moved.offset)
            _log.warning(
                "%s: offsets %d to %d of %s were deleted before they were read, %d message(s) at most", self.machine.group,
                moved.asked, moved.offset - 1, moved.queue, moved.offset - moved.asked,
            )  # fmt: skip
        else:
            held.go_back(moved.offset)
        self.on_offset_moved(moved)
        return moved.offset

    def on_trouble(self, queue: MessageQueue, error: TrimtabError) -> None:
        level = logging.INFO if queue.topic.startswith(RETRY_PREFIX) else logging.WARNING
        _log.log(level, "pull of %s for %s: %s", queue, self.machine.group, error)

    def riding(self, queue: MessageQueue) -> Riding | None:
        held = self.held.get(queue)
        if held is None or held.is_leaving or self.machine.is_broadcast or held.progress.safe_offset <= 0:
            return None
        return Riding(held.progress.safe_offset)

    # --- flow control -----------------------------------------------------------------------------------------

    def finished(self) -> None:
        """Some work has ended: there is more room."""
        if self._held_back and not self._is_recheck_due:
            # Together with what else ends in this turn of the loop; a crowd of waiting queues is not looked at all the time.
            self._is_recheck_due = True
            delay_s = 0.0 if len(self._held_back) < CROWD else CROWD_RECHECK_S
            asyncio.get_running_loop().call_later(delay_s, self.recheck)

    def recheck(self) -> None:
        """Pulls go on where nothing is in the way any more."""
        self._is_recheck_due = False
        for held in list(self._held_back.values()):
            self._check_flow(held)

    def pause(self) -> None:
        """Nothing is pulled until `resume`; what was pulled is still handled."""
        self.is_paused = True
        for held in self.held.values():
            if held.pulls is not None:
                held.pulls.stop()

    def resume(self) -> None:
        """Goes on after `pause`."""
        self.is_paused = False
        for held in self.held.values():
            if held.pulls is not None and held.why_held_back is None:
                held.pulls.go()

    def _check_flow(self, held: HeldQueue) -> None:
        pulls = held.pulls
        if pulls is None or held.is_leaving:
            return
        limits = self._limits_of(held.queue.topic)
        why = why_to_hold(held.progress, self.load, limits, is_ordered=self.is_ordered)
        if why is not None:
            if held.why_held_back is None:
                pulls.stop()
                self._held_back[held.queue] = held
                _log.debug("%s is not pulled: %s", held.queue, why)
        elif self._held_back.pop(held.queue, None) is not None and not self.is_paused:
            pulls.go()
        held.why_held_back = why

    def _limits_of(self, topic: str) -> FlowLimits:
        limits = self._consuming.limits
        if limits.topic_messages_max is None and limits.topic_bytes_max is None:
            return limits  # the usual case, and many queues need not be counted for it
        return limits_of_queue(limits, sum(queue.topic == topic for queue in self.held))

    # --- chores -----------------------------------------------------------------------------------------------

    def _counts_of(self, topic: str) -> Counts:
        stats = self.stats.get(topic)
        if stats is None:
            stats = self.stats[topic] = TopicStats()
        return stats.counts

    async def store_offsets(self) -> None:
        """Stores how far the queues have come, those that moved; now and then all of them."""
        for stats in self.stats.values():
            stats.mark(self._session.clock.monotonic_ms())
        self._stored_times += 1
        store_all = self.machine.is_broadcast or self._stored_times % STORED_ANYWAY_EVERY == 0
        offsets: dict[MessageQueue, int] = {}
        for queue, held in self.held.items():
            offset = held.offset_to_store
            if self._may_store(held) and (store_all or offset != held.stored_offset):
                offsets[queue] = held.stored_offset = offset
        if offsets:
            await self._offsets.write_all(offsets)

    def _may_store(self, held: HeldQueue) -> bool:
        return not held.is_leaving

    async def send_back_overdue(self) -> None:
        """Looks for handlers that take too long."""
        for held in list(self.held.values()):
            await self.dispatcher.send_back_overdue(held)

    async def renew_locks(self) -> None:
        """Asks for all locks again, every 20 s; a lock that is not renewed is not trusted for long."""
        locked = [queue for queue, held in self.held.items() if held.lock is not None]
        answers = await self._locks.lock(locked)
        now_ms = self._session.clock.monotonic_ms()
        lost = []
        for queue, is_granted in answers.items():
            held = self.held.get(queue)
            if held is None or held.lock is None:
                continue
            if is_granted:
                held.lock.granted(now_ms)
            elif held.lock.is_locked:
                held.lock.refused()
                lost.append(queue)
        if lost:
            _log.warning(
                "%s lost the lock of %s to another member", self.machine.group, ", ".join(map(str, lost))
            )
            await self._tell(self._callbacks.on_lost, lost, "on_lost")

    async def lock_one(self, held: HeldQueue) -> bool:
        """Tries to get the lock of a queue back."""
        if held.lock is None or held.is_leaving:
            return False
        granted = (await self._locks.lock([held.queue])).get(held.queue)
        if granted:
            held.lock.granted(self._session.clock.monotonic_ms())
        elif granted is False:
            held.lock.refused()
        return bool(granted)

    @contextmanager
    def without(self, task: Task | None) -> Iterator[None]:
        """Within it nobody waits for the handler that this task runs, if it runs one: it waits for the end itself."""
        holders = [held for held in self.held.values() if task is not None and held.is_handled_by(task)]
        for held in holders:
            held.end_work()
        try:
            with self.dispatcher.without(task):
                yield
        finally:
            for held in holders:
                held.begin_work()

    async def close(self) -> None:
        """Hands everything back: handlers end, callbacks are told, offsets are stored, locks are freed."""
        for held in self.held.values():
            held.leave()
        await self.dispatcher.close(self._consuming.drain_s_max)
        queues = list(self.held)
        await self._tell(self._callbacks.on_revoked, queues, "on_revoked")
        await self._offsets.write_all({queue: held.offset_to_store for queue, held in self.held.items()})
        if self.machine.needs_lock and queues:
            await self._locks.unlock(queues)
        for held in self.held.values():
            held.is_dropped = True
            held.forget()
        self.held.clear()

    async def _tell(self, callback: OnQueues | None, queues: Iterable[MessageQueue], name: str) -> None:
        queues = tuple(queues)
        if callback is None or not queues:
            return
        try:
            told = callback(queues)
            if told is not None:
                await self._in_time(told, name, queues)
        except Exception:  # noqa: BLE001 - it is the user's own; its failure must not cost the queues
            _log.exception("the callback %s failed for %s", name, ", ".join(map(str, queues)))

    async def _in_time(self, told: Awaitable[None], name: str, queues: tuple[MessageQueue, ...]) -> None:
        """Waits for a callback, but not for ever: the queues of others wait with it."""
        limit_s = self._consuming.callback_s_max
        task = asyncio.ensure_future(told)
        try:
            # Not a timeout around it: a callback may swallow being cancelled.
            done, _ = await asyncio.wait([task], timeout=limit_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            task.result()
            return
        task.cancel()
        _log.error(
            "the callback %s took more than %g s for %s: it is cancelled, and the queues are not waited for any longer",
            name, limit_s, ", ".join(map(str, queues)),
        )  # fmt: skip
