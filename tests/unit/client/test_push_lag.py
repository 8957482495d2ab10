"""What members learn from each other and from brokers: the fewest moves where a broker tells who holds what, and shares that follow load."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.unit.client.pushing import consumer, eventually, play
from trimtab.balance import metrics
from trimtab.balance.locks import LEASE_MS
from trimtab.balance.strategies import Lag
from trimtab.client.admin import Admin
from trimtab.client.producer import Producer
from trimtab.client.push import PushConsumer
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.io.connection import PeerConnection
from trimtab.model import Message, MessageQueue
from trimtab.testing import AsyncCluster
from trimtab.wire.bodies import ConsumerConnectionAndLeases
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.headers.consume import GroupAndLeases

TOPIC = "loaded"
QUEUES = 14
"""And one for retries: no group of these tests can share them evenly."""


async def nothing(_: Received) -> None:
    """Handles at once."""


async def slowly(_: Received) -> None:
    await asyncio.sleep(0.02)


def holders(members: Sequence[PushConsumer]) -> dict[MessageQueue, str]:
    return {held.queue: member.client_id for member in members for held in member.holdings()}


def is_shared(members: Sequence[PushConsumer]) -> bool:
    counts = [len(member.holdings()) for member in members]
    return sum(counts) == len(holders(members)) == QUEUES + 1 and max(counts) - min(counts) <= 1


async def with_topic(cluster: AsyncCluster) -> None:
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)


@pytest.mark.parametrize("first_members", [2, 3])
def test_on_a_broker_of_ours_a_change_moves_exactly_as_few_queues_as_possible(first_members: int) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await with_topic(cluster)
        members = [
            consumer(cluster, nothing, mode="leased", subscribe={TOPIC: "*"}) for _ in range(first_members)
        ]
        for member in members:
            await member.start()
        await eventually(lambda: is_shared(members), "the first members have their parts")
        for change in ("join", "join", "leave", "leave"):
            before = holders(members)
            if change == "join":
                members.append(consumer(cluster, nothing, mode="leased", subscribe={TOPIC: "*"}))
                await members[-1].start()
            else:
                await members.pop(0).close()
            await eventually(lambda: is_shared(members), f"shared after a {change}")
            after = holders(members)
            fewest = metrics.moved_min(before, tuple(after), [member.client_id for member in members])
            assert metrics.moved(before, after) == fewest
        for member in members:
            await member.close()

    play(scenario)


def test_a_broker_tells_who_has_which_lease_only_if_it_is_asked() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await with_topic(cluster)
        async with consumer(cluster, nothing, mode="leased", subscribe={TOPIC: "*"}) as member:
            await eventually(lambda: is_shared([member]), "it has all queues")
            asked, plain = [await connections(cluster, with_leases=flag) for flag in (True, None)]
        assert (plain.leases, plain.lease_memory_ms) == (None, None)
        assert asked.leases is not None
        assert asked.lease_memory_ms == LEASE_MS, "a new store has forgotten no lease"
        told = {(held.topic, number): held.client_id for held in asked.leases for number in held.queue_ids}
        assert told[TOPIC, 3] == member.client_id
        assert len(told) == QUEUES + 1

    play(scenario)


async def connections(cluster: AsyncCluster, *, with_leases: bool | None) -> ConsumerConnectionAndLeases:
    connection = await PeerConnection.open(cluster.brokers["broker-a"])
    try:
        header = GroupAndLeases(consumer_group="g", with_leases=with_leases)
        answer = await connection.ask(
            Command(
                code=RequestCode.GET_CONSUMER_CONNECTION_LIST,
                opaque=connection.next_opaque(),
                ext=encode_ext(header),
            ),
            timeout_s=30.0,
        )
        return decode_body(ConsumerConnectionAndLeases, answer.body)
    finally:
        connection.close()


@pytest.mark.parametrize("tells", [True, False], ids=["broker-tells", "members-tell"])
def test_lag_takes_queues_from_the_member_that_has_the_most_to_do(
    tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a broker of ours tells who holds what, or, as on Apache's, the members do."""
    if not tells:
        monkeypatch.setattr("trimtab.client.push_members._holders", lambda *_: None)

    async def scenario(cluster: AsyncCluster) -> None:
        await with_topic(cluster)
        every = Consuming(loads_every_s=0.3, concurrency=1)
        first, second = (
            consumer(
                cluster, slowly, mode="leased", strategy=Lag(moves_max=1), subscribe={TOPIC: "*"}, consuming=every
            )
            for _ in range(2)
        )  # fmt: skip
        await first.start()
        await second.start()
        both = [first, second]
        await eventually(
            lambda: (
                len(holders(both)) == QUEUES + 1 and min(len(one.holdings()) for one in both) >= QUEUES // 3
            ),
            "all is held, and both have a part",
        )
        before = holders(both)
        mine = [queue for queue, who in before.items() if who == first.client_id and queue.topic == TOPIC]
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            await asyncio.gather(
                *(producer.send(Message(TOPIC, b"x"), queue=queue) for queue in mine for _ in range(200))
            )

        def given() -> list[MessageQueue]:
            now = holders(both)
            return [queue for queue in mine if now.get(queue) == second.client_id]

        await eventually(given, "a loaded queue has moved to the member with less to do")
        assert len(given()) == 1, "no more than one in a round"
        await first.close()
        await second.close()

    play(scenario)
