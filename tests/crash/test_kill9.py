"""A real process that appends, and is killed. kill -9 does not test durability (the system keeps what was written); it tests that
a store which ends in the middle of anything comes back whole.
"""

import asyncio
import os
import random
import signal
import warnings
from functools import partial
from pathlib import Path

from tests.crash.harness import HOST, START_MS
from trimtab.broker.store import Store, StoreError, StoreSettings, ThreadExecutor
from trimtab.broker.store.scrub import verify
from trimtab.io.disk import RealDisk
from trimtab.wire.messages import Storable, decode_messages

ROUNDS = int(os.environ.get("TRIMTAB_KILLS", "100"))
SETTINGS = StoreSettings(
    segment_bytes=1 << 16,
    checkpoint_bytes=1 << 14,
    queue_file_entries=128,
    disk_free_bytes_min=0,
    retention_ms=0,
)


async def work(directory: str, first: int, pipe: int) -> None:
    """Appends for ever, with real threads; every acknowledged number goes out on a line of its own."""
    call_soon = asyncio.get_running_loop().call_soon_threadsafe
    executors = ThreadExecutor(call_soon, "sync"), ThreadExecutor(call_soon, "housekeeping")
    store = Store.open(RealDisk(directory), SETTINGS, executors=executors)
    os.write(pipe, b"ready\n")

    def acknowledge(lines: bytes, error: StoreError | None) -> None:
        assert error is None
        os.write(pipe, lines)

    number = first
    while True:
        lines = b""
        end = 0
        for _ in range(number % 5 + 1):
            message = Storable(b"T", b"%d:" % number + b"x" * (number % 300), b"", number % 3, START_MS, HOST)
            appended = store.append(message, START_MS, HOST)
            lines += b"%d %d %d\n" % (number, number % 3, appended.queue_offset)
            end = appended.end
            number += 1
        store.write()
        store.on_visible(end, partial(acknowledge, lines))
        store.tick(number)
        await asyncio.sleep(0 if store.written_end - store.durable_end < 1 << 13 else 0.001)


def start_child(directory: Path, first: int) -> tuple[int, int]:
    """Process id, and the pipe on which it says what it acknowledged."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # threads of other tests do not matter to this child
        child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        asyncio.run(work(str(directory), first, writing))
    finally:
        os._exit(1)  # never back into the test run


def one_round(directory: Path, first: int, pause_bytes: int) -> list[tuple[int, int, int]]:
    """Kills the child after it has said so many bytes; gives what it had acknowledged: number, queue, offset."""
    child, pipe = start_child(directory, first)
    said = b""
    while len(said) < pause_bytes:
        piece = os.read(pipe, 4096)
        assert piece, "the child died by itself"
        said += piece
    os.kill(child, signal.SIGKILL)
    while piece := os.read(pipe, 4096):
        said += piece
    os.close(pipe)
    os.waitpid(child, 0)
    lines = said.split(b"\n")[1:-1]  # without the greeting, and without a line that was cut
    acked = [line.split() for line in lines]
    return [(int(number), int(queue), int(offset)) for number, queue, offset in acked]


def test_a_killed_store_has_everything_it_acknowledged(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    acked: dict[tuple[int, int], int] = {}
    first = 0
    for _ in range(ROUNDS):
        for number, queue, offset in one_round(tmp_path, first, chance.randrange(7, 8_000)):
            assert (queue, offset) not in acked, f"offset given out twice, seed {seed}"
            acked[queue, offset] = number
        first = check(tmp_path, acked, seed)
    assert verify(RealDisk(tmp_path)) == []
    assert len(acked) > ROUNDS


def check(directory: Path, acked: dict[tuple[int, int], int], seed: int) -> int:
    """Everything acknowledged is there; gives a number that was never used."""
    store = Store.open(RealDisk(directory), SETTINGS)
    there = {}
    for queue in range(3):
        offset = 0
        while offset < store.max_offset("T", queue):
            result = store.read("T", queue, offset, messages_max=1000, bytes_max=1 << 20)
            for message in decode_messages(result.body):
                assert message.queue_offset == offset, f"a gap, seed {seed}"
                there[queue, offset] = int(message.body.split(b":")[0])
                offset += 1
    store.close()
    assert acked.items() <= there.items(), f"lost or changed, seed {seed}"
    assert len(set(there.values())) == len(there), f"stored twice, seed {seed}"
    acked.update(there)  # it was shown now, so it must stay
    return max(there.values(), default=-1) + 1
