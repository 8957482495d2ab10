"""The clock as a seam. Nothing outside this package asks what time it is; it is told."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two times: one to measure with, one to show and to put on the wire."""

    def monotonic_ms(self) -> int:
        """Never goes back and counts on while the machine sleeps, so that a lease that ran out in sleep is seen so."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as timestamps in messages carry them."""

    def month_ms(self, wall_ms: int) -> tuple[int, int]:
        """Begin of the month of `wall_ms` and of the next one, in local time: the base of unique message ids."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ("_clock_id",)

    def __init__(self) -> None:
        # CLOCK_BOOTTIME exists on Linux only; elsewhere the ordinary monotonic clock must do.
        self._clock_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(self._clock_id) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def month_ms(self, wall_ms: int) -> tuple[int, int]:
        now = time.localtime(wall_ms / 1000)
        return _local_ms(now.tm_year, now.tm_mon), _local_ms(now.tm_year, now.tm_mon + 1)


stopwatch_s = time.perf_counter
"""For measuring how long something took, finer than a millisecond; event loops keep their time coarser."""


def _local_ms(year: int, month: int) -> int:
    """Midnight of the first day of a month; a 13th month is next year's first."""
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000
