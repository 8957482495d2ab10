"""Handing messages to the handler, several at once and in any order.

Work waits in one line for all queues. Workers take from it: as many as may run at once, started when they are needed. A worker that
took some work calls the handler in its own task, so that a handler which never waits costs no task of its own; the next worker is
woken only when the first one has to wait. After a few milliseconds of uninterrupted work others on the loop get their turn.

A worker that is cancelled by anybody but us counts that as a failure of its handler, settles it and ends; another takes its place. It does not
go on itself: whoever cancels every task of the loop waits for them to end.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

from trimtab.client.push_ending import NOT_A_FAILURE, Ending, Task
from trimtab.client.push_outcomes import BY_RETRY_COUNT, Call, ConsumeLater
from trimtab.client.push_queue import HeldQueue, Work
from trimtab.client.push_retries import FIRST_RETRY_LEVEL, Retries, once_more
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.io.clock import Clock

_log = logging.getLogger(__name__)

SLICE_MS: Final = 5
EXPIRED_AT_ONCE_MAX: Final = 16
IDLE_END_S: Final = 0.01
"""Workers without work need no time to end, but a turn of the loop."""


class Concurrent:
    """See the module's own words."""

    def __init__(
        self,
        call: Call,
        retries: Retries | None,
        consuming: Consuming,
        clock: Clock,
        *,
        on_finished: Callable[[], None],
    ) -> None:
        self._call = call
        self._retries = retries
        """None for broadcasting: there nothing comes again."""
        self._consuming = consuming
        self._clock = clock
        self._on_finished = on_finished
        self._line: deque[Work] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._again: set[asyncio.TimerHandle] = set()
        self._is_spreading = False
        self._is_closing = False
        self._is_over = False
        """Handlers that are still at work are cancelled by us."""
        self._ending = Ending()
        self._loop = asyncio.get_running_loop()

    @property
    def workers(self) -> int:
        """How many there are now."""
        return len(self._workers)

    def submit(self, work: Iterable[Work]) -> None:
        """Puts work into the line."""
        self._line.extend(work)
        self._wake_for_work()

    def go_on(self, held: HeldQueue) -> None:
        """What waited for the lease of its queue is handed out before what came after it: a queue that is given up has no gaps then."""
        self._line.extendleft(reversed(held.waiting))
        held.waiting.clear()
        self._wake_for_work()

    def _wake_for_work(self) -> None:
        # What comes while a look at the line is due anyway wakes nobody: who was woken by what came before takes it, too.
        if self._line and not self._is_closing and not self._is_spreading:
            self._wake_one()
            self._spread_soon()

    async def close(self, drain_s: float) -> None:
        """Starts nothing more, waits for handlers at work so long, and ends."""
        self._is_closing = True
        for timer in self._again:
            timer.cancel()
        for idle in self._idle:
            idle.cancel()
        self._idle.clear()
        late = await self._ending.ended(self._workers, max(drain_s, IDLE_END_S))
        if late:
            _log.warning("%d handlers are at work to the end; their messages will come again", len(late))
        self._is_over = True
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)

    def without(self, task: Task | None) -> AbstractContextManager[None]:
        """Within it the end does not wait for the handler of this task, which waits for the end."""
        return self._ending.without(task)

    # --- workers ----------------------------------------------------------------------------------------------

    def _wake_one(self) -> None:
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        if len(self._workers) < self._consuming.concurrency:
            worker = self._loop.create_task(self._serve())
            self._workers.add(worker)
            worker.add_done_callback(self._gone)

    def _gone(self, worker: "asyncio.Task[None]") -> None:
        """Its place is taken by another while there is work."""
        self._workers.discard(worker)
        if not worker.cancelled() and (error := worker.exception()) is not None:
            _log.error("a worker ended: %r", error, exc_info=error)
        if self._line and not self._is_closing:
            self._wake_one()

    def _spread_soon(self) -> None:
        if not self._is_spreading and (self._idle or len(self._workers) < self._consuming.concurrency):
            self._is_spreading = True
            self._loop.call_soon(self._spread)

    def _spread(self) -> None:
        """Work is left although the workers had their chance, so their handlers wait for something: more of them are needed."""
        self._is_spreading = False
        if not self._is_closing:
            for _ in range(min(len(self._line), self._consuming.concurrency)):
                self._wake_one()

    async def _serve(self) -> None:
        line, clock, task = self._line, self._clock, asyncio.current_task()
        assert task is not None, "a worker is a task"
        now_ms = clock.monotonic_ms()
        slice_ends_ms = now_ms + SLICE_MS
        while not self._is_closing:
            if not line or now_ms >= slice_ends_ms:
                if line:
                    await asyncio.sleep(0)
                elif not await self._woken():
                    return
                now_ms = clock.monotonic_ms()
                slice_ends_ms = now_ms + SLICE_MS
                continue
            work = self._next_work(now_ms)
            if work is None:
                continue
            work.started_ms, work.task = now_ms, task
            work.held.begin_work()
            error: BaseException | None = None
            try:
                try:
                    await self._call(work.received)
                except BaseException as raised:
                    if not self._is_failure(work, raised):
                        raise
                    error = raised
                finally:
                    work.task = None
                now_ms = clock.monotonic_ms()
                if self._succeeded(work, error, now_ms):
                    continue
                await self._settle(work, error)
                if task.cancelling():
                    return
                now_ms = (
                    clock.monotonic_ms()
                )  # giving back may have taken so long that no lease is trusted any more
            finally:
                work.held.end_work()

    async def _woken(self) -> bool:
        """Waits for work; False at the end of everything."""
        idle: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(idle)
        try:
            await idle
        except asyncio.CancelledError:
            return False
        return True

    def _next_work(self, now_ms: int) -> Work | None:
        work = self._line.popleft()
        held = work.held
        if work.is_done or held.is_leaving:
            return None
        if self._line and not self._is_spreading:
            self._spread_soon()
        if held.lock is not None and (held.waiting or not held.lock.is_trusted(now_ms)):
            held.waiting.append(work)  # leased mode: until the lease may be relied on again
            return None
        return work

    def _succeeded(self, work: Work, error: BaseException | None, now_ms: int) -> bool:
        """Counts an outcome; whether nothing more is to be done about it."""
        held = work.held
        held.consumed_ms = now_ms
        counts = held.counts
        counts.handler_calls += 1
        counts.handler_ms += now_ms - work.started_ms
        if held.is_dropped or work.is_done:
            return True  # whoever has the queue now gets them again
        if error is not None:
            counts.failed += work.messages
            return False
        counts.consumed += work.messages
        held.finish(work)
        self._on_finished()
        return True

    def _is_failure(self, work: Work, raised: BaseException) -> bool:
        """Whether it is the handler's own word: also that it was cancelled, by itself or because it took too long, but not by our end."""
        if not isinstance(raised, asyncio.CancelledError):
            return not isinstance(raised, NOT_A_FAILURE)
        if self._is_over:
            return False
        task = asyncio.current_task()
        if task is not None and work.is_done and task.cancelling():
            task.uncancel()  # it took too long, and the worker goes on
        return True

    # --- failures ---------------------------------------------------------------------------------------------

    async def _settle(self, work: Work, error: BaseException | None) -> None:
        """Whatever happens meanwhile, somebody cares for the messages: else they would hold the offset for ever."""
        try:
            await self._failed(work, error)
        except asyncio.CancelledError:
            if self._is_over:
                raise
            self._submit_later(work)
        except Exception:  # noqa: BLE001 - whatever it is, it must not cost the messages
            _log.exception("%s of %s could not be given back; it is handed out again", work, work.held.queue)
            self._submit_later(work)

    async def _failed(self, work: Work, error: BaseException | None) -> None:
        held, received = work.held, work.received
        level = BY_RETRY_COUNT
        if isinstance(error, ConsumeLater):
            level = error.delay_level
            received = received[min(max(error.consumed, 0), len(received)) :]
        else:
            _log.warning(
                "the handler failed with %d message(s) of %s from offset %d on: %r; they come again later",
                work.messages, held.queue, work.first, error, exc_info=error,
            )  # fmt: skip
        left = [] if self._retries is None else await self._give_back(self._retries, received, level)
        if self._retries is None and received:
            _log.warning(
                "broadcasting: %d failed message(s) of %s are not tried again", len(received), held.queue
            )
        if held.is_dropped or work.is_done:
            return
        if left:
            held.keep(work, [once_more(message) for message in left])
            self._submit_later(work)
        else:
            held.finish(work)
        self._on_finished()

    async def _give_back(self, retries: Retries, received: list[Received], level: int) -> list[Received]:
        """Those that nobody took."""
        taken = await asyncio.gather(*(retries.give_back(message, level) for message in received))
        return [message for message, was_taken in zip(received, taken, strict=True) if not was_taken]

    def _submit_later(self, work: Work) -> None:
        def again() -> None:
            self._again.discard(timer)
            if not work.held.is_leaving:
                self.submit([work])

        timer = self._loop.call_later(self._consuming.local_retry_s, again)
        self._again.add(timer)

    async def send_back_overdue(self, held: HeldQueue) -> None:
        """Messages at the head of a queue whose handler takes too long are sent back, so that the offset can move."""
        limit_ms = self._consuming.handler_s_max * 1000
        for work in held.progress.oldest(EXPIRED_AT_ONCE_MAX):
            task = work.task
            if task is None or self._clock.monotonic_ms() - work.started_ms <= limit_ms:
                return
            if self._retries is None:
                left: list[Received] = []
            else:
                left = await self._give_back(self._retries, work.received, FIRST_RETRY_LEVEL)
            if left or work.is_done or held.is_dropped or work.task is not task:
                continue
            _log.warning(
                "the handler of %s at offset %d took more than %g s: its %d message(s) come again, and it is cancelled",
                held.queue, work.first, self._consuming.handler_s_max, work.messages,
            )  # fmt: skip
            held.finish(work)
            task.cancel()
            self._on_finished()
