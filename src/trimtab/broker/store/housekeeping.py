"""What a store does beside taking and giving messages: checkpoints, and making room.

One checkpoint at a time, on its own executor, so that thousands of small syncs do not stand before the log's. Files that nothing
needs any more are removed only after two further checkpoints: then neither generation of the checkpoint mentions them.
"""

import errno
from collections.abc import Callable, Iterable
from itertools import pairwise

from trimtab.broker.store.checkpoint import Checkpoint, CheckpointJob
from trimtab.broker.store.errors import StoreDamagedError, StoreReadOnlyError, is_short_of_files
from trimtab.broker.store.flusher import Executor
from trimtab.broker.store.parts import Parts
from trimtab.broker.store.queues import Queue
from trimtab.io.disk import Disk, directory_of

_GENERATIONS = 2
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
BEHIND_MAX = 8
"""How many `checkpoint_bytes` the log may be ahead of the last checkpoint before the store takes no more."""


class Housekeeping:
    """See above."""

    def __init__(
        self, parts: Parts, executor: Executor, on_failure: Callable[[StoreReadOnlyError], None]
    ) -> None:
        self._disk = parts.disk
        self._handles = parts.handles
        self._settings = parts.settings
        self._log = parts.log
        self._catalog = parts.catalog
        self._index = parts.index
        self._state = parts.state
        self._executor = executor
        self._on_failure = on_failure
        self.dirty: dict[Queue, None] = {}
        self.checkpointed = 0
        self.last_complaint = ""
        self._running = False
        self._stopped = False
        self._wanted = 0
        self._garbage: list[tuple[int, list[str]]] = []

    @property
    def busy(self) -> bool:
        return self._running

    @property
    def is_behind(self) -> bool:
        return self._log.durable - self.checkpointed > BEHIND_MAX * self._settings.checkpoint_bytes

    def is_due(self) -> bool:
        """Whether a checkpoint would say anything new."""
        return self._wanted > 0 or self._log.durable > self.checkpointed

    def checkpoint(self, *, final: bool = False) -> None:
        """Begins one, unless one is on its way."""
        if self._running or self._stopped:
            return
        job = self._plan(final=final)
        self._running = True
        self._executor.submit(job.run, lambda failure: self._done(job, failure))

    def _plan(self, *, final: bool) -> CheckpointJob:
        durable = self._log.durable
        flushes = {queue: flush for queue in self.dirty if (flush := queue.flush(durable)) is not None}
        chunk = self._index.seal(durable, self._settings.checkpoint_bytes, force=final)
        catalog = self._catalog
        checkpoint = Checkpoint(
            start=self._log.start,
            durable=durable,
            chain=self._log.durable_chain,
            indexed=self._index.covered if chunk is None else chunk.chunk.log_to,
            next_number=catalog.next_number,
            topics=tuple(catalog.topics.values()),
            deleted=dict(catalog.deleted),
            queues=b"".join([queue.row(flushes.get(queue)) for queue in catalog.queues.values()]),
            holes=tuple(self._log.holes),
        )
        return CheckpointJob(self._disk, self._state, checkpoint, list(flushes.values()), chunk)

    def _done(self, job: CheckpointJob, failure: Exception | None) -> None:
        self._running = False
        if failure is not None:
            self._complain(failure)
            return
        self.last_complaint = ""
        self.checkpointed = job.checkpoint.durable
        self._wanted = max(0, self._wanted - 1)
        for flush in job.flushes:
            flush.queue.flushed(flush)
            if not flush.queue.tail:
                self.dirty.pop(flush.queue, None)
        if job.chunk is not None:
            self._index.filed(job.chunk)
        self._remove_garbage()
        if self._wanted:
            self.checkpoint()

    def _complain(self, failure: Exception) -> None:
        if isinstance(failure, OSError) and failure.errno in _NO_ROOM:
            # Everything is still in memory and is written whole at the next try.
            self.last_complaint = f"the last checkpoint failed: {failure}; make room on the disk"
            return
        if is_short_of_files(failure):
            self.last_complaint = (
                f"the last checkpoint failed: {failure}; raise the limit of open files (ulimit -n)"
            )
            return
        error = StoreReadOnlyError(
            f"a checkpoint could not be made durable: {failure}; mend the disk and start the broker again"
        )
        error.__cause__ = failure
        self._on_failure(error)

    def discard(self, names: Iterable[str]) -> None:
        """Removes files once two checkpoints without them are durable."""
        # A checkpoint that is on its way was planned before and does not count.
        doomed = list(names)
        for name in doomed:
            self._handles.drop(name)
        self._garbage.append((_GENERATIONS + self._running, doomed))
        self._wanted = _GENERATIONS + self._running
        self.checkpoint()

    def _remove_garbage(self) -> None:
        waiting = [(left - 1, names) for left, names in self._garbage]
        ripe = [name for left, names in waiting if left <= 0 for name in names]
        self._garbage = [(left, names) for left, names in waiting if left > 0]
        if ripe and not self._stopped:
            self._executor.submit(lambda: _remove(self._disk, ripe), lambda _: None)

    def forget(self, queues: list[Queue]) -> None:
        """After their topic was deleted."""
        for queue in queues:
            self.dirty.pop(queue, None)
        if queues:
            self.discard([name for queue in queues for name in queue.file_names()])

    def retain(self, now_ms: int, segment_ms: Callable[[int], int | None], keep_from: int | None) -> int:
        """Lets whole segments go that are too old or too many; gives the number of bytes. `segment_ms` is when a segment began."""
        start = self._log.start
        ages = _Ages(self._log.bases[1:], segment_ms, now_ms)
        for base, following in pairwise(self._log.bases):
            if following > min(self.checkpointed, self._index.covered) or self._running:
                break
            if keep_from is not None and keep_from < following:
                break
            if not self._is_too_much(base) and not self._is_too_old(following, now_ms, ages):
                break
            start = following
        if start == self._log.start:
            return 0
        return self._drop_before(start)

    def _is_too_much(self, base: int) -> bool:
        bytes_max = self._settings.retention_bytes
        return bytes_max > 0 and self._log.end - base > bytes_max

    def _is_too_old(self, following: int, now_ms: int, ages: "_Ages") -> bool:
        """Whether all that stands before `following` is."""
        if not self._settings.retention_ms:
            return False
        ended_ms = ages.ended_ms(following)
        return ended_ms is not None and ended_ms < now_ms - self._settings.retention_ms

    def _drop_before(self, start: int) -> int:
        freed = start - self._log.start
        names = self._log.drop_before(start) + self._index.drop_before(start)
        for queue in self._catalog.queues.values():
            try:
                names += queue.trim(start)
            except StoreDamagedError as exc:
                self.last_complaint = f"the oldest offset of a queue is not known: {exc}"
        self._catalog.forget_deleted(start)
        self.discard(names)
        return freed

    def stop(self) -> None:
        """Begins no further checkpoint by itself."""
        self._stopped = True

    def close(self) -> None:
        """The last checkpoint, in place, after the executor was closed."""
        if not self.is_due() and self._index.covered == self._log.durable:
            return
        self.checkpoint_in_place(final=True)

    def checkpoint_in_place(self, *, final: bool = False) -> None:
        """One checkpoint, done when it comes back; only while no other is on its way."""
        assert not self._running, "one checkpoint at a time"
        job = self._plan(final=final)
        job.run()
        self._done(job, None)


class _Ages:
    """How old segments are, from the oldest to the newest; each is looked at once.

    A segment that claims to begin after now was begun while the clock was ahead: it says nothing, and what stands before it is
    judged by the next one that can be believed. Not by the earliest of all later ones: a clock that was once behind, as before
    it was first set, would have everything removed that was stored until then.
    """

    def __init__(self, bases: list[int], segment_ms: Callable[[int], int | None], now_ms: int) -> None:
        self._bases = iter(bases)
        self._segment_ms = segment_ms
        self._now_ms = now_ms
        self._base = -1
        self._began_ms: int | None = None

    def ended_ms(self, following: int) -> int | None:
        """When everything before `following`, which only grows, had been stored at the latest; None if nothing tells."""
        while self._base < following or self._began_ms is None or self._began_ms > self._now_ms:
            base = next(self._bases, None)
            if base is None:
                return None
            self._base, self._began_ms = base, self._segment_ms(base)
        return self._began_ms


def _remove(disk: Disk, names: list[str]) -> None:
    directories: dict[str, None] = {}
    for name in names:
        try:
            disk.remove(name)
        except FileNotFoundError:
            continue
        directories[directory_of(name)] = None
    for directory in directories:
        disk.sync_dir(directory)
