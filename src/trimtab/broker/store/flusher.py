"""Syncing without stopping: one sync at a time, elsewhere; everybody who waits when it begins is served when it ends.

A sync that fails is the end of writing. The system reports the error once and then takes the lost pages for clean, so a second
try would succeed and mean nothing. Only when too many files are open was nothing asked of the disk: that is tried again.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from trimtab.broker.store.errors import StoreClosedError, StoreError, StoreReadOnlyError, is_short_of_files
from trimtab.broker.store.log import Log, SyncJob

Job = Callable[[], None]
Done = Callable[[Exception | None], None]
Waiter = Callable[[StoreError | None], None]


class Executor(Protocol):
    """Where slow calls are made."""

    def submit(self, job: Job, done: Done) -> None:
        """Runs `job`, in order with the others; then `done`, with the exception if there was one, on the caller's loop."""

    def close(self) -> None:
        """Back when every job has run and every `done` was called."""


class InlineExecutor:
    """At once and in place: for memory, simulation and tests."""

    def submit(self, job: Job, done: Done) -> None:
        done(_outcome(job))

    def close(self) -> None:
        """Nothing is ever left."""


class ThreadExecutor:
    """One thread; `call_soon` is the loop's `call_soon_threadsafe`."""

    def __init__(self, call_soon: Callable[..., object], name: str) -> None:
        self._call_soon = call_soon
        self._jobs: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._finished: deque[tuple[Done, Exception | None]] = deque()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job, done: Done) -> None:
        self._jobs.put((job, done))

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._deliver()

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            job, done = work
            self._finished.append((done, _outcome(job)))
            try:
                self._call_soon(self._deliver)
            except RuntimeError:  # the loop is closed; what is finished is delivered by `close`
                continue

    def _deliver(self) -> None:
        while self._finished:
            done, outcome = self._finished.popleft()
            done(outcome)


def _outcome(job: Job) -> Exception | None:
    try:
        job()
    except Exception as exc:  # noqa: BLE001 - whatever it is, the loop must hear of it
        return exc
    return None


class Flusher:
    """Group commit for the log."""

    def __init__(
        self,
        log: Log,
        executor: Executor,
        on_failure: Callable[[StoreReadOnlyError], None],
        on_synced: Callable[[], None],
    ) -> None:
        self._log = log
        self._executor = executor
        self._on_failure = on_failure
        self._on_synced = on_synced
        self._waiters: deque[tuple[int, Waiter]] = deque()
        self._wanted = 0
        self._running = False
        self._closing = False
        self._failure: StoreError | None = None

    def request(self) -> None:
        """Makes what is written durable, soon."""
        self._wanted = self._log.end
        if (
            not self._running
            and not self._closing
            and self._failure is None
            and self._wanted > self._log.durable
        ):
            self._start()

    def wait(self, log_end: int, waiter: Waiter) -> None:
        """Calls back once the log is durable up to `log_end`, at once if it is, with an error if it will never be."""
        if self._log.durable >= log_end:
            waiter(None)
        elif self._failure is not None:
            waiter(self._failure)
        else:
            self._waiters.append((log_end, waiter))

    def _start(self) -> None:
        self._running = True
        job = self._log.begin_sync()
        self._executor.submit(job.run, lambda failure: self._done(job, failure))

    def _done(self, job: SyncJob, failure: Exception | None) -> None:
        if is_short_of_files(failure):
            self._log.put_off_sync(job)
            self._running = False  # the next request begins another; ticks make them
            return
        if failure is not None:
            error = StoreReadOnlyError(
                f"the log could not be made durable: {failure}; mend the disk and start the broker again"
            )
            error.__cause__ = failure
            self._on_failure(error)
            return
        self._log.finish_sync(job)
        self._on_synced()
        while self._waiters and self._waiters[0][0] <= job.end:
            self._waiters.popleft()[1](None)
        self._running = False
        if self._wanted > self._log.durable and not self._closing:
            self._start()

    def fail(self, failure: StoreError) -> None:
        """From now on nothing becomes durable."""
        if self._failure is not None:
            return
        self._failure = failure
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            waiter(failure)

    def close(self) -> None:
        """The last sync, in place, after the executor was closed; who still waits is told."""
        if self._failure is None:
            job = self._log.begin_sync()
            self._done(job, _outcome(job.run))
        self.fail(StoreClosedError("the store was closed before the message was on disk"))

    def stop(self) -> None:
        """Starts no further sync by itself."""
        self._closing = True
