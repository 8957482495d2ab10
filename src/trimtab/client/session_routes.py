"""The routes of the topics that a session's clients use: asked for once, shared, kept when name servers are gone."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from trimtab.client.routes import MASTER, Route, as_new_topic
from trimtab.client.shared_tasks import shared
from trimtab.errors import NoRouteError, TrimtabError
from trimtab.model import MessageQueue
from trimtab.wire.bodies import TopicRouteData
from trimtab.wire.resources import DEFAULT_TOPIC

_log = logging.getLogger(__name__)

AskRoute = Callable[[str], Coroutine[Any, Any, TopicRouteData | None]]


class Routes:
    """Topic to route. `ask` puts the question to name servers; `on_change` hears of every new route."""

    def __init__(self, ask: AskRoute, on_change: Callable[[Route | None, Route], None]) -> None:
        self._ask = ask
        self._on_change = on_change
        self._known: dict[str, Route] = {}
        self._asking: dict[tuple[str, int], asyncio.Task[Route]] = {}
        self.now = self._known.get
        """The route of a topic, if it is known."""

    def __len__(self) -> int:
        return len(self._known)

    async def of(self, topic: str, *, may_create_queues: int = 0) -> Route:
        """The route of a topic. With `may_create_queues` a topic that does not exist gets the route that sending creates."""
        return self._known.get(topic) or await self.refresh(topic, may_create_queues=may_create_queues)

    async def refresh(self, topic: str, *, may_create_queues: int = 0) -> Route:
        """Asks anew; everybody who asks at the same time shares the answer."""
        # Who may create the topic asks on his own: a "no" to somebody who may not is no answer for him.
        question = topic, may_create_queues
        asking = self._asking.get(question)
        if asking is None:
            asking = self._asking[question] = asyncio.create_task(self._find(topic, may_create_queues))
            asking.add_done_callback(_look_at)
        return await shared(asking)

    async def refresh_all(self) -> None:
        """Asks anew for every topic in use; one that cannot be had keeps its old route."""

        async def refresh(topic: str) -> None:
            try:
                await self.refresh(topic)
            except TrimtabError as error:
                _log.info("route of %s not refreshed: %s", topic, error)

        await asyncio.gather(*(refresh(topic) for topic in list(self._known)))

    async def master_of(self, queue: MessageQueue) -> str:
        """The address where a queue is written, locked and its offsets are kept; asked for anew if the known route has none."""
        address = (await self.of(queue.topic)).master_of(queue.broker_name)
        if address is None:
            address = (await self.refresh(queue.topic)).master_of(queue.broker_name)
        if address is None:
            raise NoRouteError(f"broker {queue.broker_name!r} of {queue} has no master now; is it running?")
        return address

    def forget(self, topic: str) -> None:
        """Nobody uses the topic any more."""
        self._known.pop(topic, None)

    def broker_addresses(self, *, masters_only: bool) -> dict[str, str]:
        """The brokers of all topics in use, address to name."""
        return _addresses(self._known.values(), masters_only=masters_only)

    async def close(self) -> None:
        """Nobody asks any more."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, topic: str, may_create_queues: int) -> Route:
        try:
            data = await self._ask(topic)
            if data is None and may_create_queues:
                data = await self._ask(DEFAULT_TOPIC)
                data = None if data is None else as_new_topic(data, may_create_queues)
            if data is None:
                raise NoRouteError(
                    f"topic {topic!r} has no route: the name servers do not know it; create the topic, or let brokers create topics"
                )
            known = self._known.get(topic)
            if known is not None and known.data == data:
                return known
            route = self._known[topic] = Route(topic, data)
            self._on_change(known, route)
            return route
        finally:
            del self._asking[topic, may_create_queues]


def new_addresses(before: Route | None, after: Route, *, masters_only: bool) -> list[str]:
    """The brokers that a changed route brought, in its order. PURE."""
    known = {} if before is None else _addresses((before,), masters_only=masters_only)
    return [address for address in _addresses((after,), masters_only=masters_only) if address not in known]


def _addresses(routes: Iterable[Route], *, masters_only: bool) -> dict[str, str]:
    return {
        address: name
        for route in routes
        for name, by_id in route.addresses.items()
        for number, address in by_id.items()
        if not masters_only or number == MASTER
    }


def _look_at(asking: "asyncio.Task[Route]") -> None:
    """Whoever asked may have gone; a failure that nobody hears of is not an unretrieved one."""
    if not asking.cancelled():
        asking.exception()
