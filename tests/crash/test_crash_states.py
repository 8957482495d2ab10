"""Power cuts, kills and failing calls at every place, some thousand times; the harness says what must hold.

Each seed is one history: `TRIMTAB_CRASH_SEEDS=1 python -m pytest tests/crash` runs few, a night runs 100,000. A failure prints its seed;
`python -c "from tests.crash.harness import run; run(SEED)"` brings it back.
"""

from collections.abc import Callable

import pytest

from tests.crash.harness import SEEDS, run
from trimtab.broker.store.checkpoint import CheckpointJob
from trimtab.broker.store.log import Log, SyncJob
from trimtab.broker.store.progress import StateFile
from trimtab.broker.store.store import Store
from trimtab.sim.disk import PowerCut

BLOCKS = 8


def run_seeds(first: int, count: int, *, sync_fails: float = 0.0, write_fails: float = 0.0) -> None:
    for seed in range(first, first + count):
        try:
            run(seed, sync_fails=sync_fails, write_fails=write_fails)
        except (Exception, PowerCut) as exc:
            exc.add_note(f"seed {seed}, sync_fails={sync_fails}, write_fails={write_fails}")
            raise


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_power_cut_takes_nothing_that_was_acknowledged(block: int) -> None:
    count = -(-SEEDS // (2 * BLOCKS))
    run_seeds(block * count, count)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_failing_syncs_and_writes_take_nothing_that_was_acknowledged(block: int) -> None:
    count = -(-SEEDS // (2 * BLOCKS))
    run_seeds(1_000_000 + block * count, count, sync_fails=0.02, write_fails=0.02 * (block % 2))


def checkpoint_first(job: CheckpointJob, run_job: Callable[[CheckpointJob], None]) -> None:
    job._replace(flushes=[], chunk=None)
    run_job(job._replace(flushes=[], chunk=None))
    run_job(job)


def break_checkpoint_order(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CheckpointJob.run
    monkeypatch.setattr(CheckpointJob, "run", lambda job: checkpoint_first(job, whole))


def break_log_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncJob, "run", lambda job: None)


def break_directory_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SyncJob.run
    monkeypatch.setattr(SyncJob, "run", lambda job: whole(job._replace(directory_changed=False)))


def break_sync_of_the_segment_before(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SyncJob.run
    monkeypatch.setattr(SyncJob, "run", lambda job: whole(job._replace(files=job.files[-1:])))


def break_visibility(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "visible_end", property(lambda store: store.written_end))


def break_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "_write_again", lambda log, base, offset, end: None)


def break_state_rename(monkeypatch: pytest.MonkeyPatch) -> None:
    def save(state: StateFile, data: bytes) -> None:
        whole(state, data)
        slot = state._slots[state._generation % 2]
        with_data = state._disk.open(slot)
        raw = with_data.pread(with_data.size(), 0)
        with_data.truncate(0)
        with_data.pwrite(raw, 0)  # in place, unsynced, over the only copy of this generation
        other = state._slots[(state._generation + 1) % 2]
        if other in state._disk.names("state"):
            state._disk.remove(other)

    whole = StateFile.save
    monkeypatch.setattr(StateFile, "save", save)


def ignore_failed_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SyncJob.run

    def run_job(job: SyncJob) -> None:
        try:
            whole(job)
        except OSError:
            return

    monkeypatch.setattr(SyncJob, "run", run_job)


@pytest.mark.parametrize(
    ("break_it", "sync_fails"),
    [
        (break_checkpoint_order, 0.0),
        (break_log_sync, 0.0),
        (break_directory_sync, 0.0),
        (break_sync_of_the_segment_before, 0.0),
        (break_visibility, 0.0),
        (break_settling, 0.0),
        (break_state_rename, 0.0),
        (ignore_failed_syncs, 0.05),
    ],
)
def test_the_harness_catches_a_store_that_is_broken(
    monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None], sync_fails: float
) -> None:
    break_it(monkeypatch)
    for seed in range(2_000):
        try:
            run(seed, sync_fails=sync_fails)
        except Exception:  # noqa: BLE001 - however it shows
            return
    pytest.fail("2,000 seeds did not notice")
