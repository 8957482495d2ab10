"""The store alone, on a real disk: what appending, reading and starting again cost."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import Row, print_rows
from trimtab.broker.store import Store, StoreSettings
from trimtab.io.disk import RealDisk
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import Storable, encode_stored

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
NOW_MS = 1_700_000_000_000
QUEUES = 8
MESSAGES = 200_000
RECOVERY_BYTES = 256 << 20
TAG = tags_code("a")
SETTINGS = StoreSettings(flush="async", disk_free_bytes_min=0)


@contextmanager
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="trimtab-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def messages(count: int) -> list[tuple[Storable, tuple[bytes]]]:
    """128-byte bodies with a tag and a unique key, as a producer's are."""
    made = []
    for number in range(count):
        key = b"7F00000100002A9F%016d" % number
        properties = b"UNIQ_KEY\x01%b\x02TAGS\x01a" % key
        made.append((Storable(b"BenchTopic", b"x" * 128, properties, number % QUEUES, NOW_MS, HOST), (key,)))
    return made


def fill(store: Store, made: list[tuple[Storable, tuple[bytes]]], batch: int) -> float:
    append, write = store.append, store.write
    begin = time.perf_counter()
    for start in range(0, len(made), batch):
        for message, keys in made[start : start + batch]:
            append(message, NOW_MS, HOST, TAG, keys)
        write()
        store.tick(int(time.perf_counter() * 1000))
    return len(made) / (time.perf_counter() - begin)


def append_row(batch: int, flush: str) -> Row:
    made = messages(MESSAGES if batch > 1 else MESSAGES // 5)
    rates = []
    settings = SETTINGS if flush == "async" else StoreSettings(disk_free_bytes_min=0)
    for _ in range(3):
        with directory() as path:
            store = Store.open(RealDisk(path), settings)
            rates.append(fill(store, made, batch))
            store.close()
    return Row(f"append + write, batches of {batch}, {flush}", sorted(rates)[1])


def encode_row() -> Row:
    made = messages(MESSAGES)
    rates = []
    for _ in range(3):
        begin = time.perf_counter()
        for message, _ in made:
            encode_stored(message, 1, 2, NOW_MS, HOST)
        rates.append(len(made) / (time.perf_counter() - begin))
    return Row("encode alone", sorted(rates)[1], note="what the rates above are to be held against")


def drain(store: Store, messages_max: int, bytes_max: int) -> float:
    begin = time.perf_counter()
    count = 0
    for queue_id in range(QUEUES):
        offset = 0
        top = store.max_offset("BenchTopic", queue_id)
        while offset < top:
            result = store.read(
                "BenchTopic", queue_id, offset, messages_max=messages_max, bytes_max=bytes_max
            )
            offset = result.next_offset
            count += result.count
    return count / (time.perf_counter() - begin)


def read_rows(batch: int) -> list[Row]:
    with directory() as path:
        store = Store.open(RealDisk(path), SETTINGS)
        fill(store, messages(MESSAGES), batch)
        few = sorted(drain(store, 32, 1 << 20) for _ in range(3))[1]
        many = sorted(drain(store, 1 << 20, 1 << 20) for _ in range(3))[1]
        store.close()
    return [Row("read, 32 messages a time", few), Row("read, 1 MiB a time", many)]


def recovery_rows() -> list[Row]:
    """A store as kill -9 leaves it: the object is simply dropped, without closing."""
    made = messages(MESSAGES)
    with directory() as path:
        disk = RealDisk(path)
        store = Store.open(disk, SETTINGS)
        while store.written_end < RECOVERY_BYTES:
            fill(store, made, 1000)
        written = store.written_end
        behind = written - store.stats().checkpointed
        disk.unlock()
        begin = time.perf_counter()
        store = Store.open(RealDisk(path), SETTINGS)
        after_crash = time.perf_counter() - begin
        store.close()
        begin = time.perf_counter()
        store = Store.open(RealDisk(path), SETTINGS)
        after_close = time.perf_counter() - begin
        store.close()
        begin = time.perf_counter()
        Store.open(RealDisk(path), SETTINGS, rebuild=True).close()
        rebuild = time.perf_counter() - begin
    gib = written / (1 << 30)
    return [
        Row(
            "starts after a crash",
            1 / after_crash,
            note=f"{after_crash:.2f} s, {behind >> 20} MiB were looked through",
        ),
        Row("starts after a close", 1 / after_close, note=f"{after_close * 1000:.1f} ms"),
        Row("rebuilds", 1 / rebuild, note=f"{rebuild / gib:.1f} s per GiB"),
    ]


def rows() -> list[Row]:
    appends = [append_row(batch, flush) for flush in ("async", "sync") for batch in (1, 64, 1000)]
    return [*appends, encode_row(), *read_rows(1000), *recovery_rows()]


if __name__ == "__main__":
    print_rows(rows())
