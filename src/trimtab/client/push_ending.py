"""Waiting for handlers at work when everything ends, but not for those that wait for the end themselves.

A handler may close its own consumer and wait until that is done: each would wait for the other. Several may do so, one after the other.
"""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

Task: TypeAlias = asyncio.Task[Any]

NOT_A_FAILURE: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Not the handler's word about a message: the program ends, or the loop."""


class Ending:
    """See the module's own words."""

    def __init__(self) -> None:
        self._waiting: set[Task] = set()
        self._news = asyncio.Event()

    @contextmanager
    def without(self, task: Task | None) -> Iterator[None]:
        """Within it the task is not waited for."""
        if task is None:
            yield
            return
        self._waiting.add(task)
        self._news.set()
        try:
            yield
        finally:
            self._waiting.discard(task)

    async def ended(self, tasks: Collection[Task], wait_s_max: float) -> list[Task]:
        """Back when they have ended, or when the time is over; gives those that have not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s_max):
                while at_work := self._at_work(tasks):
                    self._news.clear()
                    await _first(asyncio.wait(at_work), self._news.wait())
        return self._at_work(tasks)

    def _at_work(self, tasks: Collection[Task]) -> list[Task]:
        return [task for task in tasks if not task.done() and task not in self._waiting]


async def _first(*doings: Any) -> None:
    tasks = [asyncio.ensure_future(doing) for doing in doings]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
