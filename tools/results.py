"""Writes docs/results.md: what the simulator's scenarios come to, each table under the command that made it.

Run `python tools/results.py`; `python tools/results.py join crash` plays only these anew and keeps the rest of the page, and
`python tools/results.py steady swarm-long` those that take hours. Virtual time: the figures are the same on every machine. What real clients do on real brokers is written by `tools/results_live.py`.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

from trimtab.cli.main import main

PAGE = Path(__file__).parents[1] / "docs" / "results.md"

TABLES = {
    "join": "sim compare join --members 8 --queues 64",
    "leave": "sim compare leave --members 8 --queues 64",
    "rolling-restart": "sim compare rolling-restart --members 8 --queues 64",
    "crash": "sim compare crash --members 8 --queues 64",
    "crash-restart": "sim compare crash-restart --members 8 --queues 64",
    "crash-ours": "sim run crash --members 8 --queues 64 --broker-kind ours",
    "pause": "sim run pause",
    "pause-taken-over": "sim run pause-taken-over",
    "frozen": "sim run frozen",
    "frozen-ours": "sim run frozen --broker-kind ours",
    "split-view": "sim compare split-view --members 8 --queues 64",
    "lost-notices": "sim compare lost-notices --members 8 --queues 64",
    "broker-restart": "sim compare broker-restart --members 8 --queues 64",
    "broker-added": "sim compare broker-added --members 8 --queues 64",
    "name-server-disagree": "sim compare name-server-disagree --members 8 --queues 64",
    "more-members-than-queues": "sim compare more-members-than-queues",
    "mixed-group": "sim compare mixed-group",
    "hot-queue": "sim compare hot-queue",
    "uneven-members": "sim compare uneven-members",
    "deploy-storm": "sim run deploy-storm",
    "swarm": "sim swarm --seeds 200",
}
LONG = {
    "steady": "sim run steady --hours 24 --strategy lag",
    "swarm-long": "sim swarm --seeds 20000",
}
"""Only when they are named; what the page has of them is kept."""

HEAD = """# Results of the simulator

Written by `python tools/results.py`; do not edit. Every table stands under the command that made it. Time is virtual and chance comes from a seed, so the
same command gives the same figures everywhere. What the columns mean is in [simulator.md](simulator.md). They are figures of a model: real balance
machines, modelled network, brokers and handlers. What real clients do on real brokers is on [results-live.md](results-live.md).
"""


def output_of(command: str) -> str:
    """What the command prints; one that fails ends everything."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(command.split(), standalone_mode=False)
    return printed.getvalue().rstrip()


def section(name: str) -> str:
    """A table under its command."""
    command = (TABLES | LONG)[name]
    print(f"trimtab {command}", file=sys.stderr)
    return f"## {name}\n\n```\n$ trimtab {command}\n{output_of(command)}\n```\n"


def sections_there() -> dict[str, str]:
    """What the page has already, by name."""
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:] if PAGE.exists() else []
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


def write(names: list[str]) -> None:
    there = sections_there()
    for name in names or TABLES:
        there[name] = section(name)
        known = [there[table] for table in TABLES | LONG if table in there]
        PAGE.write_text("\n".join([HEAD, *known]))  # after each: the long ones may be interrupted


if __name__ == "__main__":
    write(sys.argv[1:])
