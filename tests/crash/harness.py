"""A store, a model of what it must hold, and everything that can happen to both.

The model is a list of messages per queue. `acked` is how many of them the store has called visible and durable; whatever
happens, those are there after the next start, at their offsets, bit by bit. What was sent and not acknowledged may be there or
not, but only as an unbroken continuation, and nothing else may be there at all.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

from trimtab.broker.store import Store, StoreError, StoreSettings
from trimtab.broker.store.flusher import Done, Job
from trimtab.broker.store.reading import ReadStatus
from trimtab.broker.store.scrub import verify
from trimtab.sim.disk import PowerCut, SimDisk
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import Storable, decode_messages

SEEDS = int(os.environ.get("TRIMTAB_CRASH_SEEDS", "2000"))
HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
TAGS = ("red", "green", "blue")
START_MS = 1_700_000_000_000

QueueKey = tuple[str, int]


class SteppedExecutor:
    """Work that is done when the test says so; what it led to is told when the test says so."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Job, Done]] = deque()
        self._finished: deque[tuple[Done, Exception | None]] = deque()

    def submit(self, job: Job, done: Done) -> None:
        self._jobs.append((job, done))

    def run_one(self) -> None:
        if self._jobs:
            job, done = self._jobs.popleft()
            try:
                job()
            except Exception as exc:  # noqa: BLE001
                self._finished.append((done, exc))
            else:
                self._finished.append((done, None))

    def tell_one(self) -> None:
        if self._finished:
            done, outcome = self._finished.popleft()
            done(outcome)

    def close(self) -> None:
        while self._jobs or self._finished:
            self.run_one()
            self.tell_one()


class Faults:
    """What goes wrong, by the number of the call: the power, a write, a sync."""

    def __init__(
        self, chance: Random, *, cut_at: int = -1, sync_fails: float = 0.0, write_fails: float = 0.0
    ) -> None:
        self._chance = chance
        self._cut_at = cut_at
        self._sync_fails = sync_fails
        self._write_fails = write_fails
        self._calls = 0

    def __call__(self, call: str, name: str) -> None:
        self._calls += 1
        if self._calls == self._cut_at:
            raise PowerCut
        if call in {"sync", "sync_dir"} and self._chance.random() < self._sync_fails:
            raise OSError(5, f"simulated: {call} of {name}")
        if call == "pwrite" and self._chance.random() < self._write_fails:
            raise OSError(28, f"simulated: {call} of {name}")


class Model:
    """What was sent to each queue, and how much of it the store has vouched for."""

    def __init__(self) -> None:
        self.sent: dict[QueueKey, list[tuple[bytes, str]]] = {}
        self.acked: dict[QueueKey, int] = {}
        self.unknown: dict[QueueKey, int] = {}
        self.low: dict[QueueKey, int] = {}
        self.made = 0
        self.leaving: str | None = None

    def forget(self, topic: str) -> None:
        self.leaving = None
        for lists in (self.sent, self.acked, self.unknown, self.low):
            for key in [key for key in lists if key[0] == topic]:
                del lists[key]

    def next_body(self, chance: Random) -> bytes:
        self.made += 1
        return b"%d:" % self.made + chance.randbytes(chance.choice((0, 10, 100, 1500)))


class World:
    """One disk and the lives of the stores on it."""

    def __init__(self, seed: int, *, opener: Callable[..., Store] = Store.open) -> None:
        self.chance = Random(seed)
        self.disk = SimDisk(self.chance)
        self.model = Model()
        self._open = opener
        chance = self.chance
        self.settings = StoreSettings(
            flush="async" if chance.random() < 0.2 else "sync",
            flush_interval_ms=chance.choice((1, 500)),
            segment_bytes=chance.choice((1 << 10, 1 << 12, 1 << 15)),
            frame_bytes_max=chance.choice((1 << 10, 1 << 20)),
            checkpoint_bytes=chance.choice((1 << 10, 1 << 12, 1 << 14)),
            retention_ms=0,
            retention_bytes=chance.choice((0, 0, 1 << 13)),
            disk_free_bytes_min=0,
            queue_file_entries=64,
            open_files_max=4,
        )
        self.topics = [f"T{number}" for number in range(chance.randrange(1, 4))]
        self.now_ms = 0
        self.is_over = False
        self.executors = (SteppedExecutor(), SteppedExecutor())

    def start(self) -> Store:
        self.executors = (SteppedExecutor(), SteppedExecutor())
        return self._open(self.disk, self.settings, executors=self.executors, chance=self.chance)

    def live(self, store: Store, steps: int) -> None:
        """A stretch of ordinary work. Errors of the store are part of it, a power cut is not caught here."""
        self.is_over = False
        for _ in range(steps):
            if self.is_over:
                return
            action = self.chance.choices(
                (self.send, self.work, self.look, self.tick, self.retain, self.save, self.delete),
                (80, 120, 20, 30, 10, 10, 3),
            )[0]
            action(store)

    def send(self, store: Store) -> None:
        batch: list[tuple[QueueKey, int, int, bytes, str]] = []
        try:
            for _ in range(self.chance.randrange(1, 6)):
                key = (self.chance.choice(self.topics), self.chance.randrange(3))
                body, tag = self.model.next_body(self.chance), self.chance.choice(TAGS)
                unique = body.split(b":")[0]
                message = Storable(
                    key[0].encode(),
                    body,
                    b"UNIQ_KEY\x01%b\x02TAGS\x01%b" % (unique, tag.encode()),
                    key[1],
                    START_MS,
                    HOST,
                )
                appended = store.append(message, START_MS + self.now_ms, HOST, tags_code(tag), (unique,))
                batch.append((key, appended.queue_offset, appended.end, body, tag))
            store.write()
        except StoreError:
            batch = [item for item in batch if item[2] <= store.written_end]
        finally:
            self._note(store, batch)

    def _note(self, store: Store, batch: list[tuple[QueueKey, int, int, bytes, str]]) -> None:
        for key, offset, end, body, tag in batch:
            sent = self.model.sent.setdefault(key, [])
            assert offset == len(sent), f"{key} gave offset {offset} after {len(sent) - 1}"
            sent.append((body, tag))
            store.on_durable(end, partial(self._ack, key, sent, offset + 1))

    def _ack(
        self, key: QueueKey, sent: list[tuple[bytes, str]], count: int, error: StoreError | None
    ) -> None:
        if self.model.sent.get(key) is not sent:  # of a topic that was deleted since
            return
        if error is None:
            self.model.acked[key] = max(self.model.acked.get(key, 0), count)
        elif error.indeterminate:
            self.model.unknown[key] = count

    def work(self, store: Store) -> None:
        executor = self.chance.choice(self.executors)
        self.chance.choice((executor.run_one, executor.tell_one))()

    def tick(self, store: Store) -> None:
        self.now_ms += self.chance.choice((1, 100, 3000))
        store.tick(self.now_ms)

    def retain(self, store: Store) -> None:
        store.retain(START_MS + self.now_ms)

    def save(self, store: Store) -> None:
        count = sum(self.model.acked.values())
        store.save_state("progress", b"%d" % count)

    def delete(self, store: Store) -> None:
        """Deletes a topic and waits until that is durable. If the power goes before, it may be deleted or not."""
        topic = self.chance.choice(self.topics)
        try:
            store.delete_topic(topic)
        except StoreError:
            return
        self.model.leaving = topic
        self.executors[0].close()
        self.executors[1].close()
        if store._housekeeping._wanted == 0:
            self.model.forget(topic)
        else:
            self.is_over = True  # some checkpoint failed, so this is not durable and the model cannot follow

    def look(self, store: Store) -> None:
        """A read may show what is acknowledged, and with async flush what is written; never anything else."""
        for key in self.model.sent:
            top = store.max_offset(*key)
            limit = max(self.model.acked.get(key, 0), self.model.unknown.get(key, 0))
            if self.settings.flush == "async":
                limit = len(self.model.sent[key])
            assert top <= limit, f"{key} shows {top} of {limit}"
            self.check_queue(store, key)

    def check_queue(self, store: Store, key: QueueKey) -> int:
        """Everything the queue shows is what was sent; gives the offset where it ends."""
        sent = self.model.sent[key]
        low, top = store.min_offset(*key), store.max_offset(*key)
        assert low >= self.model.low.get(key, 0), f"{key} begins at {low}, before {self.model.low[key]}"
        self.model.low[key] = low
        assert top <= len(sent), f"{key} ends at {top}, only {len(sent)} were sent"
        offset = low
        while offset < top:
            result = store.read(*key, offset, messages_max=7, bytes_max=4000)
            assert result.status is ReadStatus.FOUND, f"{key} has {result.status} at {offset}"
            messages = decode_messages(result.body)
            assert len(messages) == result.count
            for message in messages:
                assert (message.topic, message.queue_id, message.queue_offset) == (*key, offset)
                assert (message.body, message.tag) == sent[offset], (
                    f"{key} at {offset}: {message.body[:20]!r}"
                )
                offset += 1
            assert result.next_offset == offset
        return top

    def check(self, store: Store) -> None:
        """After a start: nothing acknowledged is missing. From now on the model is what the store has."""
        if self.model.leaving is not None and self.model.leaving not in store.topics():
            self.model.forget(self.model.leaving)
        self.model.leaving = None
        for key, acked in self.model.acked.items():
            top = store.max_offset(*key)
            assert top >= acked, f"{key} ends at {top}, {acked} were acknowledged"
        for key in self.model.sent:
            top = self.check_queue(store, key)
            del self.model.sent[key][top:]
            self.model.acked[key] = top
            self._check_keys(store, key)

    def _check_keys(self, store: Store, key: QueueKey) -> None:
        for offset in range(store.min_offset(*key), store.max_offset(*key), 5):
            body, _ = self.model.sent[key][offset]
            found = store.query_by_key(key[0], body.split(b":")[0].decode(), 10)
            assert [message.body for message in found] == [body], f"{key} at {offset} is not found by its key"

    def crash(self) -> None:
        self.model.low.clear()  # what retention had let go may be there again, once
        if self.chance.random() < 0.15:
            self.disk.kill()
        else:
            self.disk.cut_power()

    def restart(self, cut_chance: float = 0.3) -> Store:
        """Starts again; the power may go during the start itself, some times."""
        for _ in range(3):
            if self.chance.random() < cut_chance:
                self.disk.before = Faults(self.chance, cut_at=self.chance.randrange(1, 60))
            try:
                store = self.start()
            except PowerCut:
                self.crash()
                continue
            self.disk.before = None
            return store
        self.disk.before = None
        return self.start()

    def scrub(self) -> None:
        findings = [finding for finding in verify(self.disk) if not finding.harmless]
        assert findings == [], "; ".join(map(str, findings))


def run(
    seed: int,
    *,
    lives: int = 3,
    sync_fails: float = 0.0,
    write_fails: float = 0.0,
    opener: Callable[..., Store] = Store.open,
) -> None:
    """Some lives of one store, each ended by a crash; an `AssertionError` or anything else out of it is a violation."""
    world = World(seed, opener=opener)
    chance = world.chance
    for _ in range(chance.randrange(1, lives + 1)):
        store = world.restart()
        world.check(store)
        cut_at = chance.randrange(1, 400) if chance.random() < 0.7 else -1
        world.disk.before = Faults(chance, cut_at=cut_at, sync_fails=sync_fails, write_fails=write_fails)
        try:
            world.live(store, chance.randrange(5, 60))
            if chance.random() < 0.2:
                world.disk.before = None
                with suppress(StoreError):  # a call that failed before is told now
                    store.close()
        except PowerCut:
            pass
        world.crash()
    store = world.restart()
    world.check(store)
    store.close()
    world.scrub()
    store = world.start()
    world.check(store)
    store.close()
