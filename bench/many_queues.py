"""One push consumer with 1,000 queues and a backlog far beyond its cap: how much memory it takes while its handlers stand still.

The consumer is a process of its own. It is told to hold `CAP_MIB` of pulled messages at most; its resident memory is looked at before it starts and
all the time after. `TRIMTAB_BENCH_SCALE` makes the queues and the backlog fewer.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.own import own_cluster
from bench.report import Row, met
from trimtab.balance.progress import FlowLimits
from trimtab.client.admin import Admin
from trimtab.client.producer import Producer
from trimtab.client.push import PushConsumer
from trimtab.client.push_engine import ANSWERS_AT_ONCE_BYTES_MAX
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.io.loops import new_event_loop
from trimtab.model import Message, MessageQueue
from trimtab.settings import Pulling, Timeouts

SCALE = float(os.environ.get("TRIMTAB_BENCH_SCALE", "1"))
QUEUES = max(10, int(1_000 * SCALE))
CAP_MIB = 64
BACKLOG_PER_CAP = 4
SIZE = 4_096
OBJECTS_MIB = 64
"""Beside the bytes of messages: connections, 1,000 queues and their pulls, and the objects of what waits."""
WATCH_S = 20.0
SETTLE_S_MAX = 300.0
TOPIC = "bench-many-queues"
MIB = 1 << 20


def rows() -> list[Row]:
    messages = max(1, BACKLOG_PER_CAP * CAP_MIB * MIB // (SIZE * QUEUES))
    with own_cluster("async") as ready:
        nameserver = str(ready["nameserver"])
        asyncio.run(_fill(nameserver, messages))
        command = [sys.executable, "-m", "bench.many_queues", nameserver, str(QUEUES)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=2 * SETTLE_S_MAX
        )
    told = json.loads(done.stdout)
    grown = told["rss_mib_max"] - told["rss_mib_before"]
    note = (
        f"{told['queues']} queues, backlog {QUEUES * messages * SIZE / MIB:,.0f} MiB, held {told['held_mib_max']:.2f} MiB at most,"
        f" cap {CAP_MIB} MiB"
    )
    on_way_mib = ANSWERS_AT_ONCE_BYTES_MAX / MIB
    held = met(told["held_mib_max"] <= CAP_MIB + on_way_mib)
    memory = met(grown <= CAP_MIB + OBJECTS_MIB)
    return [
        Row("pulled and not handled, MiB at most", told["held_mib_max"], None, f"{note}; goal ≤ {CAP_MIB} and {on_way_mib:g} on their way: {held}"),
        Row("resident memory grown, MiB", grown, None, f"goal ≤ {CAP_MIB} + {OBJECTS_MIB}: {memory}"),
    ]  # fmt: skip


async def _fill(nameserver: str, messages: int) -> None:
    async with Admin(nameserver=nameserver) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    body = os.urandom(SIZE)  # nothing that a producer would make smaller
    async with Producer("bench", nameserver=nameserver, timeouts=Timeouts(send_s=60.0)) as producer:
        for number in range(QUEUES):
            queue = MessageQueue(TOPIC, "broker-a", number)
            await asyncio.gather(*(producer.send(Message(TOPIC, body), queue=queue) for _ in range(messages)))


# --- in a process of its own ----------------------------------------------------------------------------------------


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


async def consume(nameserver: str, queues: int) -> dict[str, float]:
    """Takes all queues, lets everything wait, and watches."""
    forever = asyncio.Event()

    async def handle(_: Received) -> None:
        await forever.wait()

    cap = CAP_MIB * MIB
    before_mib = _rss_mib()
    consumer = PushConsumer(
        "bench-many", subscribe={TOPIC: "*"}, handler=handle, nameserver=nameserver, start="first",
        consuming=Consuming(limits=FlowLimits(process_bytes_max=cap), drain_s_max=0), pulling=Pulling(held_bytes_max=cap),
    )  # fmt: skip
    async with consumer:
        rss_mib = held_mib = 0.0
        deadline, until = time.monotonic() + SETTLE_S_MAX, 0.0
        while not until or time.monotonic() < until:
            held = [holding for holding in consumer.holdings() if holding.queue.topic == TOPIC]
            if not until and len(held) >= queues:
                until = time.monotonic() + WATCH_S
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(held)} of {queues} queues are held after {SETTLE_S_MAX:g} s")
            rss_mib = max(rss_mib, _rss_mib())
            held_mib = max(held_mib, consumer.held_bytes / MIB)
            await asyncio.sleep(0.1)
        count = len(held)
    return {"queues": count, "rss_mib_before": before_mib, "rss_mib_max": rss_mib, "held_mib_max": held_mib}


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        print(json.dumps(runner.run(consume(sys.argv[1], int(sys.argv[2])))))
