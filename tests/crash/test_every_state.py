"""Every short history, every place where the power may go in it, every state that the disk may then be in.

Where the other crash tests draw by chance, this one goes through everything: chance is replaced by something that gives all of its
answers, one history after the other. Of the many lengths of a torn write three stand for all: nothing, half, everything but nothing.
`TRIMTAB_CRASH_OPERATIONS=5` is for a night.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from random import Random

import pytest

from tests.crash.harness import HOST, START_MS, SteppedExecutor
from trimtab.broker.store import Store, StoreError, StoreSettings
from trimtab.broker.store.log import SyncJob
from trimtab.sim.disk import PowerCut, SimDisk
from trimtab.wire.messages import Storable, decode_messages

OPERATIONS_MAX = int(os.environ.get("TRIMTAB_CRASH_OPERATIONS", "3"))
SETTINGS = StoreSettings(
    segment_bytes=1 << 10,
    checkpoint_bytes=1 << 10,
    disk_free_bytes_min=0,
    retention_ms=0,
    queue_file_entries=64,
)
FATES = 10
FATE_OF_EACH_KIND = (0, 3, 6)
"""Of an unsynced write: lost, whole, torn. See `SimDisk.settle`."""


class EveryChance(Random):
    """Gives all answers: `advance` after each run, until it says that there are no more."""

    def __init__(self) -> None:
        super().__init__(1)
        self._path: list[tuple[int, int]] = []
        self._at = 0

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert stop is None
        assert step == 1
        answers = _answers(start)
        if self._at == len(self._path):
            self._path.append((0, len(answers)))
        chosen, count = self._path[self._at]
        assert count == len(answers), "the same beginning asks the same questions"
        self._at += 1
        return answers[chosen]

    def advance(self) -> bool:
        self._at = 0
        while self._path and self._path[-1][0] + 1 == self._path[-1][1]:
            self._path.pop()
        if not self._path:
            return False
        chosen, count = self._path[-1]
        self._path[-1] = (chosen + 1, count)
        return True


def _answers(count: int) -> tuple[int, ...]:
    if count == FATES:
        return FATE_OF_EACH_KIND
    return tuple(range(count)) if count <= 4 else (0, count // 2, count - 1)


class Life:
    """One store on an empty disk, and what it has acknowledged."""

    def __init__(self, chance: Random) -> None:
        self.disk = SimDisk(chance)
        self.syncs, self.chores = SteppedExecutor(), SteppedExecutor()
        self.store = Store.open(self.disk, SETTINGS, executors=(self.syncs, self.chores), chance=Random(1))
        self.sent: list[bytes] = []
        self.acked = 0
        self._now_ms = 0

    def do(self, operation: str) -> None:
        {"send": self._send, "sync": self._sync, "checkpoint": self._checkpoint}[operation]()

    def _send(self) -> None:
        body = b"%d" % len(self.sent) * 150
        self.sent.append(body)
        appended = self.store.append(Storable(b"T", body, b"", 0, START_MS, HOST), START_MS, HOST)
        self.store.write()
        self.store.on_visible(appended.end, self._acknowledge)

    def _acknowledge(self, failure: StoreError | None) -> None:
        assert failure is None
        self.acked += 1

    def _sync(self) -> None:
        self.syncs.run_one()
        self.syncs.tell_one()

    def _checkpoint(self) -> None:
        self._now_ms += 10_000
        self.store.tick(self._now_ms)
        self.chores.run_one()
        self.chores.tell_one()


def live(operations: tuple[str, ...], cut_at: int | None, chance: Random) -> tuple[Life, int]:
    """A life in which the power goes at a call of the last operation; without `cut_at`, how many calls that has."""
    life = Life(chance)
    for operation in operations[:-1]:
        life.do(operation)
    calls = 0

    def before(call: str, name: str) -> None:
        nonlocal calls
        calls += 1
        if calls == cut_at:
            raise PowerCut

    life.disk.before = before
    with suppress(PowerCut):
        life.do(operations[-1])
    life.disk.before = None
    return life, calls


def judge(life: Life) -> None:
    """After the power came back: all that was acknowledged, nothing that was not sent, in order."""
    life.disk.cut_power()
    store = Store.open(life.disk, SETTINGS, chance=Random(1))
    top = store.max_offset("T", 0)
    assert life.acked <= top <= len(life.sent)
    body = b"".join(store.read("T", 0, offset, messages_max=9, bytes_max=1).body for offset in range(top))
    assert [message.body for message in decode_messages(body)] == life.sent[:top]
    store.close()


def histories(longest: int) -> Iterator[tuple[str, ...]]:
    for length in range(1, longest + 1):
        yield from product(("send", "sync", "checkpoint"), repeat=length)


def go_through_all(longest: int) -> int:
    """The number of states that were judged."""
    states = 0
    for operations in histories(longest):
        _, calls = live(operations, None, Random(1))
        for cut_at in (*range(1, calls + 1), None):
            chance = EveryChance()
            is_left = True
            while is_left:
                life, _ = live(operations, cut_at, chance)
                try:
                    judge(life)
                except Exception as error:
                    error.add_note(f"{operations}, the power goes at call {cut_at}, state {states}")
                    raise
                states += 1
                is_left = chance.advance()
    return states


def test_in_every_state_that_a_power_cut_may_leave_nothing_acknowledged_is_lost() -> None:
    assert go_through_all(OPERATIONS_MAX) > 100 * OPERATIONS_MAX, "there are more states than that"


def test_a_store_that_does_not_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncJob, "run", lambda job: None)
    with pytest.raises(AssertionError):
        go_through_all(3)
