"""Writes docs/results-live.md: planned changes of real groups on real brokers, Java's client beside ours, with the command of each figure.

Run `python -m tools.results_live`; `python -m tools.results_live own 4.9.3` measures only these and keeps the rest of the page. The Apache servers are
started by the harness of the tests, so that a JDK and Maven are needed. It takes about three minutes for each server.
"""

import os
import platform
import re
import sys
from pathlib import Path

from bench.rebalance import FIGURES, Report, changes_on, goals, our_command
from bench.report import met

PAGE = Path(__file__).parents[1] / "docs" / "results-live.md"
SERVERS = ("own", "4.9.3", "5.5.0")
COLUMNS = ("sent", "delivered_twice", *FIGURES)

HEAD = f"""# Results on real brokers

Written by `python -m tools.results_live`, which runs `python -m bench rebalance`; do not edit. Real clients, real servers, one run for each: eight planned changes
of a group of four at 2,000 messages a second, handlers of 30 ms. Four times a member leaves in order and another joins, with the stock Java client 4.9.3, and with ours in classic and in leased mode:

```
trimtab {" ".join(our_command("NAMESERVER", "leased"))}
```

Each section says on what machine it was measured; figures of different machines do not compare. `unheld_s` and `unheld_ms_max`
are the queue-seconds without a holder and the longest time of a moved queue without one. `undelivered_s` and `undelivered_ms_max` are what was measured of Kafka below: the time from the last message that one holder of a moved
queue got to the first that the next one got, of all moves together and the longest.
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


def section(server: str) -> str:
    print(server, file=sys.stderr)
    reports = changes_on(server)
    where = (
        f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} at the end"
    )
    lines = [f"## {server}\n", f"Measured on: {where}.\n"]
    lines += ["| | " + " | ".join(COLUMNS) + " | goals |", "|---|" + "---:|" * len(COLUMNS) + "---|"]
    lines += [_line(who, report) for who, report in reports.items()]
    return "\n".join([*lines, ""])


def _line(who: str, report: Report) -> str:
    told = ", ".join(f"{goal}: {met(is_met)}" for goal, is_met in goals(who, report).items())
    return f"| {who} | " + " | ".join(f"{report[name]:,}" for name in COLUMNS) + f" | {told} |"


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
