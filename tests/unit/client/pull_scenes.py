"""What the tests of pulls and of pull consumers share: a cluster, a backlog, an owner that writes down what it gets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trimtab.client.producer import Producer
from trimtab.client.pulls import OffsetMoved, Pulled, Riding
from trimtab.client.session import Session
from trimtab.client.sessions import acquire_session, connection_options, release_session
from trimtab.errors import TrimtabError
from trimtab.model import Message, MessageQueue
from trimtab.testing import AsyncCluster, Cluster

if TYPE_CHECKING:
    from trimtab.client.received import Received

LONG_S = 30.0


def play(scenario: Callable[[AsyncCluster], Awaitable[None]], brokers: int = 1) -> None:
    async def run() -> None:
        async with Cluster(brokers=brokers) as cluster, asyncio.timeout(LONG_S):
            await scenario(cluster)

    asyncio.run(run())


async def send(
    cluster: AsyncCluster,
    count: int,
    topic: str = "orders",
    *,
    queue: MessageQueue | None = None,
    tag: Callable[[int], str | None] = lambda _: None,
    body: Callable[[int], bytes] = lambda number: b"%d" % number,
) -> dict[MessageQueue, list[bytes]]:
    """Sends messages; what lies in which queue, in order."""
    async with Producer("sender", nameserver=cluster.nameserver) as producer:
        messages = [Message(topic, body(number), tag=tag(number)) for number in range(count)]
        receipts = await asyncio.gather(*(producer.send(message, queue=queue) for message in messages))
    found: dict[MessageQueue, dict[int, bytes]] = {}
    for message, receipt in zip(messages, receipts, strict=True):
        found.setdefault(receipt.queue, {})[receipt.queue_offset] = message.body
    return {place: [bodies[offset] for offset in sorted(bodies)] for place, bodies in found.items()}


ONE = MessageQueue("orders", "broker-a", 0)


async def send_to_one(
    cluster: AsyncCluster,
    count: int,
    *,
    tag: Callable[[int], str | None] = lambda _: None,
    body: Callable[[int], bytes] = lambda number: b"%d" % number,
) -> list[bytes]:
    """Sends messages to queue `ONE`; their bodies."""
    await send(cluster, 1)  # makes the topic; this message lies in any queue
    async with Producer("sender", nameserver=cluster.nameserver) as producer:
        messages = [Message("orders", body(number), tag=tag(number)) for number in range(count)]
        receipts = await asyncio.gather(*(producer.send(message, queue=ONE) for message in messages))
    return [
        m.body
        for _, m in sorted(zip((r.queue_offset for r in receipts), messages, strict=True), key=lambda p: p[0])
    ]


@asynccontextmanager
async def session_of(cluster: AsyncCluster) -> AsyncIterator[Session]:
    session = acquire_session(connection_options(cluster.nameserver))
    await session.start()
    try:
        yield session
    finally:
        await release_session(session)


class Diary:
    """An owner of pulls that writes everything down."""

    def __init__(self) -> None:
        self.pulled: list[Pulled] = []
        self.messages: list[Received] = []
        self.moved: list[OffsetMoved] = []
        self.troubles: list[TrimtabError] = []
        self.go_on_from: Callable[[OffsetMoved], int | None] = lambda moved: moved.offset
        self.then: Callable[[], None] = lambda: None
        """Done with each answer."""
        self.rides: Riding | None = None
        self._news = asyncio.Event()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def on_pulled(self, pulled: Pulled) -> None:
        self.messages += pulled.messages
        self.pulled.append(pulled)
        self.then()
        self._news.set()

    def on_moved(self, moved: OffsetMoved) -> int | None:
        self.moved.append(moved)
        self._news.set()
        return self.go_on_from(moved)

    def on_trouble(self, queue: MessageQueue, error: TrimtabError) -> None:
        self.troubles.append(error)
        self._news.set()

    def riding(self, queue: MessageQueue) -> Riding | None:
        return self.rides

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for news until the condition is true."""
        while not condition():
            self._news.clear()
            await self._news.wait()


async def until(condition: Callable[[], bool]) -> None:
    """Waits until something is true of which nobody tells."""
    await asyncio.sleep(0)
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.005)
