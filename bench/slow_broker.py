"""One of three brokers answers 20 ms late: what each policy makes of it, on our brokers and on Apache's."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.java_client import java_sends
from bench.own import own_cluster
from bench.producers import create_topic
from bench.proxies import slow_links
from bench.report import Row
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

    load = SendLoad(topic=TOPIC, messages=messages, body_bytes=BODY_BYTES, per_second=PER_SECOND)
    async with Producer("bench", nameserver=nameserver, sending=Sending(policy=policy)) as producer:
        report = await run_send_load(producer, load)
    return {
        "messages_per_second": report.messages_per_second, "mean_ms": report.mean_ms, "p99_ms": report.p99_ms,
        "errors": report.errors, **{f"share {name}": count / messages for name, count in report.shares.items()},
    }  # fmt: skip


def rows() -> list[Row]:
    found = []
    messages = int(PER_SECOND * SECONDS * SCALE)
    for which in ("ours", APACHE):
        with _servers(which) as (nameserver, addresses):
            for address in addresses:
                create_topic(address, TOPIC, 4)
            delays = {address: LATE_MS if number == 0 else 0.0 for number, address in enumerate(addresses)}
            with slow_links(nameserver, delays) as seen_at:
                found += [
                    _row(which, policy, asyncio.run(_ours(seen_at, policy, messages))) for policy in POLICIES
                ]
                for is_on in (False, True):
                    java = java_sends(
                        seen_at, TOPIC, "open", in_flight=10_000, size=BODY_BYTES, messages=messages,
                        latency_fault=is_on, per_second=PER_SECOND,
                    )  # fmt: skip
                    java |= {f"share {name}": count / messages for name, count in java["shares"].items()}
                    found.append(_row(which, f"Java, latency fault {'on' if is_on else 'off'}", java))
    return found


def _row(which: str, policy: str, report: dict[str, float]) -> Row:
    shares = " ".join(f"{report.get(f'share broker-{letter}', 0.0):.1%}" for letter in "abc")
    note = f"mean {report['mean_ms']:.2f} ms, p99 {report['p99_ms']:.2f} ms, slow/other/other {shares}, errors {report['errors']:.0f}"
    return Row(f"{which} brokers: {policy}", report["messages_per_second"], None, note)
