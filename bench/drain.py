"""Draining a topic of an Apache broker: our push consumer, polls and columns beside the stock Java push consumer, in one run.

All begin with their first message, so that starting a client does not count. Every figure is the median of several rounds in which everybody has a
turn. `TRIMTAB_BENCH_SCALE` makes the million messages fewer, `TRIMTAB_BENCH_APACHE` picks versions.
"""

import json
import os
import statistics
import subprocess
import sys
import uuid
from functools import cache

import uvloop

from bench.load import Load, sends_per_second
from bench.report import Row, met
from tests.apache.cluster import ApacheCluster
from tests.apache.oracle import SOURCES, JavaOracle

MESSAGES = 1_000_000
ROUNDS = int(os.environ.get("TRIMTAB_BENCH_ROUNDS", "3"))
SCALE = float(os.environ.get("TRIMTAB_BENCH_SCALE", "1"))
APACHE = tuple(os.environ.get("TRIMTAB_BENCH_APACHE", "4.9.3").split(","))
SERVER_JVM = ("-XX:TieredStopAtLevel=4", "-Xms512m", "-Xmx1g")

OURS: dict[str, list[str]] = {
    "columns": ["--api", "columns"],
    "polls": ["--api", "pull"],
    "push, lists of 32": ["--api", "push", "--batch", "32"],
    "push, one message": ["--api", "push"],
}
JAVA = {"Java push, lists of 32": 32, "Java push, one message": 1}
GOALS = {"columns": 2.5, "push, lists of 32": 2.0, "push, one message": 1.0}
"""How many times the Java push consumer's rate, at least."""
WASTED_PERCENT_MAX = 5.0


@cache
def _java(version: str) -> JavaOracle:
    return JavaOracle(version, SOURCES / "bench" / "DrainBench.java")


def java_drain(version: str, nameserver: str, topic: str, messages: int, batch: int) -> tuple[float, float]:
    """Messages a second, and messages a second of CPU."""
    args = [nameserver, topic, f"java-{uuid.uuid4().hex[:8]}", str(messages), str(batch)]
    report = json.loads(_java(version).run(args=args, jvm_args=SERVER_JVM)[-1])
    return report["messages"] / report["seconds"], report["messages"] / report["cpu_seconds"]


def our_drain(nameserver: str, topic: str, options: list[str]) -> dict[str, float]:
    """`trimtab bench drain` in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "trimtab",
        "bench",
        "drain",
        "-n",
        nameserver,
        "--topic",
        topic,
        "--json",
    ]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    report: dict[str, float] = json.loads(done.stdout)
    return report


def rows() -> list[Row]:
    found = []
    for version in APACHE:
        with ApacheCluster(version, heap_mib=1024) as cluster:
            found += _rows(version, cluster)
    return found


def _rows(version: str, cluster: ApacheCluster) -> list[Row]:
    topic, messages = "bench-drain", int(MESSAGES * SCALE) // 800 * 800
    uvloop.run(sends_per_second(cluster.brokers[0].address, Load(topic, messages, 128, 4, 100)))
    names = (*OURS, *JAVA)
    rates: dict[str, list[float]] = {name: [] for name in names}
    by_cpu: dict[str, list[float]] = {name: [] for name in names}
    pulls: dict[str, list[float]] = {name: [0, 0] for name in OURS}
    for _ in range(ROUNDS):
        for name, batch in JAVA.items():
            rate, cpu_rate = java_drain(version, cluster.nameserver, topic, messages, batch)
            rates[name].append(rate)
            by_cpu[name].append(cpu_rate)
        for name, options in OURS.items():
            report = our_drain(cluster.nameserver, topic, options)
            if report["messages"] < messages:
                raise RuntimeError(f"{name} drained {report['messages']} of {messages} messages")
            rates[name].append(report["messages_per_second"])
            by_cpu[name].append(report["messages"] / report["cpu_seconds"])
            pulls[name][0] += report["pulls"]
            pulls[name][1] += report["wasted_pulls"]
    return [
        *_beside(f"{version}: ", rates, GOALS),
        *_beside(f"{version}, per CPU second: ", by_cpu, {}),
        *(_wasted(version, name, *counted) for name, counted in pulls.items()),
    ]


def _wasted(version: str, name: str, sent: float, wasted: float) -> Row:
    percent = 100 * wasted / sent if sent else 0.0
    note = f"{wasted:,.0f} of {sent:,.0f}; goal < {WASTED_PERCENT_MAX:g}: {met(percent < WASTED_PERCENT_MAX)}"
    return Row(f"{version}: pulls wasted, percent: {name}", percent, None, note)


def _beside(what: str, rates: dict[str, list[float]], goals: dict[str, float]) -> list[Row]:
    """Ours beside the better of Java's two ways."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    note = ", ".join(f"{name} {medians[name]:,.0f}" for name in JAVA)
    java = max(medians[name] for name in JAVA)
    return [
        Row(f"{what}{name}", medians[name], java, note + _goal(name, medians[name] / java, goals))
        for name in OURS
    ]


def _goal(name: str, ratio: float, goals: dict[str, float]) -> str:
    goal = goals.get(name)
    return "" if goal is None else f"; goal ≥ {goal:g}×: {met(ratio >= goal)}"
