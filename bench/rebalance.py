"""Planned membership changes under load: the stock Java consumer, ours in classic and in leased mode, on the same servers.

Four members, 2,000 messages a second, handlers of 30 ms; members leave in order and join, in turn. Every message has its number, so what came twice and
what was lost is counted. `TRIMTAB_BENCH_SCALE` makes the changes fewer, `TRIMTAB_BENCH_SERVERS` picks servers (`own`, `4.9.3`, `5.5.0`).
"""

import json
import os
import subprocess
import sys
import uuid
from functools import cache
from typing import Any

from bench.own import nameserver_of
from bench.report import Row, met
from tests.apache.oracle import SOURCES, JavaOracle
from trimtab import blocking

SCALE = float(os.environ.get("TRIMTAB_BENCH_SCALE", "1"))
SERVERS = tuple(os.environ.get("TRIMTAB_BENCH_SERVERS", "4.9.3,5.5.0,own").split(","))
JAVA_CLIENT = "4.9.3"
MEMBERS, CHANGES, PER_SECOND, HANDLER_MS, QUEUES, PAUSE_S = 4, max(2, int(8 * SCALE)), 2_000, 30, 16, 5.0
SERVER_JVM = ("-XX:TieredStopAtLevel=4", "-Xms512m", "-Xmx1g")
FIGURES = ("lost", "double_held_s", "unheld_s", "unheld_ms_max", "moved", "converge_ms_max")


@cache
def _java() -> JavaOracle:
    return JavaOracle(JAVA_CLIENT, SOURCES / "bench" / "RebalanceBench.java")


def rows() -> list[Row]:
    found = []
    for name in SERVERS:
        with nameserver_of(name, "async") as nameserver:
            java = java_changes(nameserver)
            found.append(_row(name, "Java classic", java, None))
            modes = ("classic", "leased")
            found += [_row(name, f"ours {mode}", our_changes(nameserver, mode), java) for mode in modes]
    return found


def java_changes(nameserver: str) -> dict[str, Any]:
    """The same changes with the stock client; topic and group are gone afterwards."""
    topic = f"bench-rebalance-{uuid.uuid4().hex[:8]}"
    with blocking.Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=QUEUES)
        try:
            args = [
                nameserver,
                topic,
                topic,
                QUEUES,
                MEMBERS,
                CHANGES,
                PER_SECOND,
                HANDLER_MS,
                int(PAUSE_S * 1_000),
            ]
            lines = _java().run(args=[str(arg) for arg in args], jvm_args=SERVER_JVM)
        finally:
            admin.delete_topic(topic)
            admin.delete_group(topic)
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def our_changes(nameserver: str, mode: str) -> dict[str, Any]:
    """`trimtab bench rebalance` in a process of its own."""
    options = {
        "--members": MEMBERS, "--changes": CHANGES, "--rate": PER_SECOND, "--handler-ms": HANDLER_MS, "--mode": mode,
        "--queues": QUEUES, "--pause-s": PAUSE_S,
    }  # fmt: skip
    words = [str(word) for option in options.items() for word in option]
    command = [sys.executable, "-m", "trimtab", "bench", "rebalance", "-n", nameserver, "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _row(server: str, who: str, report: dict[str, Any], java: dict[str, Any] | None) -> Row:
    figures = ", ".join(f"{name} {report[name]:,}" for name in FIGURES)
    note = f"of {report['sent']:,} sent; {figures}; {_goals(who, report)}"
    twice = None if java is None else float(java["delivered_twice"])
    return Row(f"{server}: {who}, delivered twice", report["delivered_twice"], twice, note)


def _goals(who: str, report: dict[str, Any]) -> str:
    goals = {"lost 0": report["lost"] == 0}
    if who == "ours leased":
        goals |= {"twice 0": report["delivered_twice"] == 0, "double_held 0": report["double_held_s"] == 0}
    return "goals " + ", ".join(f"{goal}: {met(is_met)}" for goal, is_met in goals.items())
