"""Our producer beside the stock Java one: the same Apache broker, the same run, each in a process of its own."""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from bench.java_client import java_sends
from bench.report import Row, met
from tests.apache.cluster import ApacheCluster
from trimtab.client.producer import Producer
from trimtab.client.send_load import SendLoad, run_send_load
from trimtab.io.connection import PeerConnection
from trimtab.io.loops import new_event_loop
from trimtab.settings import Sending
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command

RUNS = int(os.environ.get("TRIMTAB_BENCH_RUNS", "5"))
SCALE = float(os.environ.get("TRIMTAB_BENCH_SCALE", "1"))
APACHE = os.environ.get("TRIMTAB_BENCH_APACHE", "4.9.3").split(",")[0]
SIZES = (128, 1024)
QUEUES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    name: str
    java_kind: str
    in_flight: int
    messages: int
    goal: float
    """How many times Java's messages a second ours should be."""
    batch: int = 1
    batching: bool = True


LOADS = [
    Load(name="1 in flight", java_kind="sync", in_flight=1, messages=20_000, goal=2.0),
    Load(name="64 in flight", java_kind="sync", in_flight=64, messages=100_000, goal=2.0),
    Load(name="1,000 in flight", java_kind="async", in_flight=1_000, messages=200_000, goal=4.0),
    Load(
        name="1,000 in flight, no natural batching",
        java_kind="async",
        in_flight=1_000,
        batching=False,
        messages=100_000,
        goal=1.2,
    ),
    Load(name="batches of 100", java_kind="batch", in_flight=4, batch=100, messages=400_000, goal=1.3),
]


def our_sends(
    nameserver: str, topic: str, *, in_flight: int, size: int, messages: int, batch: int, batching: bool
) -> dict[str, Any]:
    """What our producer reaches, in a process of its own, after a quarter of the load to warm up."""
    options = {
        "nameserver": nameserver, "topic": topic, "in_flight": in_flight, "body_bytes": size, "messages": messages,
        "batch_messages": batch, "batching": batching,
    }  # fmt: skip
    command = [sys.executable, "-m", "bench.producers", json.dumps(options)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


async def _measured(options: dict[str, Any]) -> dict[str, Any]:

    nameserver, batching = options.pop("nameserver"), options.pop("batching")
    load = SendLoad(**options)
    warm_up = SendLoad(**options | {"messages": max(load.batch_messages, load.messages // 4)})
    async with Producer("bench", nameserver=nameserver, sending=Sending(batching=batching)) as producer:
        await run_send_load(producer, warm_up)
        cpu_s = time.process_time()
        report = await run_send_load(producer, load)
        cpu_s = time.process_time() - cpu_s
    return {
        "messages_per_second": report.messages_per_second, "p50_ms": report.p50_ms, "p99_ms": report.p99_ms,
        "errors": report.errors, "cpu_seconds": cpu_s,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def create_topic(address: str, topic: str, queues: int = QUEUES) -> None:
    """On one broker, by the bare request."""

    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip

    async def ask() -> None:
        connection = await PeerConnection.open(address)
        command = Command(
            code=RequestCode.UPDATE_AND_CREATE_TOPIC, opaque=connection.next_opaque(), ext=fields
        )
        answer = await connection.ask(command, timeout_s=10)
        connection.close()
        if answer.code:
            raise RuntimeError(f"{topic}: {answer.remark}")

    asyncio.run(ask())


def rows() -> list[Row]:
    found = []
    with ApacheCluster(APACHE, heap_mib=1024) as cluster:
        for size in SIZES:
            topic = f"bench-{size}"
            create_topic(cluster.brokers[0].address, topic)
            for load in LOADS:
                count = max(load.batch * load.in_flight, int(load.messages * SCALE))
                ours, java = [], []
                for _ in range(RUNS):
                    ours.append(
                        our_sends(
                            cluster.nameserver,
                            topic,
                            in_flight=load.in_flight,
                            size=size,
                            messages=count,
                            batch=load.batch,
                            batching=load.batching,
                        )
                    )
                    java.append(
                        java_sends(
                            cluster.nameserver,
                            topic,
                            load.java_kind,
                            in_flight=load.in_flight,
                            size=size,
                            messages=count,
                            batch=load.batch,
                        )
                    )
                found.append(_row(f"{load.name}, {size} B", ours, java, count, load.goal))
    return found


def _row(
    name: str, ours: list[dict[str, Any]], java: list[dict[str, Any]], messages: int, goal: float
) -> Row:
    def median(runs: list[dict[str, Any]], field: str) -> float:
        return float(statistics.median(run[field] for run in runs))

    def told(runs: list[dict[str, Any]]) -> str:
        cpu_s = median(runs, "cpu_seconds") / messages * 1e6
        return (
            f"p50 {median(runs, 'p50_ms'):.2f} p99 {median(runs, 'p99_ms'):.2f} ms, {cpu_s:.1f} CPU s/M,"
            f" {median(runs, 'rss_mib'):.0f} MiB, errors {sum(run['errors'] for run in runs)}"
        )

    our_rate, java_rate = median(ours, "messages_per_second"), median(java, "messages_per_second")
    goal_told = f"goal {goal:g}×: {met(our_rate >= goal * java_rate)}"
    return Row(name, our_rate, java_rate, f"{goal_told}; ours {told(ours)}; Java {told(java)}")


def main(options: str) -> None:

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        print(json.dumps(runner.run(_measured(json.loads(options)))))


if __name__ == "__main__":
    main(sys.argv[1])
