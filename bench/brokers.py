"""Our broker beside Apache's, with the same raw client, the same load and the same flush mode, in one run."""

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import uvloop

from bench.load import QUEUES, Load, pulls_per_second, sends_per_second
from bench.own import own_cluster
from bench.report import Row, verdict
from tests.apache.cluster import ApacheCluster

RUNS = 3
SCALE = float(os.environ.get("TRIMTAB_BENCH_SCALE", "1"))
APACHE = tuple(os.environ.get("TRIMTAB_BENCH_APACHE", "4.9.3,5.5.0").split(","))

LOADS = [
    ("1 in flight, 128 B", 128, 1, 1, 3_000),
    ("1 in flight, 1 KiB", 1024, 1, 1, 3_000),
    ("64 in flight, 128 B", 128, 64, 1, 40_000),
    ("64 in flight, 1 KiB", 1024, 64, 1, 40_000),
    ("1,000 in flight, 128 B", 128, 1_000, 1, 60_000),
    ("1,000 in flight, 1 KiB", 1024, 1_000, 1, 60_000),
    ("batches of 100, 4 in flight, 128 B", 128, 4, 100, 200_000),
]


@contextmanager
def own_broker(flush: str) -> Iterator[str]:
    """`trimtab up` in a process of its own; its broker's address."""
    with own_cluster(flush) as ready:
        yield str(next(iter(ready["brokers"].values())))


@contextmanager
def apache_broker(version: str, flush: str) -> Iterator[str]:
    settings = {"flushDiskType": "SYNC_FLUSH" if flush == "sync" else "ASYNC_FLUSH"}
    with ApacheCluster(version, broker_settings=settings, heap_mib=1024) as cluster:
        yield cluster.brokers[0].address


def measured(
    servers: dict[str, str], topic: str, size: int, in_flight: int, batch: int, messages: int
) -> dict[str, float]:
    """The median rate of each server. They take turns, so that what else the machine does is shared by all."""
    load = Load(topic, max(batch * QUEUES, int(messages * SCALE)), size, in_flight, batch)
    rates: dict[str, list[float]] = {server: [] for server in servers}
    for _ in range(RUNS + 1):
        for server, address in servers.items():
            rates[server].append(uvloop.run(sends_per_second(address, load)))
    return {server: statistics.median(taken[1:]) for server, taken in rates.items()}


def rows() -> list[Row]:
    found = []
    for flush in ("async", "sync"):
        with ExitStack() as stack:
            servers = {"ours": stack.enter_context(own_broker(flush))}
            servers |= {version: stack.enter_context(apache_broker(version, flush)) for version in APACHE}
            for name, size, in_flight, batch, messages in LOADS:
                count = messages if flush == "async" else messages // 4
                rates = measured(servers, f"bench-{in_flight}-{size}-{batch}", size, in_flight, batch, count)
                found.append(_row(f"send {flush}: {name}", rates, goal_of(flush, in_flight, batch)))
            found += _pull_rows(servers, flush)
    return found


def goal_of(flush: str, in_flight: int, batch: int) -> float:
    """How many times the faster Apache broker is wanted."""
    return 2.0 if flush == "async" and in_flight >= 64 and batch == 1 else 1.0


def _pull_rows(servers: dict[str, str], flush: str) -> list[Row]:
    """Medians too, with the servers taking turns."""
    topic = f"bench-{1_000}-{128}-{1}"
    by_count: dict[str, list[float]] = {server: [] for server in servers}
    by_bytes: list[float] = []
    for _ in range(RUNS + 1):
        for server, address in servers.items():
            by_count[server].append(uvloop.run(pulls_per_second(address, topic)))
        by_bytes.append(uvloop.run(pulls_per_second(servers["ours"], topic, 1 << 20)))
    stock = {server: statistics.median(taken[1:]) for server, taken in by_count.items()}
    large = stock | {"ours": statistics.median(by_bytes[1:])}
    return [
        _row(f"pull {flush}: 32 messages at most, 128 B", stock, 1.0),
        _row(f"pull {flush}: ours by bytes", large, 1.0),
    ]


def _row(name: str, rates: dict[str, float], goal: float) -> Row:
    others = {server: rate for server, rate in rates.items() if server != "ours"}
    fastest = max(others.values())
    note = ", ".join(f"{server} {rate:,.0f}" for server, rate in others.items())
    told = verdict(f"{goal:g}×", is_met=rates["ours"] >= goal * fastest)
    return Row(name, rates["ours"], fastest, f"{note}; {told}")
