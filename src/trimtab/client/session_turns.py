"""Heartbeats and goodbyes to one broker, one after the other.

Apache's brokers take heartbeats and goodbyes in different threads. A goodbye that is sent while a heartbeat is on its way may be done first, and then the
heartbeat makes a member of one who left: it is listed, and its share of the queues stands still, until it was silent for two minutes. So whatever tells a broker who is here
waits for the answer to what was told before. It is done to its end, even if who asked for it no longer waits: what was sent is not taken back by losing patience.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

Doing: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Turns:
    """By address, what is being told and what waits for that."""

    def __init__(self, beat: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._beat = beat
        self._last: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        """Heartbeats that have not begun: they tell what is so when they do."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def beat(self, address: str) -> None:
        """One heartbeat, begun after this was called; who asks while one waits to begin shares it."""
        waiting = self._waiting.get(address)
        if waiting is None or waiting is not self._last.get(address):
            waiting = self._waiting[address] = self._after_others(address, partial(self._beat, address))
        await asyncio.wait([waiting])

    async def take(self, address: str, doing: Doing) -> None:
        """Does something else in its turn."""
        await asyncio.wait([self._after_others(address, doing)])

    async def close(self) -> None:
        """Ends what is under way, and what waits."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _after_others(self, address: str, doing: Doing) -> "asyncio.Task[None]":
        before = self._last.get(address)

        async def in_turn() -> None:
            if before is not None:
                await asyncio.wait([before])
            if self._waiting.get(address) is task:
                del self._waiting[address]
            await doing()

        task = asyncio.get_running_loop().create_task(in_turn())
        self._last[address] = task
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._done(address, task))
        return task

    def _done(self, address: str, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        for table in (self._last, self._waiting):
            if table.get(address) is task:
                del table[address]
