"""One at a time for each key: requests that must not overtake one another.

A broker handles the requests of one connection side by side, so two writes of one offset that are on their way together may be
done in either order. Whoever asks may be cancelled; what is on its way is waited for all the same, by the next one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Turns(Generic[K]):
    """See the module's own words."""

    def __init__(self) -> None:
        self._last: dict[K, asyncio.Task[Any]] = {}

    def is_taken(self, key: K) -> bool:
        """Whether something is on its way or waits."""
        return key in self._last

    async def take(self, key: K, doing: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Does it after all that was asked for this key before; what it raises is raised here, and does not keep the next one."""
        task = asyncio.get_running_loop().create_task(_after(self._last.get(key), doing))
        self._last[key] = task
        task.add_done_callback(lambda _: self._ended(key, task))
        return await asyncio.shield(task)

    def _ended(self, key: K, task: "asyncio.Task[Any]") -> None:
        if self._last.get(key) is task:
            del self._last[key]


async def _after(before: "asyncio.Task[Any] | None", doing: Callable[[], Coroutine[Any, Any, R]]) -> R:
    if before is not None:
        await asyncio.wait([before])
    return await doing()
