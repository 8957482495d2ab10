"""How a bench module reports: rows of what we do, beside the naive way where there is one."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    ours_per_second: float
    naive_per_second: float | None = None
    note: str = ""


def met(is_met: bool) -> str:  # noqa: FBT001 - it reads as a sentence
    """What a row says of its goal."""
    return "met" if is_met else "missed"


def verdict(goal: str, *, is_met: bool) -> str:
    """A goal and whether this run met it, for a row's note."""
    return f"goal {goal}: {met(is_met)}"


def median_rate(fn: Callable[[], object], operations: int, runs: int = 5) -> float:
    """Operations per second in the median of several runs; one run before them warms up."""
    fn()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        fn()
        seconds.append(time.perf_counter() - start)
    return operations / statistics.median(seconds)


def print_rows(rows: Sequence[Row]) -> None:
    width = max((len(row.name) for row in rows), default=0)
    print(f"{'':{width}}  {'ours/s':>12}  {'naive/s':>12}  {'ratio':>6}")
    for row in rows:
        naive = f"{row.naive_per_second:,.0f}" if row.naive_per_second else "–"
        ratio = f"{row.ours_per_second / row.naive_per_second:.1f}×" if row.naive_per_second else "–"
        print(
            f"{row.name:{width}}  {row.ours_per_second:>12,.0f}  {naive:>12}  {ratio:>6}  {row.note}".rstrip()
        )
    sys.stdout.flush()
