"""What a broker promises besides its speed: ready soon, back soon, flat in memory, undisturbed by who waits, quick to deliver."""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.brokers import APACHE, SCALE, apache_broker
from bench.latency import latencies
from bench.load import QUEUES, Load, pulls_per_second, sends_per_second
from bench.report import Row, verdict
from tests.peers import Peer, pull_header
from trimtab.wire.hot import encode_pull_request

STARTS = 7
BACKLOG = 5_000_000
RSS_BYTES_MAX = 300 << 20
RECOVERY_S_PER_GIB_MAX = 2.0
READY_S_MAX = 0.5
IDLE_CONNECTIONS = 1_000
PULLS_PER_CONNECTION = 10
WAITS_MS = 600_000
WAITING_OPAQUE = 1 << 20
ROUNDS = 5
LATENCY_S = 5.0
BATCH = 100


@dataclass(frozen=True, slots=True)
class Running:
    process: "subprocess.Popen[str]"
    address: str
    ready_s: float


@contextmanager
def started(*options: str) -> Iterator[Running]:
    """`trimtab up`, from the start of the process to its word that it is ready."""
    command = [
        sys.executable,
        "-m",
        "trimtab",
        "up",
        "--json",
        "--nameserver-port",
        "0",
        "--broker-port",
        "0",
    ]
    begin = time.perf_counter()
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        yield Running(process, str(facts["brokers"]["broker-a"]), time.perf_counter() - begin)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        process.wait(60)


# --- ready --------------------------------------------------------------------------------------------------------


def ready_rows() -> list[Row]:
    return [_ready_row("in memory"), _ready_row("in an empty folder")]


def recovery_verdict(seconds: float, gib: float) -> str:
    return verdict(
        f"{RECOVERY_S_PER_GIB_MAX} s per GiB", is_met=seconds <= RECOVERY_S_PER_GIB_MAX * max(gib, 1)
    )


def memory_verdict(bytes_max: int) -> str:
    return verdict(f"{RSS_BYTES_MAX >> 20} MiB", is_met=bytes_max <= RSS_BYTES_MAX)


def _ready_row(where: str) -> Row:
    seconds = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as folder:
            options = ["--memory"] if where == "in memory" else ["--data", folder]
            with started(*options) as running:
                seconds.append(running.ready_s)
    median = statistics.median(seconds)
    note = f"{median:.2f} s, the slowest {max(seconds):.2f} s; {verdict(f'{READY_S_MAX} s', is_met=median <= READY_S_MAX)}"
    return Row(f"ready {where}", 1 / median, note=note)


# --- a backlog, and a crash -----------------------------------------------------------------------------------------


class Watch:
    """The memory of a process, looked at again and again."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/statm")
        self.bytes_max = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._stop.wait(0.05):
            self.bytes_max = max(self.bytes_max, int(self._status.read_text().split()[1]) * page)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def backlog_rows() -> list[Row]:
    """Written, drained, written again and killed in the midst of that, started again."""
    messages = int(BACKLOG * SCALE) // (BATCH * QUEUES) * BATCH * QUEUES
    load = Load("backlog", messages, 128, 4, BATCH)
    with tempfile.TemporaryDirectory() as folder:
        with started("--data", folder, "--flush", "async") as running:
            watch = Watch(running.process.pid)
            written = uvloop.run(sends_per_second(running.address, load))
            after_write = watch.bytes_max
            drained = uvloop.run(pulls_per_second(running.address, load.topic, 1 << 20))
            watch.stop()
            _kill_under_load(running, load)
        log_bytes = sum(file.stat().st_size for file in Path(folder, "broker-a", "log").iterdir())
        with started("--data", folder, "--flush", "async") as running:
            back_s = running.ready_s
    gib = log_bytes / (1 << 30)
    memory = f"{messages:,} messages; at most {after_write >> 20} MiB of memory"
    return [
        Row("backlog written", written, note=f"{memory}; {memory_verdict(after_write)}"),
        Row(
            "backlog drained",
            drained,
            note=f"at most {watch.bytes_max >> 20} MiB; {memory_verdict(watch.bytes_max)}",
        ),
        Row(
            "ready after kill -9",
            1 / back_s,
            note=f"{back_s:.2f} s with {gib:.2f} GiB of log; {recovery_verdict(back_s, gib)}",
        ),
    ]


def _kill_under_load(running: Running, load: Load) -> None:
    async def load_until_killed() -> None:
        sending = asyncio.create_task(sends_per_second(running.address, load))
        await asyncio.sleep(1)
        running.process.send_signal(signal.SIGKILL)
        with suppress(ConnectionError):
            await sending

    uvloop.run(load_until_killed())


# --- those who wait -------------------------------------------------------------------------------------------------


def idle_rows() -> list[Row]:
    """The same load with nobody else there, and with many who do nothing."""
    with started("--memory") as running:
        return [uvloop.run(_with_and_without(running.address))]


async def _with_and_without(address: str) -> Row:
    load = Load("busy", int(40_000 * SCALE), 128, 64)
    await sends_per_second(address, load)
    alone, crowded = [], []
    for _ in range(ROUNDS):
        alone.append(await sends_per_second(address, load))
        waiting = await _crowd(address)
        crowded.append(await sends_per_second(address, load))
        for peer in waiting:
            peer.connection.close()
        await asyncio.sleep(0.5)
    pulls = IDLE_CONNECTIONS * PULLS_PER_CONNECTION
    # Less than the spread of one run after the other is no cost.
    told = verdict("0.9×", is_met=statistics.median(crowded) >= 0.9 * statistics.median(alone))
    return Row(
        "sends beside the idle",
        statistics.median(crowded),
        statistics.median(alone),
        f"{IDLE_CONNECTIONS:,} connections that hold {pulls:,} pulls, beside none; {told}",
    )


async def _crowd(address: str) -> list[Peer]:
    async with await Peer.open(address) as maker:
        await maker.send("quiet", 0, b"first")
    peers = []
    for number in range(IDLE_CONNECTIONS):
        peer = await Peer.open(address)
        for pull in range(PULLS_PER_CONNECTION):
            queue = (number + pull) % QUEUES
            header = pull_header("quiet", queue, int(queue == 0), waits_ms=WAITS_MS)
            peer.connection.send(encode_pull_request(header, opaque=WAITING_OPAQUE + pull))
        peers.append(peer)
    await asyncio.gather(*(peer.pull("quiet", 0, 0) for peer in peers))
    return peers


# --- from end to end ------------------------------------------------------------------------------------------------


def latency_rows() -> list[Row]:
    """At half of what each server takes at 64 in flight; ours also at half of what the faster Apache broker takes."""
    found = []
    for flush in ("async", "sync"):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            own = stack.enter_context(started("--data", folder, "--flush", flush)).address
            servers = {"ours": own}
            servers |= {version: stack.enter_context(apache_broker(version, flush)) for version in APACHE}
            halves = {server: _most_per_s(address, flush) / 2 for server, address in servers.items()}
            for server, address in servers.items():
                found.append(_latency_row(f"{flush}, {server}", address, "seen", halves[server], "its most"))
            fastest = max(APACHE, key=halves.__getitem__)
            found.append(
                _latency_row(f"{flush}, ours", own, "seen-too", halves[fastest], f"{fastest}'s most")
            )
    return found


def _most_per_s(address: str, flush: str) -> float:
    load = Load("most", int(30_000 * SCALE) // (1 if flush == "async" else 4), 128, 64)
    return statistics.median([uvloop.run(sends_per_second(address, load)) for _ in range(4)][1:])


def _latency_row(name: str, address: str, topic: str, per_s: float, whose: str) -> Row:
    uvloop.run(sends_per_second(address, Load(topic, QUEUES, 128, 1)))
    seen = uvloop.run(latencies(address, topic, per_s, LATENCY_S * min(1, SCALE)))
    return Row(
        f"seen by a long poll, {name}",
        seen.per_second,
        note=f"p50 {seen.p50_ms:.1f} ms, p99 {seen.p99_ms:.1f} ms at half of {whose}",
    )


def rows() -> list[Row]:
    return [*ready_rows(), *backlog_rows(), *idle_rows(), *latency_rows()]
