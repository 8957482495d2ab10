"""The store's face: one single-threaded object, used from one loop; only syncing happens elsewhere.

    appended = store.append(message, now_ms, store_host, tags_code, keys)   # any number of times in one wake-up
    store.write()                                                           # one write for all of them
    store.on_visible(appended.end, answer)                                  # now it may be acknowledged and shown

`append` and `append_together`, which takes several messages of one queue at once, give offsets at once but nothing is stored
before `write`. If `write` (or an append that had to write because the batch grew too large) raises, everything at or behind
`written_end` is not stored and its offsets are given out again.
"""

import re
from collections.abc import Callable
from typing import NamedTuple, Self

from trimtab.broker.store.errors import (
    OVERLOAD,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreWriteError,
    remedy_for,
)
from trimtab.broker.store.flusher import Executor, Flusher, InlineExecutor, Waiter
from trimtab.broker.store.frames import HEAD_BYTES as FRAME_HEAD_BYTES
from trimtab.broker.store.fresh import Fresh, Grown, summed
from trimtab.broker.store.housekeeping import Housekeeping
from trimtab.broker.store.layout import load_layout
from trimtab.broker.store.opening import find_layout, load_checkpoint, tags_code_by_tag
from trimtab.broker.store.parts import Parts, make_parts
from trimtab.broker.store.progress import LoadedState, StateFile
from trimtab.broker.store.queues import Entry, Queue
from trimtab.broker.store.reading import AcceptMessage, AcceptTag, Reader, ReadResult, TimeRule, Wanted
from trimtab.broker.store.rebuild import Rebuild
from trimtab.broker.store.recovery import Recovery, TagsCodeOf
from trimtab.broker.store.settings import StoreSettings
from trimtab.io.chance import Chance, seeded_chance
from trimtab.io.disk import Disk
from trimtab.wire.messages import StoredMessage

_STATE_NAME = re.compile("[a-z][a-z_]{0,31}")
_ROOM_CHECK_BYTES = 4 << 20
_ROOM_CHECK_MS = 1_000
_REST = 4
_EVER_MS = 1 << 60


class StoreStats(NamedTuple):
    """Sizes, for people and metrics."""

    log_start: int
    log_durable: int
    log_end: int
    segments: int
    topics: int
    queues: int
    checkpointed: int
    disk_free_bytes: int
    disk_total_bytes: int


class Store:
    """See above. `Store.open` makes one."""

    def __init__(self, parts: Parts, sync_executor: Executor, housekeeping_executor: Executor) -> None:
        self._disk = parts.disk
        self._settings = parts.settings
        self._handles = parts.handles
        self._log = parts.log
        self._catalog = parts.catalog
        self._queues = parts.catalog.queues
        self._index = parts.index
        self._executors = (sync_executor, housekeeping_executor)
        self._housekeeping = Housekeeping(parts, housekeeping_executor, self._fail)
        self._flusher = Flusher(parts.log, sync_executor, self._fail, self._judge)
        self._is_sync = parts.settings.flush == "sync"
        self._reader = Reader(parts, lambda: self.visible_end)
        self._fresh = Fresh(parts, self._refusal, self._write)
        self.append = self._fresh.append
        self.append_together = self._fresh.append_together
        self._grown: list[Grown] = []
        self._states: dict[str, StateFile] = {}
        self._failure: StoreReadOnlyError | None = None
        self._closed = False
        self._is_full = False
        self._room_checked_at = 0
        self._room_checked_ms = -_EVER_MS
        self._flushed_ms = -_EVER_MS
        self._checkpointed_ms = -_EVER_MS
        self._checkpoint_took_ms = 0
        self.report: list[str] = []
        """What opening had to mend or found wrong, in sentences."""
        self.is_new = False
        """Whether nothing was there before it was opened."""

    @classmethod
    def open(
        cls, disk: Disk, settings: StoreSettings | None = None, *, executors: tuple[Executor, Executor] | None = None,
        chance: Chance | None = None, tags_code_of: TagsCodeOf = tags_code_by_tag, rebuild: bool = False,
    ) -> Self:  # fmt: skip
        """A store that is ready. `executors` are for the log's sync and for everything else; in place without them.
        `tags_code_of` must give for a message what `append` was given. `rebuild` makes queues and index anew.
        """
        disk.lock()
        try:
            return cls._open(
                disk, settings or StoreSettings(), executors, chance, tags_code_of, rebuild=rebuild
            )
        except OSError as exc:
            disk.unlock()
            raise StoreError(f"the store on {disk} cannot be opened: {exc}; {remedy_for(exc)}") from exc
        except BaseException:
            disk.unlock()
            raise

    @classmethod
    def _open(
        cls, disk: Disk, settings: StoreSettings, executors: tuple[Executor, Executor] | None,
        chance: Chance | None, tags_code_of: TagsCodeOf, *, rebuild: bool,
    ) -> Self:  # fmt: skip
        is_new = load_layout(disk) is None
        layout = find_layout(disk, settings, chance or seeded_chance())
        parts = make_parts(disk, settings, layout)
        recovery = Recovery(parts, tags_code_of)
        checkpoint = load_checkpoint(parts.state, recovery.report, required=not rebuild)
        fell_back = bool(recovery.report)
        in_place = InlineExecutor()
        store = cls(parts, *(executors or (in_place, in_place)))
        store.report, store.is_new = recovery.report, is_new
        housekeeping = store._housekeeping
        housekeeping.dirty = recovery.dirty
        if checkpoint is not None and not rebuild:
            housekeeping.checkpointed = checkpoint.durable
            recovery.recover(checkpoint)
        else:
            Rebuild(parts, recovery).run(
                checkpoint, housekeeping.checkpoint_in_place, settings.checkpoint_bytes
            )
        # Neither generation may say that a topic began behind the log's end: the next messages would count as its past.
        # And after one generation was lost there are to be two again.
        renew = parts.catalog.clamp(parts.log.end) or rebuild or fell_back
        outdated = 2 if renew else int(housekeeping.is_due())
        for _ in range(outdated):
            housekeeping.checkpoint_in_place()
        store._check_room()
        return store

    # --- writing

    def write(self) -> int:
        """Hands what was appended to the system, as one batch; gives the end of the log."""
        end = self._write()
        if end - self._room_checked_at >= _ROOM_CHECK_BYTES:
            self._check_room()
        elif self._is_overrun:
            self._judge()
        return end

    def _write(self) -> int:
        """Without judging the room: what is appended in the midst of a batch is taken or refused as its beginning was."""
        if not self._fresh:
            return self._log.end
        if self._failure is not None:
            self._fresh.drop()
            raise self._refusal()
        try:
            self._log.write()
        except StoreWriteError:
            self._fresh.drop()
            self._check_room()
            raise
        end, checkpoint_bytes = self._log.end, self._settings.checkpoint_bytes
        if self._is_sync or end - self._log.durable >= checkpoint_bytes:
            self._flusher.request()  # first: while the disk works, queues and index take note
        grown = self._fresh.written(self._housekeeping.dirty)
        self._grown = summed(self._grown + grown) if self._grown else grown
        if self._log.durable - self._housekeeping.checkpointed >= checkpoint_bytes:
            self._housekeeping.checkpoint()
        return end

    def take_grown(self) -> list[Grown]:
        """Which queues got how much by the writes since the last time."""
        grown, self._grown = self._grown, []
        return grown

    @property
    def settings(self) -> StoreSettings:
        return self._settings

    @property
    def visible_end(self) -> int:
        """How far the log may be acknowledged and shown: with sync flush what is durable, with async what is written."""
        return self._log.durable if self._is_sync else self._log.end

    @property
    def written_end(self) -> int:
        return self._log.end

    @property
    def durable_end(self) -> int:
        return self._log.durable

    def on_visible(self, log_end: int, waiter: Waiter) -> None:
        """Calls back, perhaps at once, when the log is visible up to `log_end`; with an error if it will never be."""
        if self.visible_end >= log_end:
            waiter(None)
        else:
            self._flusher.wait(log_end, waiter)

    def on_durable(self, log_end: int, waiter: Waiter) -> None:
        self._flusher.wait(log_end, waiter)

    # --- reading

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        messages_max: int,
        bytes_max: int,
        accept: AcceptTag | None = None,
        accept_message: AcceptMessage | None = None,
    ) -> ReadResult:
        """Messages from `offset` on, at least one if there is one, as many as both limits allow and both filters accept.

        `StoreDamagedError` if the message at `offset` is damaged; messages before and behind it are given out.
        """
        wanted = Wanted(offset, max(1, messages_max), max(1, bytes_max), accept, accept_message)
        return self._reader.read(self._queue(topic, queue_id), wanted)

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The message that begins at a place in the log, None if none does; the number may come from anywhere."""
        return self._reader.message_at(physical_offset)

    def query_by_key(
        self,
        topic: str,
        key: str,
        results_max: int,
        begin_ms: int = 0,
        end_ms: int = _EVER_MS,
        *,
        oldest_first: bool = False,
    ) -> list[StoredMessage]:
        """Messages with that key or unique key, newest first. `oldest_first` for what lies near `begin_ms`."""
        return self._reader.by_key(topic, key, results_max, begin_ms, end_ms, oldest_first=oldest_first)

    def entry(self, topic: str, queue_id: int, offset: int) -> Entry | None:
        """The queue's entry of one message; None if it is not there, not yet or not any more."""
        queue = self._queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.visible_max(self.visible_end):
            return None
        return queue.entry(offset)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """0 without such a queue."""
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the next message to become visible; 0 without such a queue."""
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.visible_max(self.visible_end)

    def earliest_store_ms(self, topic: str, queue_id: int) -> int:
        """-1 if the queue is empty."""
        entry = self.entry(topic, queue_id, self.min_offset(topic, queue_id))
        return -1 if entry is None else self._reader.store_ms(entry.physical_offset)

    def store_ms_at(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message there was stored; -1 if there is none."""
        entry = self.entry(topic, queue_id, offset)
        if entry is None or entry.physical_offset < self._log.start:
            return -1
        return self._reader.store_ms(entry.physical_offset)

    def first_store_ms(self) -> int:
        """When the oldest message of the log was stored; -1 without one."""
        stored_ms = self._segment_ms(self._log.start)
        return -1 if stored_ms is None else stored_ms

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, rule: TimeRule = TimeRule.NEAREST
    ) -> int:
        return self._reader.by_time(self._queue(topic, queue_id), timestamp_ms, rule)

    def topics(self) -> list[str]:
        return [topic.decode() for topic in self._catalog.topics]

    def queue_ids(self, topic: str) -> list[int]:
        """Queues that were ever written to."""
        return sorted(queue.queue_id for queue in self._catalog.queues_of(topic.encode(errors="replace")))

    def _queue(self, topic: str, queue_id: int) -> Queue | None:
        return self._queues.get((topic.encode(errors="replace"), queue_id))

    # --- small states

    def load_state(self, name: str) -> LoadedState:
        """A state as it was saved last; `status` and `note` say if that is not certain."""
        return self._state(name).load()

    def save_state(self, name: str, data: bytes, waiter: Waiter | None = None) -> None:
        """Replaces a state as a whole; calls back when it is durable, or when it could not be saved."""
        state = self._state(name)

        def done(failure: Exception | None) -> None:
            if waiter is None:
                return
            if failure is None:
                waiter(None)
                return
            error = StoreWriteError(
                f"{name} could not be saved: {failure}; the state before it is still there"
            )
            error.__cause__ = failure
            waiter(error)

        self._executors[1].submit(lambda: state.save(data), done)

    def when_states_are_saved(self, run: Callable[[], None]) -> None:
        """Calls back once every state that was given to `save_state` so far is on disk, or could not be saved."""
        self._executors[1].submit(lambda: None, lambda _: run())

    def _state(self, name: str) -> StateFile:
        assert _STATE_NAME.fullmatch(name), "names of states are words in the program"
        assert name != "checkpoint", "that one is the store's own"
        state = self._states.get(name)
        if state is None:
            state = self._states[name] = StateFile(self._disk, name)
        return state

    # --- keeping house

    def tick(self, monotonic_ms: int) -> None:
        """Call it several times a second: flushes (async), makes checkpoints, looks at the room on the disk."""
        if self._closed:
            return
        if monotonic_ms - self._flushed_ms >= self._settings.flush_interval_ms:
            self._flushed_ms = monotonic_ms
            self._flusher.request()
        self._tick_checkpoint(monotonic_ms)
        if monotonic_ms - self._room_checked_ms >= _ROOM_CHECK_MS:
            self._room_checked_ms = monotonic_ms
            self._check_room()

    def _tick_checkpoint(self, monotonic_ms: int) -> None:
        """Time for a checkpoint, unless the last one took so long (thousands of queues) that the disk needs a rest."""
        since_ms = monotonic_ms - self._checkpointed_ms
        if self._housekeeping.busy:
            self._checkpoint_took_ms = since_ms
        elif since_ms >= max(self._settings.checkpoint_interval_ms, _REST * self._checkpoint_took_ms):
            self._checkpointed_ms, self._checkpoint_took_ms = monotonic_ms, 0
            if self._housekeeping.is_due():
                self._housekeeping.checkpoint()

    def retain(self, wall_ms: int, keep_from: int | None = None) -> int:
        """Lets go what is older or more than the settings keep, by whole segments; gives the number of bytes.
        What lies at `keep_from` or behind it stays, however old.
        """
        if self._fresh.refuses and not self._is_full:
            return 0
        return self._housekeeping.retain(wall_ms, self._segment_ms, keep_from)

    def _segment_ms(self, base: int) -> int | None:
        """When the first message of a segment was stored."""
        first = base + FRAME_HEAD_BYTES
        return self._reader.store_ms(first) if first < self._log.end else None

    def delete_topic(self, topic: str) -> bool:
        """Forgets a topic and its queues; False if there is none. Its messages stay in the log until that lets them go.
        A crash before the next checkpoint, which begins at once, brings it back.
        """
        if self._closed or self._failure is not None:
            raise self._refusal()
        self.write()
        queues = self._catalog.delete(topic.encode(errors="replace"), self._log.end)
        self._housekeeping.forget(queues)
        return bool(queues)

    def stats(self) -> StoreStats:
        log = self._log
        return StoreStats(
            log.start, log.durable, log.end, len(log.bases), len(self._catalog.topics), len(self._queues),
            self._housekeeping.checkpointed, self._disk.free_bytes(), self._disk.total_bytes(),
        )  # fmt: skip

    @property
    def refusal(self) -> StoreError | None:
        """Why nothing can be appended now; None if it can."""
        return self._refusal() if self._fresh.refuses else None

    def _refusal(self) -> StoreError:
        if self._closed:
            return StoreClosedError("the store is closed")
        if self._failure is not None:
            return StoreReadOnlyError(str(self._failure))
        if self._is_overrun:
            waiting = self._log.end - self._log.durable
            return StoreBusyError(
                f"{OVERLOAD}: {waiting} bytes wait for {self._disk} to take them; send slower, or try again later"
            )
        if self._housekeeping.is_behind:
            complaint = self._housekeeping.last_complaint
            return StoreFullError(complaint or "the disk does not keep up; try again later")
        least = self._settings.disk_free_bytes_min
        return StoreFullError(
            f"less than {least >> 20} MiB are free on {self._disk}; make room, or start the broker with less retention"
            " (--retention-hours, --retention-gib) or a lower --disk-free-min-mib"
        )

    def _check_room(self) -> None:
        self._room_checked_at = self._log.end
        is_low = self._disk.free_bytes() < self._settings.disk_free_bytes_min
        self._is_full = is_low or self._housekeeping.is_behind
        self._judge()

    @property
    def _is_overrun(self) -> bool:
        return self._log.end - self._log.durable > self._settings.unsynced_bytes_max

    def _judge(self) -> None:
        """Whether anything may be appended, as far as that is known without asking the disk."""
        self._fresh.refuses = self._is_full or self._is_overrun or self._closed or self._failure is not None

    def _fail(self, failure: StoreReadOnlyError) -> None:
        if self._failure is None:
            self._failure = failure
        self._fresh.refuses = True
        self._housekeeping.stop()
        self._flusher.fail(failure)

    def close(self) -> None:
        """Writes, syncs and checkpoints what there is, then lets go of everything. `StoreError` if that did not succeed."""
        if self._closed:
            return
        failed_before = self._failure is not None
        try:
            if not failed_before:
                self.write()
        finally:
            self._stop()
            self._flusher.close()
            try:
                if self._failure is None:
                    self._housekeeping.close()
            except OSError as exc:
                raise StoreError(f"the last checkpoint failed: {exc}; the next start takes longer") from exc
            finally:
                self._let_go()
        if self._failure is not None and not failed_before:
            raise self._failure

    def abandon(self) -> None:
        """Lets go of everything as a process that is killed does: what was written is there, nothing more is written."""
        if self._closed:
            return
        self._fresh.drop()
        self._stop()
        self._flusher.fail(StoreClosedError("the store was abandoned before the message was on disk"))
        self._let_go()

    def _stop(self) -> None:
        self._flusher.stop()
        self._housekeeping.stop()
        for executor in self._executors:
            executor.close()

    def _let_go(self) -> None:
        self._closed = self._fresh.refuses = True
        self._log.close()
        self._handles.close()
        self._disk.unlock()

    def __repr__(self) -> str:
        log = self._log
        return f"<Store {self._disk} log={log.start}..{log.durable}..{log.end} queues={len(self._queues)}>"
