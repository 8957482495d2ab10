"""A dashboard on a real cluster, asked over ASGI: what its tests share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

import trimtab
from trimtab.broker.settings import BrokerSettings
from trimtab.dashboard.app import make_app
from trimtab.dashboard.desk import Desk
from trimtab.dashboard.guard import Door
from trimtab.dashboard.history import History
from trimtab.dashboard.poller import Poller
from trimtab.dashboard.sessions import Sessions
from trimtab.dashboard.subject import Pace
from trimtab.dashboard.tokens import Role, new_keyring
from trimtab.io.clock import SystemClock
from trimtab.io.secrecy import new_secret
from trimtab.settings import Timeouts
from trimtab.testing import AsyncCluster, Cluster

HOST = "127.0.0.1:8765"
WAIT_S = 60.0
KEYRING, TOKENS = new_keyring(new_secret)
PATIENT = Timeouts(request_s=30.0)


@dataclass
class Scene:
    cluster: AsyncCluster
    admin: trimtab.Admin
    poller: Poller
    desk: Desk
    door: Door
    app: Any

    def browser(self, role: Role | None = None, **headers: str) -> httpx.AsyncClient:
        """Somebody who is signed in, or not."""
        cookies = {}
        if role is not None:
            cookies["trimtab_session"] = self.door.sessions.begin(role, self.door.clock.wall_ms())
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, raise_app_exceptions=False),
            base_url=f"http://{HOST}",
            cookies=cookies,
            headers=headers,
            timeout=WAIT_S,
        )

    def csrf(self, browser: httpx.AsyncClient) -> str:
        session = self.door.sessions.find(browser.cookies["trimtab_session"], self.door.clock.wall_ms())
        assert session is not None
        return session.csrf

    async def holders(self, browser: httpx.AsyncClient) -> set[str]:
        """Who holds queues; nobody, while a queue has none or two. Shares are even over all topics, the retry topic too."""
        group = (await browser.get("/api/v1/group?name=billing")).json()
        held = [line["holders"] for line in group.get("queues", ())]
        return {names[0] for names in held} if all(len(names) == 1 for names in held) else set()

    async def send(self, topic: str, *bodies: bytes, **fields: Any) -> list[trimtab.Receipt]:
        async with trimtab.Producer(
            "shop", nameserver=self.cluster.nameserver, timeouts=Timeouts(send_s=30.0)
        ) as one:
            return [await one.send(trimtab.Message(topic, body, **fields)) for body in bodies]

    def consumer(self, name: str, **options: Any) -> trimtab.PushConsumer:
        options.setdefault("subscribe", {"orders": "*"})
        options.setdefault("handler", handle)
        return trimtab.PushConsumer(
            "billing", nameserver=self.cluster.nameserver, client_id=name, start="first", **options
        )


async def handle(_message: trimtab.Received) -> None:
    return None


@asynccontextmanager
async def scene(
    brokers: int = 1,
    *,
    settings: BrokerSettings | None = None,
    timeouts: Timeouts = PATIENT,
    pace: Pace | None = None,
) -> AsyncIterator[Scene]:
    clock = SystemClock()
    history = History(None)
    async with (
        Cluster(brokers=brokers, settings=settings) as cluster,
        trimtab.Admin(nameserver=cluster.nameserver, timeouts=timeouts) as admin,
    ):
        poller = Poller(admin, clock, history, pace or Pace(overview_s=0.2, group_s=0.1))
        await poller.start()
        try:
            desk = Desk(admin, clock, poller)
            door = Door(frozenset({HOST}), KEYRING, Sessions(new_secret), clock)
            yield Scene(cluster, admin, poller, desk, door, make_app(desk, door))
        finally:
            await poller.stop()
            history.close()


def play(story: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with scene(**options) as one:
            await story(one)

    asyncio.run(run())


async def eventually(condition: Callable[[], Awaitable[object]], what: str) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not await condition():  # noqa: ASYNC110 - the condition is asked for over HTTP
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not in {WAIT_S:.0f} s: {what}") from None
