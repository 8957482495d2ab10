"""Writes docs/benchmarks.md: what `python -m bench` measured, a section for each module, with the command and the machine.

Run `python tools/benchmarks.py`, on a machine that does nothing else. `python tools/benchmarks.py drain spark` measures only these anew and leaves the
other sections as they are.
"""

import importlib
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
sys.path.insert(0, str(ROOT))

from bench import __main__ as benches  # noqa: E402
from bench.report import Row  # noqa: E402

MODULES = tuple(name for name in benches.MODULES if name != "rebalance")
"""That one has a page of its own, docs/results-live.md."""

HEAD = """# Benchmarks

Written by `python tools/benchmarks.py`; do not edit. Every section stands under the command that made it. Machines differ and are noisy: only figures of
one section were taken in one run, and only their ratios mean something. `TRIMTAB_BENCH_SCALE` makes loads smaller.
Planned changes of groups, Java's client beside ours: [results-live.md](results-live.md).
"""


def written() -> dict[str, str]:
    """The sections of the page as it is, by name."""
    if not PAGE.exists():
        return {}
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}


def machine() -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'"([^"]+)"', java)
    return (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, Java {version.group(1) if version else 'none'}, {scheduling()}"
    )


def scheduling() -> str:
    """On few cores this decides ratios: without it a process with many threads gets more than one with a single thread."""
    switch = Path("/proc/sys/kernel/sched_autogroup_enabled")
    is_on = switch.exists() and switch.read_text().strip() == "1"
    return f"scheduling per session {'on' if is_on else 'off'}, niceness {os.nice(0)}"


def table(rows: list[Row]) -> str:
    lines = ["| | ours/s | beside it/s | ratio | |", "|---|---:|---:|---:|---|"]
    for row in rows:
        beside = f"{row.naive_per_second:,.0f}" if row.naive_per_second else ""
        ratio = f"{row.ours_per_second / row.naive_per_second:.2f}×" if row.naive_per_second else ""
        lines.append(f"| {row.name} | {row.ours_per_second:,.0f} | {beside} | {ratio} | {row.note} |")
    return "\n".join(lines)


def measured(name: str) -> str:
    module = importlib.import_module(f"bench.{name}")
    what = (module.__doc__ or "").strip().splitlines()[0]
    chosen = [
        f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith("TRIMTAB_BENCH_")
    ]
    command = " ".join([*chosen, "python -m bench", name])
    found = table(module.rows())
    return f"{what}\n\n`{command}`, {datetime.now(UTC):%Y-%m-%d}; {machine()}\n\n{found}"


def main(wanted: list[str]) -> None:
    sections = written()
    for name in wanted or MODULES:
        print(f"bench {name}", file=sys.stderr, flush=True)
        sections[name] = measured(name)
        parts = [HEAD, *(f"## {kept}\n\n{sections[kept]}\n" for kept in MODULES if kept in sections)]
        PAGE.write_text("\n".join(parts))


if __name__ == "__main__":
    main(sys.argv[1:])
