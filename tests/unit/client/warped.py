"""An event loop on which time passes only when nothing else happens: deadlines are exact, however busy the machine is.

Sockets are real. As long as everybody who talks lives on this loop, a silence of a moment means that all of them wait for a time to come;
then the loop's clock jumps to it. Threads are not waited for.
"""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

SILENCE_S = 0.02
"""In real time; loopback needs far less."""

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Waits in the loop's time instead of the machine's."""

    warped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events: list[tuple[selectors.SelectorKey, int]] = super().select(SILENCE_S)
        if not events:
            self.warped_s += timeout
        return events

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return super().get_map() or {}


class WarpedLoop(asyncio.SelectorEventLoop):
    """See the module's own words."""

    def __init__(self) -> None:
        self._selector_of_time = _Selector()
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        return self._selector_of_time.warped_s


def warped(work: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end, in no time."""
    with asyncio.Runner(loop_factory=WarpedLoop) as runner:
        return runner.run(work)
