"""Handing messages to the handler in the order of each queue: one call at a time for a queue, under the broker's lock."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial

from trimtab.balance.ordered import (
    BREAK_MS,
    LOCK_LOST_WAIT_MS,
    LOCK_REFUSED_WAIT_MS,
    NOT_LOCKED_WAIT_MS,
    Turn,
    next_turn,
    suspend_ms,
)
from trimtab.client.push_dispatch import SLICE_MS
from trimtab.client.push_ending import NOT_A_FAILURE, Ending, Task
from trimtab.client.push_outcomes import DEAD_LETTER, Call, ConsumeLater
from trimtab.client.push_queue import HeldQueue, Work
from trimtab.client.push_retries import Retries, once_more
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.io.clock import Clock

_log = logging.getLogger(__name__)


class InOrder:
    """See the module's own words."""

    def __init__(
        self,
        call: Call,
        retries: Retries | None,
        consuming: Consuming,
        clock: Clock,
        *,
        on_finished: Callable[[], None],
        lock: Callable[[HeldQueue], Awaitable[bool]],
    ) -> None:
        self._call = call
        self._retries = retries
        self._consuming = consuming
        self._clock = clock
        self._on_finished = on_finished
        self._lock = lock
        self._room = asyncio.Semaphore(consuming.concurrency)
        self._servers: set[asyncio.Task[int]] = set()
        self._closing = asyncio.Event()
        self._is_over = False
        """Handlers that are still at work are cancelled by us."""
        self._ending = Ending()

    @property
    def _is_closing(self) -> bool:
        return self._closing.is_set()

    @property
    def workers(self) -> int:
        """How many queues are served now."""
        return len(self._servers)

    def submit(self, work: Iterable[Work]) -> None:
        """Puts work behind what its queue has."""
        for piece in work:
            held = piece.held
            held.waiting.append(piece)
            if held.server is None and not self._is_closing:
                self._begin(held)

    def go_on(self, held: HeldQueue) -> None:
        """Nothing: who serves the queue looks again."""

    async def close(self, drain_s: float) -> None:
        """Starts nothing more, waits for handlers at work so long, and ends."""
        self._closing.set()
        late = await self._ending.ended(self._servers, drain_s)
        self._is_over = True
        for task in late:
            task.cancel()
        if late:
            _log.warning("%d handlers are at work to the end; their messages will come again", len(late))
            await asyncio.wait(late, timeout=1.0)

    async def send_back_overdue(self, held: HeldQueue) -> None:
        """Nothing: order would be lost."""

    def without(self, task: Task | None) -> AbstractContextManager[None]:
        """Within it the end does not wait for the handler of this task, which waits for the end."""
        return self._ending.without(task)

    # --- servers of queues ------------------------------------------------------------------------------------

    def _begin(self, held: HeldQueue, rest_ms: int = 0) -> None:
        server = held.server = asyncio.get_running_loop().create_task(self._serve(held, rest_ms))
        self._servers.add(server)
        server.add_done_callback(partial(self._gone, held))

    def _gone(self, held: HeldQueue, server: "asyncio.Task[int]") -> None:
        """Another goes on with what is left, if the server was cancelled or something came at the last moment."""
        self._servers.discard(server)
        held.server = None
        rest_ms = suspend_ms(self._consuming.suspend_ms)
        if not server.cancelled():
            error = server.exception()
            if error is None:
                rest_ms = server.result()
            else:
                _log.error("nobody serves %s for a moment: %r", held.queue, error, exc_info=error)
        if held.waiting and not held.is_leaving and not self._is_closing:
            self._begin(held, rest_ms)

    async def _serve(self, held: HeldQueue, rest_ms: int) -> int:
        """Until nothing waits, or somebody has cancelled it: then how long the queue rests before another goes on."""
        task = asyncio.current_task()
        if rest_ms:
            await self._pause(rest_ms)
        while held.waiting and not self._is_closing:
            async with self._room:
                pause_ms = await self._some_turns(held)
            if pause_ms is None:
                return 0
            if task is not None and task.cancelling():
                return pause_ms  # whoever cancels every task of the loop waits for them to end
            await self._pause(pause_ms)
        return 0

    async def _pause(self, pause_ms: int) -> None:
        """Ends early when everything ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await self._closing.wait()

    async def _some_turns(self, held: HeldQueue) -> int | None:
        """Turns until there is nothing left or something is in the way; how long to wait then, None for no more."""
        began_ms = yielded_ms = self._clock.monotonic_ms()
        while held.waiting and not self._is_closing:
            turn = next_turn(
                is_dropped=held.is_leaving, lock=held.lock, began_ms=began_ms, now_ms=self._clock.monotonic_ms()
            )  # fmt: skip
            if turn is Turn.STOP:
                return None
            if turn is Turn.BREAK:
                return BREAK_MS
            if turn is Turn.LOCK_FIRST:
                return await self._lock_first(held)
            pause_ms = await self._turn(held, held.waiting[0])
            if pause_ms is not None:
                return pause_ms
            if self._clock.monotonic_ms() - yielded_ms > SLICE_MS:
                await asyncio.sleep(0)
                yielded_ms = self._clock.monotonic_ms()
        return 0

    async def _lock_first(self, held: HeldQueue) -> int:
        _log.warning("%s is not locked, or no longer; its messages wait", held.queue)
        was_locked = held.lock is not None and held.lock.is_locked
        await self._pause(LOCK_LOST_WAIT_MS if was_locked else NOT_LOCKED_WAIT_MS)
        return BREAK_MS if await self._lock(held) else LOCK_REFUSED_WAIT_MS

    async def _turn(self, held: HeldQueue, work: Work) -> int | None:
        """One call of the handler; how long the queue rests after that, if it does."""
        async with held.turn:
            held.begin_work()
            try:
                return await self._turn_of(held, work)
            finally:
                held.end_work()

    async def _turn_of(self, held: HeldQueue, work: Work) -> int | None:
        counts = held.counts
        if held.is_leaving:
            return None
        work.started_ms = self._clock.monotonic_ms()
        try:
            await self._call(work.received)
        except BaseException as raised:
            is_cancelled_by_us = self._is_over and isinstance(raised, asyncio.CancelledError)
            if is_cancelled_by_us or isinstance(raised, NOT_A_FAILURE):
                raise
            error: BaseException | None = raised
        else:
            error = None
        held.consumed_ms = self._clock.monotonic_ms()
        counts.handler_calls += 1
        counts.handler_ms += held.consumed_ms - work.started_ms
        if held.is_dropped or work.is_done:
            return None
        if error is None:
            counts.consumed += work.messages
            self._finish(held, work)
            return None
        counts.failed += work.messages
        return await self._settle(held, work, error)

    def _finish(self, held: HeldQueue, work: Work) -> None:
        held.waiting.popleft()
        held.finish(work)
        self._on_finished()

    async def _settle(self, held: HeldQueue, work: Work, error: BaseException) -> int | None:
        """Whatever goes wrong with it, the message is tried again."""
        try:
            return await self._failed(held, work, error)
        except Exception:  # noqa: BLE001 - whatever it is, it must not cost the message
            _log.exception(
                "the failure of %s in %s could not be settled; it is tried again", work, held.queue
            )
            return suspend_ms(self._consuming.suspend_ms)

    async def _failed(self, held: HeldQueue, work: Work, error: BaseException) -> int | None:
        received, rest_ms, is_dead = work.received, self._consuming.suspend_ms, False
        if isinstance(error, ConsumeLater):
            is_dead = error.delay_level == DEAD_LETTER
            received = received[min(max(error.consumed, 0), len(received)) :]
            rest_ms = rest_ms if error.after_s is None else int(error.after_s * 1000)
        else:
            _log.warning(
                "the handler failed with %d message(s) of %s from offset %d on: %r; the queue rests for %d ms",
                work.messages, held.queue, work.first, error, rest_ms, exc_info=error,
            )  # fmt: skip
        left = await (self._left_of_dead(held, received) if is_dead else self._left_to_try(received))
        if held.is_dropped or work.is_done:
            return None
        if not left:
            self._finish(held, work)
            return None
        held.keep(work, left)
        return suspend_ms(rest_ms)

    async def _left_to_try(self, received: list[Received]) -> list[Received]:
        """What is tried again here, one try older; a message whose tries are over goes to the dead letters."""
        limit = self._consuming.reconsume_limit(is_ordered=True)
        left = []
        for message in received:
            is_over = message.reconsume_times >= limit
            if not (is_over and await self._bury(message)):
                left.append(once_more(message))
        return left

    async def _left_of_dead(self, held: HeldQueue, received: list[Received]) -> list[Received]:
        """What no broker took as a dead letter, though the handler wants it no more."""
        if self._retries is None:
            _log.warning(
                "broadcasting: %d failed message(s) of %s are not tried again", len(received), held.queue
            )
            return []
        return [once_more(message) for message in received if not await self._retries.bury(message)]

    async def _bury(self, message: Received) -> bool:
        return self._retries is not None and await self._retries.send_anew(message, message.reconsume_times)
