"""The times of all loads on their way, by one timer.

Nearly every load is answered long before its time, so a timer for each would be made and cancelled for nothing. There is one, for the
earliest of all; it is not moved when a load is done, and when it rings it looks at what is still on its way.
"""

import asyncio
from typing import Protocol

LOOKS_APART_S_MIN = 0.02
"""Where many are late, each at a different moment, all of them are looked at no more often than this."""
EARLY_S_MAX = 0.001
"""Loops round times to milliseconds, so a timer may ring this much early."""


class Watched(Protocol):
    """Something on its way."""

    wakes_at: float

    def wake(self, now: float) -> None:
        """Its time has come. It says by `Watch.look_at` when to wake it again, or that it is done by `Watch.forget`."""


class Watch:
    """Wakes each of those watched at its `wakes_at`, in the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: dict[Watched, None] = {}
        """In the order of leaving, so that the same run wakes them in the same order."""
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = float("inf")

    def add(self, watched: Watched) -> None:
        """Watches it until it is forgotten."""
        self._watched[watched] = None
        if watched.wakes_at < self._rings_at:
            self.look_at(watched.wakes_at)

    def forget(self, watched: Watched) -> None:
        """It needs no waking any more."""
        self._watched.pop(watched, None)

    def look_at(self, when: float) -> None:
        """Looks at everybody's time then, or earlier."""
        if when < self._rings_at:
            self._disarm()
            self._rings_at = when
            self._timer = self._loop.call_at(when, self._ring)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._rings_at = float("inf")

    def _ring(self) -> None:
        self._disarm()
        now = self._loop.time()
        due = now + EARLY_S_MAX
        for watched in [one for one in self._watched if one.wakes_at <= due]:
            watched.wake(now)
        if self._watched:
            self.look_at(max(min([one.wakes_at for one in self._watched]), now + LOOKS_APART_S_MIN))
