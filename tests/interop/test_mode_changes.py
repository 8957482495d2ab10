"""Members of both kinds come and go in one group, and in one process: messages go on, and nobody who left is counted on.

Apache's brokers keep one who is listed without a connection that beats for two minutes; all that is waited for here is far below.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.interop.servers import unique
from trimtab.client.producer import Producer
from trimtab.client.pull_consumer import PullConsumer
from trimtab.client.push import PushConsumer
from trimtab.client.push_settings import Consuming
from trimtab.errors import TrimtabError
from trimtab.model import Message
from trimtab.wire.bodies import ConsumerConnection, ConsumerData, ConsumeType, HeartbeatData, MessageModel
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.consume import GroupOnly

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from tests.interop.servers import ServerUnderTest
    from trimtab.client.received import Received
    from trimtab.client.session import Session

QUEUES = 4
GOES_ON_S = 30.0
"""A quarter of the time for which Apache's brokers list one who is gone."""
AT_ONCE = 10
SETTLED_S = 0.5
LOOKS_S = 2.0


class Stream:
    """Numbers on a topic, ten at a time, and which of them were handled."""

    def __init__(self, server: ServerUnderTest, topic: str, group: str) -> None:
        self.sent = 0
        self.handled: set[int] = set()
        self._server, self._topic, self._group = server, topic, group

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[Producer]:
        async with Producer("pg", nameserver=self._server.nameserver) as producer:
            sending = asyncio.create_task(self._send(producer))
            try:
                yield producer
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, producer: Producer) -> None:
        while True:
            numbers = range(self.sent, self.sent + 10)
            await producer.send_many([Message(self._topic, b"%d" % number) for number in numbers])
            self.sent = numbers.stop
            await asyncio.sleep(0.1)

    async def handle(self, message: Received) -> None:
        self.handled.add(int(message.body))

    def pulling(self) -> PullConsumer:
        return PullConsumer(
            self._group, subscribe={self._topic: "*"}, nameserver=self._server.nameserver, start="first"
        )

    def pushing(self, mode: str | None = None) -> PushConsumer:
        return PushConsumer(
            self._group, subscribe={self._topic: "*"}, handler=self.handle, nameserver=self._server.nameserver,
            start="first", mode=mode, consuming=Consuming(rebalance_every_s=LOOKS_S),
        )  # fmt: skip

    async def goes_on(self) -> None:
        """What is sent from now on is handled, of every queue."""
        since = self.sent
        await eventually(lambda: self.sent >= since + 100, "a hundred more are sent")
        until = self.sent
        await eventually(lambda: self.handled >= set(range(until)), f"all {until} are handled")


async def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + GOES_ON_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not in {GOES_ON_S:.0f} s: {what}"
        await asyncio.sleep(0.05)


def play(scenario: Callable[[Stream], Coroutine[Any, Any, None]], server: ServerUnderTest) -> None:
    asyncio.run(scenario(Stream(server, server.make_topic(queues=QUEUES), unique("modes"))))


def test_a_push_consumer_goes_on_with_leases_where_a_pull_consumer_of_its_process_stopped(
    server: ServerUnderTest,
) -> None:
    async def scenario(stream: Stream) -> None:
        async with stream.flowing():
            async with stream.pulling() as puller:
                while len(stream.handled) < 100:
                    for message in await puller.poll(timeout_s=1):
                        await stream.handle(message)
            async with stream.pushing() as pusher:
                await stream.goes_on()
                assert pusher.client_id == puller.client_id, "they spoke over the same connections"
                assert pusher.mode == "leased"

    play(scenario, server)


def test_messages_go_on_when_a_classic_member_joins_and_leaves(server: ServerUnderTest) -> None:
    async def scenario(stream: Stream) -> None:
        async with stream.flowing(), stream.pushing() as leased:
            await stream.goes_on()
            async with stream.pushing("classic"):
                await eventually(lambda: leased.mode == "classic", "the leased one fell back")
                await stream.goes_on()
            await stream.goes_on()
            await eventually(lambda: leased.mode == "leased", "leases again")
            await stream.goes_on()

    play(scenario, server)


def test_a_member_whose_connection_was_known_without_leases_makes_itself_known_with_them(
    server: ServerUnderTest,
) -> None:
    """As after a goodbye that was lost: the broker lists what was said first over the connection."""

    async def scenario(stream: Stream) -> None:
        async with stream.flowing() as producer:
            member = stream.pushing()
            session = producer._session
            data = ConsumerData(
                group_name=member.group, consume_type=ConsumeType.CONSUME_ACTIVELY,
                message_model=MessageModel.CLUSTERING,
            )  # fmt: skip
            body = encode_body(HeartbeatData(client_id=session.client_id, consumer_data_set=(data,)))
            for broker in server.brokers:
                await session.ask(broker.address, RequestCode.HEART_BEAT, body=body, asked="a former life")
            async with member:
                assert member.client_id == session.client_id
                await stream.goes_on()
                assert member.mode == "leased"

    play(scenario, server)


@pytest.mark.parametrize("kind", ["pull", "leased", "classic"])
def test_who_left_is_not_listed_by_a_heartbeat_that_was_on_its_way(
    server: ServerUnderTest, kind: str
) -> None:
    """Apache's brokers take heartbeats and goodbyes in different threads."""
    topic = server.make_topic(queues=QUEUES)
    groups = [unique("passing") for _ in range(60)]

    async def pass_by(group: str) -> None:
        stream = Stream(server, topic, group)
        async with stream.pulling() if kind == "pull" else stream.pushing(kind):
            pass

    async def scenario() -> None:
        async with Producer("pg", nameserver=server.nameserver) as shared:
            await shared.send(Message(topic, b"x"))
            for at in range(0, len(groups), AT_ONCE):
                await asyncio.gather(*map(pass_by, groups[at : at + AT_ONCE]))
            await asyncio.sleep(SETTLED_S)
            listed = [group for group in groups if await is_listed(shared._session, server, group)]
            assert listed == []

    asyncio.run(scenario())


async def is_listed(session: Session, server: ServerUnderTest, group: str) -> bool:
    for broker in server.brokers:
        try:
            answer = await session.ask(
                broker.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupOnly(consumer_group=group),
                asked=f"who is in {group}",
            )  # fmt: skip
        except TrimtabError:
            continue  # nobody is
        if decode_body(ConsumerConnection, answer.body).connection_set:
            return True
    return False
