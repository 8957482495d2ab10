"""One of three brokers answers 20 ms late: what each policy makes of it, on our brokers and on Apache's; medians of 3 runs."""

import asyncio
import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.java_client import java_sends
from bench.own import own_cluster
from bench.producers import create_topic
from bench.proxies import slow_links
from bench.report import Row, met
from tests.apache.cluster import ApacheCluster
from trimtab.client.producer import Producer
from trimtab.client.send_load import SendLoad, run_send_load
from trimtab.settings import Sending

SCALE = float(os.environ.get("TRIMTAB_BENCH_SCALE", "1"))
APACHE = os.environ.get("TRIMTAB_BENCH_APACHE", "4.9.3").split(",")[0]
BROKERS = 3
LATE_MS = 20.0
PER_SECOND = 2_000
BODY_BYTES = 512
SECONDS = 20
RUNS = 3
POLICIES = ("round-robin", "classic-4.2", "4.9.3", "adaptive")
TOPIC = "slow"


@contextmanager
def _servers(which: str) -> Iterator[tuple[str, list[str]]]:
    with ExitStack() as stack:
        if which == "ours":
            ready = stack.enter_context(own_cluster("async", brokers=BROKERS))
            yield ready["nameserver"], list(ready["brokers"].values())
        else:
            cluster = stack.enter_context(ApacheCluster(which, brokers=BROKERS))
            yield cluster.nameserver, [broker.address for broker in cluster.brokers]


async def _ours(nameserver: str, policy: str, messages: int) -> dict[str, float]:
    """After a quarter of the load to warm up, as Java's client has it."""
    warm_up = SendLoad(topic=TOPIC, messages=messages // 4, body_bytes=BODY_BYTES, per_second=PER_SECOND)
    load = SendLoad(topic=TOPIC, messages=messages, body_bytes=BODY_BYTES, per_second=PER_SECOND)
    async with Producer("bench", nameserver=nameserver, sending=Sending(policy=policy)) as producer:
        await run_send_load(producer, warm_up)
        report = await run_send_load(producer, load)
    return {
        "messages_per_second": report.messages_per_second, "mean_ms": report.mean_ms, "p99_ms": report.p99_ms,
        "errors": report.errors, **_shares(report.shares, messages),
    }  # fmt: skip


def _java(nameserver: str, messages: int, *, is_on: bool) -> dict[str, float]:
    java = java_sends(
        nameserver, TOPIC, "open", in_flight=10_000, size=BODY_BYTES, messages=messages, latency_fault=is_on,
        per_second=PER_SECOND,
    )  # fmt: skip
    return java | _shares(java.pop("shares"), messages)


def _shares(counts: dict[str, int], messages: int) -> dict[str, float]:
    return {f"share {name}": count / messages for name, count in counts.items()}


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    names = {name for run in runs for name in run}
    return {name: statistics.median(run.get(name, 0.0) for run in runs) for name in names}


def rows() -> list[Row]:
    found = []
    messages = int(PER_SECOND * SECONDS * SCALE)
    for which in ("ours", APACHE):
        with _servers(which) as (nameserver, addresses):
            for address in addresses:
                create_topic(address, TOPIC, 4)
            delays = {address: LATE_MS if number == 0 else 0.0 for number, address in enumerate(addresses)}
            with slow_links(nameserver, delays) as seen_at:
                # All of them in turn, several times: whatever else the machine does meets each.
                runs: dict[str, list[dict[str, float]]] = {}
                for _ in range(RUNS):
                    for policy in POLICIES:
                        runs.setdefault(policy, []).append(asyncio.run(_ours(seen_at, policy, messages)))
                    for is_on in (False, True):
                        name = f"Java, latency fault {'on' if is_on else 'off'}"
                        runs.setdefault(name, []).append(_java(seen_at, messages, is_on=is_on))
        found += _table(which, {name: _medians(reports) for name, reports in runs.items()})
    return found


def _table(which: str, reports: dict[str, dict[str, float]]) -> list[Row]:
    best_ms = min(report["p99_ms"] for report in reports.values())
    found = []
    for name, report in reports.items():
        goal = f"goal best p99 of all: {met(report['p99_ms'] <= best_ms)}; " if name == "adaptive" else ""
        shares = " ".join(f"{report.get(f'share broker-{letter}', 0.0):.1%}" for letter in "abc")
        note = (
            f"{goal}mean {report['mean_ms']:.2f} ms, p99 {report['p99_ms']:.2f} ms, slow/other/other {shares},"
            f" errors {report['errors']:.0f}"
        )
        found.append(Row(f"{which} brokers: {name}", report["messages_per_second"], None, note))
    return found
