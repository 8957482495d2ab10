"""Calls that fail: each one once, each one for ever, and a disk without room."""

import errno
import os
import resource
from pathlib import Path
from random import Random

import pytest

from tests.crash.harness import HOST, START_MS, Faults, World
from tests.crash.images import make_store, show
from trimtab.broker.store import (
    Store,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreSettings,
    StoreWriteError,
)
from trimtab.broker.store.scrub import verify
from trimtab.io.disk import RealDisk
from trimtab.sim.disk import SimDisk
from trimtab.wire.messages import Storable, decode_messages


class NthFails:
    """The n-th call fails, or all from it on."""

    def __init__(self, number: int, code: int, *, for_ever: bool) -> None:
        self.calls = 0
        self._number = number
        self._code = code
        self._for_ever = for_ever
        self.failed_sync = False

    def __call__(self, call: str, name: str) -> None:
        self.calls += 1
        if self.calls == self._number or (self._for_ever and self.calls > self._number):
            self.failed_sync |= call == "sync" and name.startswith("log/")
            raise OSError(self._code, f"simulated: {call} of {name}")


def live_with(fault: NthFails, sends: int = 9) -> World:
    """One store's life with a fault in it, everything in place; then the power goes."""
    world = World(11)
    world.disk.before = fault
    try:
        store = Store.open(world.disk, world.settings, chance=Random(1))
    except StoreError:
        world.crash()
        return world
    for number in range(sends):
        acked, failed_sync = dict(world.model.acked), fault.failed_sync
        world.send(store)
        if failed_sync:
            assert world.model.acked == acked, "nothing is acknowledged after a failed sync"
            assert isinstance(store.refusal, StoreReadOnlyError)
        if number % 4 == 3:
            world.tick(store)
            world.save(store)
    world.crash()
    return world


def number_of_calls(sends: int = 9) -> int:
    counting = NthFails(-1, 0, for_ever=False)
    live_with(counting, sends)
    return counting.calls


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("for_ever", [False, True])
def test_whichever_call_fails_nothing_acknowledged_is_lost(code: int, for_ever: bool) -> None:
    calls = number_of_calls()
    assert calls > 150
    for number in range(1, calls + 1):
        world = live_with(NthFails(number, code, for_ever=for_ever))
        try:
            store = world.start()
            world.check(store)
            store.close()
            world.scrub()
        except Exception as exc:
            exc.add_note(f"call {number} failed with {errno.errorcode[code]}, for_ever={for_ever}")
            raise


def test_in_a_longer_life_whichever_call_fails_nothing_acknowledged_is_lost() -> None:
    is_full = bool(os.environ.get("TRIMTAB_FULL"))
    sends = 300 if is_full else 80
    calls = number_of_calls(sends)
    assert calls > 10 * sends
    for number in range(1, calls + 1, 1 if is_full else 29):
        for_ever = number % 2 == 0
        world = live_with(NthFails(number, errno.EIO, for_ever=for_ever), sends)
        try:
            store = world.start()
            world.check(store)
            store.close()
            world.scrub()
        except Exception as exc:
            exc.add_note(f"call {number} of {calls} failed, for_ever={for_ever}")
            raise


def refuses(store: Store) -> bool:
    return store.refusal is not None


def message(number: int) -> Storable:
    return Storable(b"T", b"%d" % number, b"", 0, START_MS, HOST)


def test_a_failed_sync_ends_writing_and_not_reading() -> None:
    disk = SimDisk(Random(1))
    store, sents = make_store(disk)
    shown = len(sents["alpha", 0])
    disk.before = Faults(Random(1), sync_fails=1.0)
    outcomes: list[StoreError | None] = []
    appended = store.append(message(1), START_MS, HOST)
    store.write()
    store.on_durable(appended.end, outcomes.append)
    disk.before = None
    assert [type(outcome) for outcome in outcomes] == [StoreReadOnlyError]
    with pytest.raises(StoreReadOnlyError, match="start the broker again"):
        store.append(message(2), START_MS, HOST)
    assert store.max_offset("T", 0) == 0, "what is not durable is not shown"
    assert show(store, "alpha", 0, shown - 1) == sents["alpha", 0][-1].body
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.append(message(3), START_MS, HOST)


def test_a_refused_batch_gives_its_offsets_back() -> None:
    disk = SimDisk(Random(1))
    store, _ = make_store(disk)
    store.append(message(0), START_MS, HOST)
    store.write()
    end = store.written_end
    disk.before = Faults(Random(1), write_fails=1.0)
    store.append(message(1), START_MS, HOST)
    with pytest.raises(StoreWriteError, match="make room"):
        store.write()
    disk.before = None
    assert store.written_end == end
    again = store.append(message(2), START_MS, HOST)
    store.write()
    assert again.queue_offset == 1
    assert show(store, "T", 0, 1) == b"2"
    store.close()
    assert verify(disk) == []


def test_the_store_stops_before_the_disk_is_full_and_goes_on_when_there_is_room() -> None:
    disk = SimDisk(Random(1), capacity_bytes=200_000)
    settings = StoreSettings(
        segment_bytes=4096, checkpoint_bytes=4096, disk_free_bytes_min=60_000, retention_ms=0
    )
    store = Store.open(disk, settings, chance=Random(1))
    taken = 0
    while not refuses(store):
        store.append(message(taken), START_MS, HOST)
        store.write()
        store.tick(taken * 1000)
        taken += 1
    assert taken > 100
    with pytest.raises(StoreFullError, match="make room"):
        store.append(message(taken), START_MS, HOST)
    assert disk.free_bytes() > 20_000
    assert show(store, "T", 0, taken - 1) == b"%d" % (taken - 1)
    disk.capacity_bytes = 1 << 30
    store.tick(1 << 40)
    assert not refuses(store)
    store.append(message(taken), START_MS, HOST)
    store.close()
    assert verify(disk) == []


def test_a_disk_that_is_full_to_the_brim_damages_nothing() -> None:
    disk = SimDisk(Random(1), capacity_bytes=60_000)
    settings = StoreSettings(segment_bytes=4096, checkpoint_bytes=4096, disk_free_bytes_min=0, retention_ms=0)
    store = Store.open(disk, settings, chance=Random(1))
    stored = 0
    refused = 0
    for number in range(600):
        try:
            store.append(message(number), START_MS, HOST)
            store.write()
        except StoreError:
            refused += 1
        else:
            stored += 1
        store.tick(number * 1000)
    assert refused
    assert stored
    bodies: list[bytes] = []
    while len(bodies) < stored:
        result = store.read("T", 0, len(bodies), messages_max=100, bytes_max=1 << 20)
        bodies += [one.body for one in decode_messages(result.body)]
    assert len(set(bodies)) == stored
    disk.capacity_bytes = 1 << 30
    store.tick(1 << 40)
    store.append(message(1), START_MS, HOST)
    store.close()
    assert verify(disk) == []
    store = Store.open(disk, settings)
    assert store.max_offset("T", 0) == stored + 1


def test_a_real_file_that_may_not_grow_refuses_a_batch_and_keeps_the_rest(tmp_path: Path) -> None:
    """RLIMIT_FSIZE gives a short write first and then an error, as a full disk does."""
    disk = RealDisk(tmp_path)
    store = Store.open(disk, StoreSettings(disk_free_bytes_min=0))
    store.append(message(0), START_MS, HOST)
    store.write()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    segment = next(tmp_path.glob("log/*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (segment.stat().st_size + 100, hard))
    try:
        store.append(message(1), START_MS, HOST)
        with pytest.raises(StoreWriteError):
            store.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.append(message(2), START_MS, HOST).queue_offset == 1
    store.close()
    assert verify(disk) == []
    store = Store.open(disk, StoreSettings(disk_free_bytes_min=0))
    assert [show(store, "T", 0, offset) for offset in range(2)] == [b"0", b"2"]
    store.close()


def test_a_slow_disk_delays_acknowledgements_and_nothing_else() -> None:
    world = World(3)
    store = world.start()
    world.send(store)
    world.send(store)
    assert world.model.acked == {}, "nothing is acknowledged while the sync runs"
    world.look(store)
    for executor in world.executors:
        executor.close()
    if world.settings.flush == "async":
        world.tick(store)
        world.executors[0].close()
    assert world.model.acked == {key: len(sent) for key, sent in world.model.sent.items()}
    world.look(store)


def test_seeds_are_repeatable() -> None:
    def trace(seed: int) -> list[tuple[str, str]]:
        calls: list[tuple[str, str]] = []
        world = World(seed)
        store = world.start()
        world.disk.before = lambda call, name: calls.append((call, name))
        world.live(store, 60)
        return calls

    assert trace(5) == trace(5)


class FilesRunOut:
    """While `is_short`, no file and no directory can be opened; files that are open can be used."""

    def __init__(self) -> None:
        self.is_short = False
        self.refused = 0

    def __call__(self, call: str, name: str) -> None:
        if self.is_short and call in {"open", "sync_dir"}:
            self.refused += 1
            raise OSError(errno.EMFILE, "Too many open files", name)


@pytest.mark.parametrize("segment_bytes", [1 << 10, 1 << 20])
def test_a_store_that_could_open_no_file_for_a_while_goes_on_as_if_nothing_had_been(
    segment_bytes: int,
) -> None:
    disk, files = SimDisk(Random(1)), FilesRunOut()
    settings = StoreSettings(
        disk_free_bytes_min=0, checkpoint_bytes=4096, segment_bytes=segment_bytes, flush_interval_ms=1
    )
    store = Store.open(disk, settings, chance=Random(1))
    disk.before = files
    stored: list[int] = []
    acked: list[int] = []
    for number in range(60):
        files.is_short = number % 20 >= 10
        try:
            end = store.append(message(number), START_MS, HOST).end
            store.write()
        except StoreWriteError:
            continue
        else:
            stored.append(number)
            store.on_durable(end, lambda failure, number=number: acked.append(number))  # type: ignore[misc]
        store.tick(10_000 * (number + 1))
        assert store.refusal is None
    files.is_short = False
    store.tick(1_000_000)
    assert files.refused
    assert acked == stored, "all that was taken is durable in the end"
    assert [int(show(store, "T", 0, offset)) for offset in range(len(stored))] == stored
    disk.cut_power()
    assert verify(disk) == []


def test_reading_closes_a_file_for_the_one_that_it_needs() -> None:
    disk = SimDisk(Random(1))
    store, sents = make_store(disk)
    shown = show(store, "alpha", 0, 0)
    opens = 0

    def one_in_two(call: str, name: str) -> None:
        nonlocal opens
        if call == "open":
            opens += 1
            if opens % 2:
                raise OSError(errno.ENFILE, "Too many open files in system", name)

    disk.before = one_in_two
    for offset, sent in enumerate(sents["alpha", 0]):
        assert show(store, "alpha", 0, offset) == sent.body
    disk.before = None
    assert show(store, "alpha", 0, 0) == shown
    store.close()


def test_a_read_that_finds_no_file_to_spare_says_try_again_and_not_damaged() -> None:
    disk, files = SimDisk(Random(1)), FilesRunOut()
    store, sents = make_store(disk)
    store.close()
    store = Store.open(disk, StoreSettings(disk_free_bytes_min=0), chance=Random(1))
    disk.before = files
    files.is_short = True
    with pytest.raises(StoreBusyError, match="try again") as caught:
        show(store, "alpha", 0, 0)
    assert caught.value.retriable
    files.is_short = False
    assert show(store, "alpha", 0, 0) == sents["alpha", 0][0].body
    store.close()
