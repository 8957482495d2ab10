import asyncio
import threading

import pytest

from tests.unit.broker.store.shared import bodies, put
from trimtab.broker.store import Store, StoreError, StoreSettings, ThreadExecutor
from trimtab.broker.store.flusher import Done, Flusher, Job
from trimtab.broker.store.handles import Handles
from trimtab.broker.store.log import Log
from trimtab.io.disk import MemoryDisk


class Held:
    """An executor that waits to be told."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, Done]] = []

    def submit(self, job: Job, done: Done) -> None:
        self.jobs.append((job, done))

    def finish(self, failure: Exception | None = None) -> None:
        job, done = self.jobs.pop(0)
        if failure is None:
            job()
        done(failure)

    def close(self) -> None:
        while self.jobs:
            self.finish()


class Waiting:
    def __init__(self) -> None:
        self.told: list[StoreError | None] = []

    def __call__(self, error: StoreError | None) -> None:
        self.told.append(error)


def held_store() -> tuple[Store, Held]:
    held = Held()
    return Store.open(MemoryDisk(), StoreSettings(disk_free_bytes_min=0), executors=(held, Held())), held


def test_all_who_wait_when_a_sync_begins_are_served_by_it_and_no_more() -> None:
    store, held = held_store()
    first, second, third = Waiting(), Waiting(), Waiting()
    store.on_visible(put(store).end, first)
    store.on_visible(put(store).end, second)
    store.on_visible(put(store).end, third)
    assert len(held.jobs) == 1, "one sync at a time"
    held.finish()
    assert (first.told, second.told, third.told) == ([None], [], [])
    assert len(held.jobs) == 1, "the others share the next one"
    held.finish()
    assert (second.told, third.told) == ([None], [None])
    assert held.jobs == []


def test_nothing_is_shown_before_it_is_durable() -> None:
    store, held = held_store()
    put(store, b"one")
    assert store.max_offset("T", 0) == 0
    assert bodies(store) == []
    held.finish()
    assert store.max_offset("T", 0) == 1
    assert bodies(store) == [b"one"]


def test_async_flush_shows_at_once_and_syncs_by_the_clock() -> None:
    held = Held()
    settings = StoreSettings(flush="async", flush_interval_ms=500, disk_free_bytes_min=0)
    store = Store.open(MemoryDisk(), settings, executors=(held, Held()))
    visible, durable = Waiting(), Waiting()
    end = put(store, b"one").end
    store.on_visible(end, visible)
    store.on_durable(end, durable)
    assert visible.told == [None]
    assert bodies(store) == [b"one"]
    store.tick(1000)
    assert len(held.jobs) == 1
    held.finish()
    assert durable.told == [None]
    put(store)
    store.tick(1499)
    assert held.jobs == []
    store.tick(1500)
    assert len(held.jobs) == 1


def test_a_failed_sync_fails_all_who_wait_and_all_who_come_later() -> None:
    store, held = held_store()
    waiting, later = Waiting(), Waiting()
    end = put(store).end
    store.on_visible(end, waiting)
    held.finish(OSError(5, "broken"))
    store.on_durable(end, later)
    for told in (waiting.told, later.told):
        assert [type(error).__name__ for error in told] == ["StoreReadOnlyError"]
        assert "broken" in str(told[0])
    assert held.jobs == []


def test_a_waiter_may_write() -> None:
    store, held = held_store()
    seen = Waiting()

    def again(error: StoreError | None) -> None:
        assert error is None
        store.on_visible(put(store, b"two").end, seen)

    store.on_visible(put(store, b"one").end, again)
    held.finish()
    assert len(held.jobs) == 1
    held.finish()
    assert seen.told == [None]
    assert bodies(store) == [b"one", b"two"]


def test_closing_syncs_and_tells_those_who_wait() -> None:
    store, _ = held_store()
    waiting = Waiting()
    store.on_visible(put(store).end, waiting)
    late = put(store)
    store.on_visible(late.end, waiting)
    store.close()
    assert waiting.told == [None, None]


def test_threads_call_back_on_the_loop() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        executors = (
            ThreadExecutor(loop.call_soon_threadsafe, "sync"),
            ThreadExecutor(loop.call_soon_threadsafe, "housekeeping"),
        )
        store = Store.open(MemoryDisk(), StoreSettings(disk_free_bytes_min=0), executors=executors)
        told: asyncio.Queue[tuple[StoreError | None, int]] = asyncio.Queue()
        for _ in range(50):
            appended = put(store)
            store.on_visible(appended.end, lambda error: told.put_nowait((error, threading.get_ident())))
            await asyncio.sleep(0)
        store.save_state("progress", b"here", lambda error: told.put_nowait((error, threading.get_ident())))
        for _ in range(51):
            assert await told.get() == (None, threading.get_ident())
        assert store.max_offset("T", 0) == 50
        assert store.load_state("progress").data == b"here"
        store.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_an_executor_that_is_closed_has_told_everything() -> None:
    told: list[Exception | None] = []
    executor = ThreadExecutor(lambda deliver: None, "lost loop")

    def fail() -> None:
        raise OSError(5, "broken")

    executor.submit(lambda: None, told.append)
    executor.submit(fail, told.append)
    executor.close()
    assert told[0] is None
    assert isinstance(told[1], OSError)


def test_a_sync_without_anything_written_does_not_start() -> None:
    disk, held = MemoryDisk(), Held()
    log = Log(disk, Handles(disk, 4), StoreSettings(), salt=1)
    Flusher(log, held, lambda error: pytest.fail(str(error)), lambda: None).request()
    assert held.jobs == []
