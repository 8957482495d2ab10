"""From a send to the handler at 2,000 messages a second: our push consumer beside the stock Java one, at the same Apache broker.

Sender and consumer are processes of their own. Each message carries the monotonic nanoseconds of its send, which are one clock for all processes of a
Linux machine. The first quarter warms up and is not counted. Consumers take turns, each with a topic of its own. `TRIMTAB_BENCH_SCALE` makes it
shorter, `TRIMTAB_BENCH_APACHE` picks versions.
"""

import asyncio
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from functools import cache
from pathlib import Path

from bench.report import Row
from tests.apache.cluster import ApacheCluster
from tests.apache.conversation import Conversation
from tests.apache.oracle import SOURCES, JavaOracle
from trimtab.client.admin import Admin
from trimtab.client.producer import Producer
from trimtab.client.push import PushConsumer
from trimtab.client.received import Received
from trimtab.io.loops import new_event_loop
from trimtab.model import Message
from trimtab.settings import Sending, Timeouts

PER_SECOND = 2_000
SECONDS = 30
WARM_SHARE = 0.25
QUEUES = 8
SIZE = 128
TURN_S = 0.002
ANSWER_S_MAX = 360.0
ROUNDS = int(os.environ.get("TRIMTAB_BENCH_ROUNDS", "3"))
SCALE = float(os.environ.get("TRIMTAB_BENCH_SCALE", "1"))
APACHE = tuple(os.environ.get("TRIMTAB_BENCH_APACHE", "4.9.3").split(","))
SERVER_JVM = ("-XX:TieredStopAtLevel=4", "-Xms512m", "-Xmx1g")
_STAMP = struct.Struct(">qq")


@cache
def _java(version: str) -> JavaOracle:
    return JavaOracle(version, SOURCES / "bench" / "LatencyBench.java")


def rows() -> list[Row]:
    found = []
    for version in APACHE:
        with ApacheCluster(version, heap_mib=1024) as cluster:
            found += _rows(version, cluster.nameserver)
    return found


def _rows(version: str, nameserver: str) -> list[Row]:
    end = max(100, int(PER_SECOND * SECONDS * SCALE))
    taken: dict[str, list[dict[str, float]]] = {"ours": [], "java": []}
    for _ in range(ROUNDS):
        for who, runs in taken.items():
            runs.append(_one_run(version, nameserver, who, end))
    return [
        Row(
            f"{version}: {what}, µs from send to handler at {PER_SECOND:,}/s",
            statistics.median(run[f"{what}_us"] for run in taken["ours"]),
            statistics.median(run[f"{what}_us"] for run in taken["java"]),
            f"lower is better; median of {ROUNDS} runs of {end:,} messages",
        )
        for what in ("p50", "p99")
    ]


def _one_run(version: str, nameserver: str, who: str, end: int) -> dict[str, float]:
    topic = f"bench-latency-{who}-{uuid.uuid4().hex[:8]}"
    asyncio.run(_make(nameserver, topic))
    args = [nameserver, topic, f"{topic}-group", str(int(end * WARM_SHARE)), str(end)]
    with _consumer(version, who, args) as consumer:
        _send(nameserver, topic, -QUEUES * 4, 0)
        assert consumer.hear(ANSWER_S_MAX) == "ready"
        _send(nameserver, topic, 0, end)
        report: dict[str, float] = json.loads(consumer.hear(ANSWER_S_MAX))
    return report


def _consumer(version: str, who: str, args: list[str]) -> Conversation:
    if who == "java":
        return _java(version).start(args, SERVER_JVM)
    return _process("consume", args)


def _process(role: str, args: list[str]) -> Conversation:
    # It runs in a folder of its own, so it is told where this package is.
    root = str(Path(__file__).parents[1])
    program = f"import sys; sys.path.insert(0, {root!r}); from bench.consume_latency import main; main(*sys.argv[1:])"
    home = Path(tempfile.mkdtemp(prefix="trimtab-bench-"))
    return Conversation(role, [sys.executable, "-c", program, role, *args], home)


def _send(nameserver: str, topic: str, first: int, end: int) -> None:
    command = [sys.executable, "-m", "bench.consume_latency", "send", nameserver, topic, str(first), str(end)]
    subprocess.run(command, check=True, timeout=ANSWER_S_MAX)


async def _make(nameserver: str, topic: str) -> None:
    async with Admin(nameserver=nameserver) as admin:
        await admin.create_topic(topic, queues=QUEUES)


# --- in processes of their own --------------------------------------------------------------------------------------


async def send(nameserver: str, topic: str, first: int, end: int) -> None:
    """The messages `first` to `end`, evenly, whatever comes back."""
    sending = Sending(batching=False, policy="round-robin")
    # Every message must get there, or the consumer waits in vain: a busy machine may take its time.
    timeouts = Timeouts(send_s=60.0)
    async with Producer(
        "bench-latency", nameserver=nameserver, sending=sending, timeouts=timeouts
    ) as producer:
        begin, number, unanswered = time.monotonic(), first, set[asyncio.Task[object]]()
        while number < end:
            due = min(end, first + int((time.monotonic() - begin) * PER_SECOND) + 1)
            for one in range(number, due):
                body = _STAMP.pack(one, time.monotonic_ns()).ljust(SIZE, b"x")
                task: asyncio.Task[object] = asyncio.create_task(producer.send(Message(topic, body)))
                unanswered.add(task)
                task.add_done_callback(unanswered.discard)
            number = due
            await asyncio.sleep(TURN_S)
        await asyncio.gather(*unanswered)


async def consume(nameserver: str, topic: str, group: str, first: int, end: int) -> None:
    """Says `ready`, and then how old messages were when the handler got them."""
    nanos, is_ready, done = dict[int, int](), asyncio.Event(), asyncio.Event()

    async def handle(message: Received) -> None:
        number, sent_ns = _STAMP.unpack_from(message.body)
        if number < 0:
            is_ready.set()
        else:
            nanos.setdefault(number, time.monotonic_ns() - sent_ns)
            if len(nanos) == end:
                done.set()

    async with PushConsumer(
        group, subscribe={topic: "*"}, handler=handle, nameserver=nameserver, start="first"
    ):
        await is_ready.wait()
        print("ready", flush=True)
        await done.wait()
    counted = sorted(taken for number, taken in nanos.items() if number >= first)
    at = {"p50_us": 0.5, "p99_us": 0.99, "max_us": 1.0}
    print(
        json.dumps({name: counted[int((len(counted) - 1) * share)] / 1e3 for name, share in at.items()}),
        flush=True,
    )


def main(role: str, nameserver: str, topic: str, *rest: str) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if role == "send":
            runner.run(send(nameserver, topic, *map(int, rest)))
        else:
            runner.run(consume(nameserver, topic, rest[0], *map(int, rest[1:])))


if __name__ == "__main__":
    main(*sys.argv[1:])
