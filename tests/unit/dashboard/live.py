"""A dashboard with something in it, for tests that ask one thing after the other without a loop of their own."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import httpx

from tests.unit.dashboard.scene import Scene, scene
from trimtab.dashboard.tokens import Role


class Live:
    """A dashboard whose loop runs while it is asked."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.scene, self.browser = self._runner.run(self._start())

    async def _start(self) -> tuple[Scene, httpx.AsyncClient]:
        one = await self._stack.enter_async_context(scene())
        await one.admin.create_topic("orders", queues=2)
        await one.admin.create_group("billing")
        await one.send("orders", b"1", keys=["k"])
        browser = await self._stack.enter_async_context(one.browser(Role.OPERATOR))
        browser.headers["X-CSRF-Token"] = one.csrf(browser)
        return one, browser

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self.browser.request(method, path, **options))

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()
