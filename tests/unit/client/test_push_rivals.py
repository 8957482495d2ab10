"""Two live processes with one client id would be granted the same leases: the second is refused, and one of two that met later stops."""

import asyncio
from typing import Any

import pytest

from tests.unit.client.pushing import NEVER_S, TOPIC, Inbox, consumer, eventually, numbered, play, send
from trimtab.balance.recorder import Kind
from trimtab.client.push import PushConsumer
from trimtab.client.push_rivals import not_mine
from trimtab.client.push_settings import Consuming
from trimtab.errors import ClientIdTakenError
from trimtab.io.connection import PeerConnection
from trimtab.model import MessageQueue
from trimtab.settings import Timeouts
from trimtab.testing import DROP, AsyncCluster
from trimtab.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from trimtab.wire.codes import LEASED_VERSION, LanguageCode, RequestCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson_writer import encode_body

ONE = "10.0.0.1@billing-1"


def as_process(number: int, cluster: AsyncCluster, inbox: Inbox, **options: Any) -> PushConsumer:
    """Each with a session of its own, as in a process of its own."""
    return consumer(
        cluster,
        inbox,
        client_id=ONE,
        timeouts=Timeouts(connect_s=10.0 + number),
        **{"mode": "leased", **options},
    )


def holds_all(member: PushConsumer) -> bool:
    return sum(held.queue.topic == TOPIC for held in member.holdings()) == 4


@pytest.mark.parametrize("mode", ["leased", "classic"])
def test_a_second_live_member_with_the_same_id_is_refused_and_the_first_goes_on(mode: str) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        first_box, second_box = Inbox(), Inbox()
        await send(cluster, numbered(4))
        async with as_process(1, cluster, first_box, mode=mode) as first:
            await eventually(lambda: len(first_box.bodies) == 4, "the first has all messages")
            with pytest.raises(
                ClientIdTakenError, match=f"'{ONE}' of group 'g' is in use.*client_id of its own"
            ):
                await as_process(2, cluster, second_box, mode=mode).start()
            await send(cluster, numbered(4, 4))
            await eventually(lambda: len(first_box.bodies) == 8, "the first goes on")
            assert holds_all(first)
        assert second_box.bodies == []

    play(scenario)


async def listed_and_silent(cluster: AsyncCluster) -> PeerConnection:
    """What a machine that lost its power leaves at a broker for a while: a member that answers nothing."""
    connection = await PeerConnection.open(cluster.brokers["broker-a"])
    told = ConsumerData(
        group_name="g", subscription_data_set=(SubscriptionData(topic=TOPIC, sub_string="*"),)
    )
    beat = Command(
        code=RequestCode.HEART_BEAT, opaque=1, language=LanguageCode.PYTHON, version=LEASED_VERSION,
        body=encode_body(HeartbeatData(client_id=ONE, consumer_data_set=(told,))),
    )  # fmt: skip
    assert (await connection.ask(beat, timeout_s=30.0)).code == 0
    return connection


def test_a_dead_connection_under_the_same_id_keeps_nobody_from_starting_nor_stops_anybody() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        inbox = Inbox()
        await send(cluster, numbered(4))
        ghost = await listed_and_silent(cluster)
        quick = Consuming(rebalance_every_s=0.2)
        async with as_process(1, cluster, inbox, consuming=quick) as member:
            await eventually(lambda: len(inbox.bodies) == 4, "all messages came")
            looks = member._rounds.count
            await eventually(
                lambda: member._rounds.count >= looks + 3, "it looked again, and the ghost is listed"
            )
            assert holds_all(member)
            assert ghost.is_open
        ghost.close()

    play(scenario)


def test_of_two_that_could_not_see_each_other_at_the_start_one_stops_and_says_so() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        boxes, lost = (Inbox(), Inbox()), list[MessageQueue]()
        await send(cluster, numbered(4))
        first, second = (
            as_process(
                number,
                cluster,
                boxes[number],
                on_lost=lost.extend,
                consuming=Consuming(rebalance_every_s=NEVER_S),
            )
            for number in range(2)
        )
        await first.start()
        await eventually(lambda: holds_all(first), "the first holds all queues")
        asleep = cluster.intercept(RequestCode.GET_CONSUMER_RUNNING_INFO, lambda _: DROP)
        await second.start()
        asleep()
        await eventually(lambda: first._failure or second._failure, "one of them knows")
        stopped, staying, number = (first, second, 1) if first._failure else (second, first, 0)
        with pytest.raises(ClientIdTakenError, match="this one has stopped"):
            await stopped.wait()
        assert [event.other for event in stopped.recorder.events if event.kind == Kind.LEFT] != []
        if stopped is first:
            assert {queue.queue_id for queue in lost if queue.topic == TOPIC} == set(range(4))
        await eventually(lambda: holds_all(staying), "the other one holds all queues")
        await send(cluster, numbered(40, 4))
        wanted = {b"%d" % message for message in range(4, 44)}
        await eventually(lambda: wanted <= set(boxes[number].bodies), "and reads all that comes")
        assert not wanted & set(boxes[1 - number].bodies)
        assert staying._failure is None
        await staying.close()
        await stopped.close()

    play(scenario)


def test_a_restart_under_the_same_id_does_not_wait_for_anybody() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        inbox = Inbox()
        await send(cluster, numbered(4))
        for number in range(2):
            async with as_process(number, cluster, inbox) as member:
                await eventually(lambda: holds_all(member), "it holds all queues")
        assert len(inbox.bodies) == 4

    play(scenario)


def test_one_that_is_about_to_leave_is_waited_for() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        inbox = Inbox()
        await send(cluster, numbered(4))
        first, second = as_process(1, cluster, inbox), as_process(2, cluster, inbox)
        await first.start()
        await eventually(lambda: holds_all(first), "the first holds all queues")
        starting = asyncio.create_task(second.start())
        await asyncio.sleep(0)
        await first.close()
        await starting
        await eventually(lambda: holds_all(second), "the second holds all queues")
        await second.close()
        assert len(inbox.bodies) == 4

    play(scenario)


def test_connections_of_this_process_are_its_own_also_those_that_are_gone() -> None:
    own = {"10.0.0.1:1001", "10.0.0.1:1002"}
    assert not_mine(["10.0.0.1:1002"], own) == ()
    assert not_mine(["10.0.0.1:1001", "10.0.0.1:1002"], own) == (), "the first is half-open"
    assert not_mine(["10.0.0.1:1002", "10.0.0.2:1001"], own) == ("10.0.0.2:1001",)


def test_where_addresses_are_changed_on_the_way_connections_are_counted() -> None:
    assert not_mine(["192.0.2.7:1"], {"10.0.0.1:1001"}) == ()
    assert not_mine(["192.0.2.7:1", "192.0.2.7:2"], {"10.0.0.1:1001"}) == ("192.0.2.7:2",)
    assert not_mine(["192.0.2.7:1", "192.0.2.7:2"], {"10.0.0.1:1001", "10.0.0.1:1002"}) == ()
    assert not_mine([], {"10.0.0.1:1001"}) == ()


def test_an_address_that_is_listed_twice_is_one_connection_of_mine() -> None:
    assert not_mine(["10.0.0.1:1", "10.0.0.1:1"], {"10.0.0.1:1"}) == ()
