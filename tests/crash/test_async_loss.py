"""Async flush: what a power cut may take is what came within the flush interval and the batch on its way, and always a suffix."""

from random import Random

from tests.crash.harness import HOST, START_MS
from trimtab.broker.store import Store, StoreSettings
from trimtab.sim.disk import SimDisk
from trimtab.wire.messages import Storable, decode_messages

SEEDS = 200
FLUSH_MS = 500
TICK_MS = 100
"""The shell ticks that often, so a flush may be so much late."""


def test_a_power_cut_takes_at_most_the_flush_interval_and_always_a_suffix() -> None:
    worst_ms = 0
    for seed in range(SEEDS):
        chance = Random(seed)
        disk = SimDisk(chance)
        settings = StoreSettings(
            flush="async", flush_interval_ms=FLUSH_MS, disk_free_bytes_min=0, segment_bytes=1 << 14
        )
        store = Store.open(disk, settings, chance=Random(1))
        sent: list[tuple[int, bytes]] = []
        now_ms = 0
        for _ in range(chance.randrange(5, 60)):
            now_ms += TICK_MS
            for _ in range(chance.randrange(4)):
                body = b"%d:" % len(sent) + chance.randbytes(chance.randrange(300))
                store.append(Storable(b"T", body, b"", 0, START_MS, HOST), START_MS + now_ms, HOST)
                sent.append((now_ms, body))
            store.write()
            if chance.random() < 0.9:  # a tick may be late
                store.tick(now_ms)
        store.tick(now_ms)
        disk.cut_power()
        store = Store.open(disk, settings, chance=Random(1))
        kept = store.max_offset("T", 0)
        body = store.read("T", 0, 0, messages_max=10_000, bytes_max=1 << 24).body if kept else b""
        assert [message.body for message in decode_messages(body)] == [each for _, each in sent[:kept]], seed
        if kept < len(sent):
            worst_ms = max(worst_ms, now_ms - sent[kept][0])
        store.close()
    assert 0 < worst_ms <= FLUSH_MS + TICK_MS, f"{worst_ms} ms of messages were lost"
