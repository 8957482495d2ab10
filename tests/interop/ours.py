"""Our own consumers for tests that are not asynchronous: a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from trimtab.client.push import PushConsumer
from trimtab.client.push_settings import Consuming

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from tests.interop.servers import ServerUnderTest
    from trimtab.client.received import Received
    from trimtab.model import MessageQueue

T = TypeVar("T")
STEP_S_MAX = 60.0


class Loop:
    """The thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="our-consumers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STEP_S_MAX)
        self._loop.close()

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(STEP_S_MAX)


class Ours:
    """A push consumer of ours that notes what it gets."""

    def __init__(
        self,
        loop: Loop,
        server: ServerUnderTest,
        group: str,
        *,
        judge: Callable[[Received], None] | None = None,
        **options: Any,
    ) -> None:
        self.group = group
        self.received: list[Received] = []
        self._judge = judge
        self._loop = loop
        options.setdefault("consuming", Consuming(offsets_every_s=0.2))
        options.setdefault("mode", "classic")
        options.setdefault("start", "first")
        self._options = {"group": group, "handler": self._take, "nameserver": server.nameserver, **options}
        self.consumer: PushConsumer

    async def _take(self, message: Received) -> None:
        self.received.append(message.detach())
        if self._judge is not None:
            self._judge(message)

    def __enter__(self) -> Self:
        async def begin() -> None:
            self.consumer = PushConsumer(**self._options)
            await self.consumer.start()

        self._loop.run(begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._loop.run(self.consumer.close())

    @property
    def id(self) -> str:
        return self.consumer.client_id

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in list(self.received)]

    def holds(self, topic: str) -> list[MessageQueue]:
        async def look() -> list[MessageQueue]:
            return [holding.queue for holding in self.consumer.holdings() if holding.queue.topic == topic]

        return self._loop.run(look())

    def rebalance(self) -> None:
        async def wake() -> None:
            self.consumer.rebalance_soon()

        self._loop.run(wake())
