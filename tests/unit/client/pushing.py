"""What tests of the push consumer share: a cluster, messages in it, and waiting for conditions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from trimtab.broker.settings import BrokerSettings
from trimtab.client.producer import Producer
from trimtab.client.push import PushConsumer
from trimtab.client.push_outcomes import Handler
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.io.connection import PeerConnection
from trimtab.model import Message, MessageQueue
from trimtab.settings import Timeouts
from trimtab.testing import AsyncCluster, Cluster
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import Header, encode_ext
from trimtab.wire.headers.consume import QueryConsumerOffset, UpdateConsumerOffset

WAIT_S = 20.0
NEVER_S = 3_600.0
TOPIC = "orders"
QUICK = BrokerSettings(delay_levels=" ".join(["1s"] * 18))
"""Every retry comes after a second."""

Scenario = Callable[[AsyncCluster], Awaitable[None]]


def play(scenario: Scenario, *, brokers: int = 1, settings: BrokerSettings | None = None) -> None:
    async def run() -> None:
        async with Cluster(brokers=brokers, settings=settings) as cluster:
            await scenario(cluster)

    asyncio.run(run())


async def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not in {WAIT_S:.0f} s: {what}"
        await asyncio.sleep(0.01)


def consumer(cluster: AsyncCluster, handler: Handler, group: str = "g", **options: Any) -> PushConsumer:
    options.setdefault("subscribe", {TOPIC: "*"})
    options.setdefault("start", "first")
    options.setdefault("mode", "classic")
    return PushConsumer(group, handler=handler, nameserver=cluster.nameserver, **options)


def by_notice_only(**more: Any) -> Consuming:
    """No round because time passed."""
    return Consuming(rebalance_every_s=NEVER_S, **more)


async def send(cluster: AsyncCluster, messages: Iterable[Message]) -> None:
    timeouts = Timeouts(send_s=30.0)
    async with Producer("pg", nameserver=cluster.nameserver, timeouts=timeouts) as producer:
        await producer.send_many(messages)


def numbered(count: int, start: int = 0, **fields: Any) -> list[Message]:
    return [Message(TOPIC, b"%d" % number, **fields) for number in range(start, start + count)]


async def ask(
    cluster: AsyncCluster,
    code: RequestCode,
    header: Header | None = None,
    body: bytes = b"",
    broker: str = "broker-a",
) -> Command:
    """A raw request to a broker."""
    connection = await PeerConnection.open(cluster.brokers[broker])
    try:
        ext = {} if header is None else encode_ext(header)
        command = Command(code=code, opaque=connection.next_opaque(), ext=ext, body=body)
        return await connection.ask(command, timeout_s=30.0)
    finally:
        connection.close()


async def stored_offset(cluster: AsyncCluster, queue: MessageQueue, group: str = "g") -> int:
    """What the broker has for the group."""
    header = QueryConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
    )
    answer = await ask(cluster, RequestCode.QUERY_CONSUMER_OFFSET, header, broker=queue.broker_name)
    return int(answer.ext["offset"]) if answer.code == ResponseCode.SUCCESS else -1


async def set_offset(cluster: AsyncCluster, queue: MessageQueue, offset: int, group: str = "g") -> None:
    header = UpdateConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    answer = await ask(cluster, RequestCode.UPDATE_CONSUMER_OFFSET, header, broker=queue.broker_name)
    assert answer.code == ResponseCode.SUCCESS


class Inbox:
    """A handler that takes everything, and what it took."""

    def __init__(self) -> None:
        self.messages: list[Received] = []

    async def __call__(self, message: Received) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


def owners(consumers: Iterable[PushConsumer], topic: str = TOPIC) -> dict[MessageQueue, list[str]]:
    """Who holds which queue now."""
    held: dict[MessageQueue, list[str]] = {}
    for one in consumers:
        for holding in one.holdings():
            if holding.queue.topic == topic:
                held.setdefault(holding.queue, []).append(one.client_id)
    return held


def is_settled(consumers: list[PushConsumer], queue_count: int, topic: str = TOPIC) -> bool:
    """Every queue has exactly one owner, and shares differ by one at most."""
    held = owners(consumers, topic)
    counts = [sum(me.client_id in who for who in held.values()) for me in consumers]
    return (
        len(held) == queue_count
        and all(len(who) == 1 for who in held.values())
        and max(counts) - min(counts) <= 1
    )
