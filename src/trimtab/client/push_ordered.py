"""Handing messages to the handler in the order of each queue: one call at a time for a queue, under the broker's lock."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

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
from trimtab.client.push_outcomes import Call, ConsumeLater
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
        self._servers: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

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
            if not held.is_served and not self._is_closing:
                held.is_served = True
                server = asyncio.get_running_loop().create_task(self._serve(held))
                self._servers.add(server)
                server.add_done_callback(self._servers.discard)

    async def close(self, drain_s: float) -> None:
        """Starts nothing more, waits for handlers at work so long, and ends."""
        self._closing.set()
        if self._servers and drain_s:
            await asyncio.wait(self._servers, timeout=drain_s)
        late = [task for task in self._servers if not task.done()]
        for task in late:
            task.cancel()
        if late:
            _log.warning(
                "%d handlers did not end within %g s; their messages will come again", len(late), drain_s
            )
            await asyncio.wait(late, timeout=1.0)

    async def send_back_overdue(self, held: HeldQueue) -> None:
        """Nothing: order would be lost."""

    async def _serve(self, held: HeldQueue) -> None:
        try:
            while held.waiting and not self._is_closing:
                async with self._room:
                    pause_ms = await self._some_turns(held)
                if pause_ms is None:
                    return
                await self._pause(pause_ms)
        finally:
            held.is_served = False

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
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if self._is_closing or (task is not None and task.cancelling()):
                raise
            error: BaseException | None = cancelled
        except Exception as raised:  # noqa: BLE001 - a user's handler may raise anything; it is told in the log
            error = raised
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
        return await self._failed(held, work, error)

    def _finish(self, held: HeldQueue, work: Work) -> None:
        held.waiting.popleft()
        held.finish(work)
        self._on_finished()

    async def _failed(self, held: HeldQueue, work: Work, error: BaseException) -> int | None:
        received, rest_ms = work.received, self._consuming.suspend_ms
        if isinstance(error, ConsumeLater):
            received = received[min(max(error.consumed, 0), len(received)) :]
            rest_ms = rest_ms if error.after_s is None else int(error.after_s * 1000)
        else:
            _log.warning(
                "the handler failed with %d message(s) of %s from offset %d on: %r; the queue rests for %d ms",
                work.messages, held.queue, work.first, error, rest_ms, exc_info=error,
            )  # fmt: skip
        left = await self._left_to_try(received)
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

    async def _bury(self, message: Received) -> bool:
        return self._retries is not None and await self._retries.send_anew(message, message.reconsume_times)
