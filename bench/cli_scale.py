"""What the command line takes at 2,000 topics, 1,000 groups and 20,000 queues on our brokers: every list and describe.

The goal is two seconds for each. `ours/s` is how often a second the command could be run one after the other; the note has wall and CPU time of the quickest of three
runs. The servers and ten members are in the bench's own process, so they share the machine with the command.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import Row
from tests.unit.cli.large import WIDE, Size, large_cluster

RUNS = 3
COMMANDS = (
    ("topic", "list"),
    ("topic", "describe", "topic-0001"),
    ("topic", "queues", "topic-0001"),
    ("topic", "route", "topic-0001"),
    ("group", "list"),
    ("group", "list", "--long"),
    ("group", "describe", WIDE, "--sample", "0"),
    ("group", "describe", WIDE, "--sample", "0", "--json"),
    ("group", "members", WIDE),
    ("group", "lag", WIDE),
    ("group", "describe", "group-0001", "--sample", "0"),
    ("cluster", "brokers"),
    ("cluster", "info"),
    ("dlq", "list"),
)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, large_cluster(Path(folder), Size()) as cluster:
        return [_row(cluster.nameserver, command) for command in COMMANDS]


def _row(nameserver: str, command: tuple[str, ...]) -> Row:
    took = sorted(_once(nameserver, command) for _ in range(RUNS))
    wall_s, cpu_s = took[0]
    return Row(" ".join(command), 1 / wall_s, note=f"{wall_s:.2f} s, {cpu_s:.2f} s CPU")


def _once(nameserver: str, command: tuple[str, ...]) -> tuple[float, float]:
    began = time.perf_counter()
    program = subprocess.Popen(
        [sys.executable, "-m", "trimtab", *command, "-n", nameserver, "--timeout", "120"],
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    assert program.returncode == 0, f"{command}: exit code {program.returncode}"
    return time.perf_counter() - began, used.ru_utime + used.ru_stime
