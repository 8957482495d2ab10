"""Writes docs/results-live.md: planned changes of a real group on real brokers, each figure under the command that made it.

Run `python -m tools.results_live`; `python -m tools.results_live own 4.9.3` measures only these and keeps the rest of the page. The Apache servers are
started by the harness of the tests, so that a JDK and Maven are needed. It takes about two minutes for each server and mode.
"""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from bench.own import nameserver_of

PAGE = Path(__file__).parents[1] / "docs" / "results-live.md"
SERVERS = ("own", "4.9.3", "5.5.0")
MODES = ("leased", "classic")
OPTIONS = "--members 4 --changes 8 --rate 2000 --handler-ms 30"

HEAD = f"""# Results on real brokers

Written by `python -m tools.results_live`; do not edit. Real clients, real servers, one run for each: `trimtab bench rebalance {OPTIONS}`, eight
planned changes of a group of four at 2,000 messages a second. Each section says on what machine it was measured; figures of different machines do not compare.
The stock Java client under the same changes, in the same run: `python -m bench rebalance`.
"""

ELSEWHERE = """## What others were measured to do

Measured on 2026-11-16 on a 2-core machine, 16 queues or partitions, 2,000 messages a second, handlers of 30 ms, eight planned changes; lost 0 everywhere.

| client and server | delivered twice | moves (fewest 32) | queue-seconds without delivery | longest gap |
|---|---|---|---|---|
| Java client 4.9.3 on RocketMQ 4.9.3 | 176 | - | - | - |
| the same, waiting 5 s at shutdown | 206 | - | - | - |
| Kafka 4.1.0, range, careful user | 0 | 64 | 45.5 | 4.6 s |
| Kafka 4.1.0, cooperative-sticky, careful user | 2,184 | 32 | 211.9 | 18.8 s |
| Kafka 4.1.0, KIP-848, careful user | 0 | 32 | 134.3 | 10.5 s |
| Kafka 4.1.0, KIP-848, tuned (heartbeat 500 ms, 40 workers) | 0 | 32 | 13.6 | 0.7 s |

After `kill -9` of one of four, Kafka's partitions were read again after 43.5 to 55.3 s with the default session of 45 s, and 838 to 984 messages came again.
"""


def measured(nameserver: str, mode: str) -> str:
    """What the command prints; one that fails ends everything."""
    command = [sys.executable, "-m", "trimtab", "bench", "rebalance", "-n", nameserver, *OPTIONS.split(), "--mode", mode]  # fmt: skip
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip()
    return f"```\n$ trimtab bench rebalance -n {nameserver} {OPTIONS} --mode {mode}\n{text}\n```\n"


def section(server: str) -> str:
    print(server, file=sys.stderr)
    with nameserver_of(server, "sync") as nameserver:
        runs = [measured(nameserver, mode) for mode in MODES]
    busy = os.getloadavg()[0]
    where = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, load {busy:.1f} at the end"
    return "\n".join([f"## {server}\n", f"Measured on: {where}.\n", *runs])


def sections_there() -> dict[str, str]:
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:] if PAGE.exists() else []
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


def write(servers: list[str]) -> None:
    there = sections_there()
    for server in servers or SERVERS:
        there[server] = section(server)
        known = [there[name] for name in SERVERS if name in there]
        PAGE.write_text("\n".join([HEAD, *known, ELSEWHERE]))


if __name__ == "__main__":
    write(sys.argv[1:])
