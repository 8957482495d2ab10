"""Writes docs/results.md: what the simulator's scenarios come to, each table under the command that made it.

Run `python tools/results.py`; `python tools/results.py join crash` plays only these. Virtual time: the figures are the same on every machine.
"""

import contextlib
import io
import sys
from pathlib import Path

from trimtab.cli.main import main

PAGE = Path(__file__).parents[1] / "docs" / "results.md"

TABLES = {
    "join": "sim compare join --members 8 --queues 64",
    "leave": "sim compare leave --members 8 --queues 64",
    "rolling-restart": "sim compare rolling-restart --members 8 --queues 64",
    "crash": "sim compare crash --members 8 --queues 64",
    "crash-ours": "sim run crash --members 8 --queues 64 --broker-kind ours",
    "pause": "sim run pause",
    "split-view": "sim compare split-view --members 8 --queues 64",
    "lost-notices": "sim compare lost-notices --members 8 --queues 64",
    "broker-restart": "sim compare broker-restart --members 8 --queues 64",
    "broker-added": "sim compare broker-added --members 8 --queues 64",
    "name-server-disagree": "sim compare name-server-disagree --members 8 --queues 64",
    "more-members-than-queues": "sim compare more-members-than-queues",
    "mixed-group": "sim compare mixed-group",
    "hot-queue": "sim compare hot-queue",
    "uneven-members": "sim compare uneven-members",
    "swarm": "sim swarm --seeds 100",
}

HEAD = """# Results of the simulator

Written by `python tools/results.py`; do not edit. Every table stands under the command that made it. Time is virtual and chance comes from a seed, so the
same command gives the same figures everywhere. What the columns mean is in [simulator.md](simulator.md). They are figures of a model: real balance
machines, modelled network, brokers and handlers. What real clients do on real brokers is measured by `trimtab bench rebalance`.
"""


def output_of(command: str) -> str:
    """What the command prints; one that fails ends everything."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(command.split(), standalone_mode=False)
    return printed.getvalue().rstrip()


def write(names: list[str]) -> None:
    parts = [HEAD]
    for name in names or TABLES:
        print(f"trimtab {TABLES[name]}", file=sys.stderr)
        parts.append(f"## {name}\n\n```\n$ trimtab {TABLES[name]}\n{output_of(TABLES[name])}\n```\n")
    PAGE.write_text("\n".join(parts))


if __name__ == "__main__":
    write(sys.argv[1:])
