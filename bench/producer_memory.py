"""Ten million messages through one producer: its memory while it sends. The broker keeps nothing, so that it is the producer that is seen."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.report import Row, met
from tests.unit.client.liar import HONEST, Liar, Talk
from trimtab.client.producer import Producer
from trimtab.io.loops import new_event_loop
from trimtab.model import Message
from trimtab.settings import Timeouts
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command

SCALE = float(os.environ.get("TRIMTAB_BENCH_SCALE", "1"))
MESSAGES = 10_000_000
BODY_BYTES = 128
IN_FLIGHT = 1_000
QUEUES = 8
SAMPLES_APART_S = 0.2
GROWTH_MAX = 0.05
GROWTH_MIB_MAX = 4.0
"""From the second quarter of the time to the last: a byte kept for each message would be more."""


class _Sink(Liar):
    """Says that everything is stored."""

    def asked(self, talk: Talk, command: Command) -> None:
        if command.code in HONEST or command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            super().asked(talk, command)
        else:
            talk.stored(command)


async def _sink() -> None:
    async with _Sink(queues=QUEUES) as sink:
        print(sink.address, flush=True)
        await asyncio.Event().wait()


async def _send(nameserver: str, messages: int) -> None:
    left = iter(range(messages))
    body = bytes(BODY_BYTES)
    began_s = time.perf_counter()
    async with Producer("bench", nameserver=nameserver, timeouts=Timeouts(send_s=60)) as producer:

        async def worker() -> None:
            for _ in left:
                await producer.send(Message("memory", body, tag="TagA"))

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    print(json.dumps({"seconds": time.perf_counter() - began_s}), flush=True)


def _rss_mib(pid: int) -> float | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), None)
    return None if line is None else int(line.split()[1]) / 1024


def rows() -> list[Row]:
    messages = int(MESSAGES * SCALE)
    me = [sys.executable, "-m", "bench.producer_memory"]
    sink = subprocess.Popen([*me, "sink"], stdout=subprocess.PIPE, text=True)
    try:
        assert sink.stdout is not None
        address = sink.stdout.readline().strip()
        sender = subprocess.Popen([*me, "send", address, str(messages)], stdout=subprocess.PIPE, text=True)
        samples = []
        while sender.poll() is None:
            rss_mib = _rss_mib(sender.pid)
            if rss_mib:
                samples.append(rss_mib)
            time.sleep(SAMPLES_APART_S)
        assert sender.stdout is not None
        told = sender.stdout.read()
    finally:
        sink.terminate()
        sink.wait(20)
    if sender.returncode:
        raise RuntimeError(f"the sender ended with {sender.returncode}")
    return [_row(messages, json.loads(told)["seconds"], samples)]


def _row(messages: int, seconds: float, samples: list[float]) -> Row:
    quarter = max(1, len(samples) // 4)
    before = statistics.median(samples[quarter : 2 * quarter] or samples)
    after = statistics.median(samples[-quarter:])
    is_flat = after - before <= max(GROWTH_MIB_MAX, GROWTH_MAX * before)
    note = f"goal memory flat: {met(is_flat)}; RSS {before:.1f} MiB in the second quarter of the time, {after:.1f} in the last, {max(samples):.1f} at most"
    return Row(
        f"{messages:,} messages of {BODY_BYTES} B through one producer", messages / seconds, None, note
    )


def main(args: list[str]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_sink() if args[0] == "sink" else _send(args[1], int(args[2])))


if __name__ == "__main__":
    main(sys.argv[1:])
