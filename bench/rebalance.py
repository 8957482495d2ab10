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
UNHELD_MS_GOAL = HANDLER_MS + 300
SERVER_JVM = ("-XX:TieredStopAtLevel=4", "-Xms512m", "-Xmx1g")
FIGURES = (
    "lost", "double_held_s", "unheld_s", "unheld_ms_max", "undelivered_s", "undelivered_ms_max", "moved", "converge_ms_max",
)  # fmt: skip

Report = dict[str, Any]


def rows() -> list[Row]:
    found = []
    for name in SERVERS:
        reports = changes_on(name)
        java = reports["Java classic"]
        found += [
            _row(name, who, report, None if report is java else java) for who, report in reports.items()
        ]
    return found


def changes_on(server: str) -> dict[str, Report]:
    """What each client made of the same changes, on one start of the servers."""
    with nameserver_of(server, "async") as nameserver:
        reports = {"Java classic": _java_changes(nameserver)}
        for mode in ("classic", "leased"):
            reports[f"ours {mode}"] = _our_changes(nameserver, mode)
    return reports


def our_command(nameserver: str, mode: str) -> list[str]:
    """The words of `trimtab bench rebalance` with this load."""
    options = {
        "--members": MEMBERS, "--changes": CHANGES, "--rate": PER_SECOND, "--handler-ms": HANDLER_MS, "--mode": mode,
        "--queues": QUEUES, "--pause-s": f"{PAUSE_S:g}",
    }  # fmt: skip
    words = [str(word) for option in options.items() for word in option]
    return ["bench", "rebalance", "-n", nameserver, "--json", *words]


def goals(who: str, report: Report) -> dict[str, bool]:
    """What is wanted of a client, and whether this run showed it."""
    wanted = {"lost 0": report["lost"] == 0}
    if who == "ours leased":
        wanted |= {
            "twice 0": report["delivered_twice"] == 0,
            "double_held 0": report["double_held_s"] == 0,
            f"unheld at most {UNHELD_MS_GOAL} ms": report["unheld_ms_max"] <= UNHELD_MS_GOAL,
        }
    return wanted


@cache
def _java() -> JavaOracle:
    return JavaOracle(JAVA_CLIENT, SOURCES / "bench" / "RebalanceBench.java")


def _java_changes(nameserver: str) -> Report:
    """The same changes with the stock client; topic and group are gone afterwards."""
    topic = f"bench-rebalance-{uuid.uuid4().hex[:8]}"
    args = [nameserver, topic, topic, QUEUES, MEMBERS, CHANGES, PER_SECOND, HANDLER_MS, int(PAUSE_S * 1_000)]
    with blocking.Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=QUEUES)
        try:
            lines = _java().run(args=[str(arg) for arg in args], jvm_args=SERVER_JVM)
        finally:
            admin.delete_topic(topic)
            admin.delete_group(topic)
    report: Report = json.loads(lines[-1])
    return report


def _our_changes(nameserver: str, mode: str) -> Report:
    command = [sys.executable, "-m", "trimtab", *our_command(nameserver, mode)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report: Report = json.loads(done.stdout)
    return report


def _row(server: str, who: str, report: Report, java: Report | None) -> Row:
    figures = ", ".join(f"{name} {report[name]:,}" for name in FIGURES)
    told = ", ".join(f"{goal}: {met(is_met)}" for goal, is_met in goals(who, report).items())
    note = f"of {report['sent']:,} sent; {figures}; goals {told}"
    twice = None if java is None else float(java["delivered_twice"])
    return Row(f"{server}: {who}, delivered twice", report["delivered_twice"], twice, note)
