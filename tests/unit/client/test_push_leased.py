"""Leased handover with real members: nothing twice on a planned change, nothing moved by a restart, foreign members are noticed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.client.pushing import TOPIC, consumer, eventually, numbered, play, send
from trimtab.balance.recorder import Kind, read_flight
from trimtab.client.admin import Admin
from trimtab.client.pull_consumer import PullConsumer
from trimtab.client.push import PushConsumer
from trimtab.client.push_leased_engine import LeasedEngine
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.errors import SettingsError
from trimtab.io.connection import PeerConnection
from trimtab.testing import AsyncCluster
from trimtab.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from trimtab.wire.codes import LanguageCode, RequestCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson_writer import encode_body

QUEUES = 4


class Counted:
    """A handler that takes its time and counts."""

    def __init__(self, handler_s: float = 0.01) -> None:
        self.got: Counter[bytes] = Counter()
        self._handler_s = handler_s

    async def __call__(self, message: Received) -> None:
        self.got[message.body] += 1
        await asyncio.sleep(self._handler_s)


def leased(cluster: AsyncCluster, handler: Counted, group: str = "g", **options: Any) -> PushConsumer:
    return consumer(cluster, handler, group, mode="leased", **options)


def orders_of(member: PushConsumer) -> set[int]:
    return {holding.queue.queue_id for holding in member.holdings() if holding.queue.topic == TOPIC}


def is_shared(*members: PushConsumer) -> bool:
    """Every queue has one holder, and nobody has two more than another."""
    holdings = [orders_of(member) for member in members]
    sizes = [len(member.holdings()) for member in members]
    is_whole = sorted(queue for queues in holdings for queue in queues) == list(range(QUEUES))
    return is_whole and max(sizes) - min(sizes) <= 1


def test_planned_changes_deliver_nothing_twice_and_lose_nothing() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        handler = Counted()
        await send(cluster, numbered(1))
        first, second = leased(cluster, handler), leased(cluster, handler)
        await first.start()
        await eventually(lambda: is_shared(first), "the first member has all queues")
        sending = asyncio.create_task(send_slowly(cluster, 600))
        await second.start()
        await eventually(lambda: is_shared(first, second), "the newcomer has its part")
        await first.close()
        await eventually(lambda: is_shared(second), "the other one has all queues")
        third = leased(cluster, handler)
        await third.start()
        await eventually(lambda: is_shared(second, third), "another newcomer has its part")
        await sending
        await eventually(lambda: len(handler.got) == 601, "all messages came")
        await second.close()
        await third.close()
        assert set(handler.got.values()) == {1}

    play(scenario)


async def send_slowly(cluster: AsyncCluster, count: int) -> None:
    for start in range(1, count + 1, 20):
        await send(cluster, numbered(20, start))
        await asyncio.sleep(0.02)


def test_a_handler_at_work_ends_before_its_queue_is_handed_over() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        slow, quick = Counted(0.5), Counted(0.0)
        await send(cluster, numbered(QUEUES))
        first = leased(cluster, slow)
        await first.start()
        await eventually(lambda: len(slow.got) == QUEUES, "all handlers are at work")
        await first.close()
        async with leased(cluster, quick) as second:
            await eventually(lambda: is_shared(second), "the next one has all queues")
            await send(cluster, numbered(QUEUES, QUEUES))
            await eventually(lambda: len(quick.got) == QUEUES, "what came later came to it")
        assert not set(slow.got) & set(quick.got)

    play(scenario)


def test_a_restart_under_the_same_id_moves_nothing() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        handler = Counted(0.0)
        await send(cluster, numbered(1))
        first, second = (leased(cluster, handler, client_id=name) for name in ("one", "two"))
        await first.start()
        await second.start()
        await eventually(lambda: is_shared(first, second), "both have their part")
        before = orders_of(first), orders_of(second)
        await first.close()
        again = leased(cluster, handler, client_id="one")
        await again.start()
        await eventually(lambda: is_shared(again, second), "both have their part again")
        assert (orders_of(again), orders_of(second)) == before
        await again.close()
        await second.close()

    play(scenario)


def test_a_foreign_member_brings_classic_mode_and_its_leaving_leases_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        handler = Counted(0.0)
        await send(cluster, numbered(1))
        async with leased(cluster, handler, consuming=Consuming(rebalance_every_s=0.2)) as member:
            await eventually(lambda: is_shared(member), "it has all queues")
            stranger = await join_as_java(cluster)
            await eventually(lambda: member.mode == "classic", "it fell back")
            await eventually(lambda: len(orders_of(member)) == QUEUES // 2, "AVG gives half to the stranger")
            stranger.close()
            await eventually(lambda: member.mode == "leased", "leases again")
            await eventually(lambda: is_shared(member), "it has all queues again")
            assert Kind.FELL_BACK in [event.kind for event in member.recorder.events]

    play(scenario)
    assert "does not keep leases" in caplog.text


def shares_classically(cluster: AsyncCluster) -> PushConsumer:
    return consumer(cluster, Counted(0.0), mode="classic", client_id="10.0.0.9@plain")


def shares_and_pulls(cluster: AsyncCluster) -> PullConsumer:
    return PullConsumer("g", subscribe={TOPIC: "*"}, nameserver=cluster.nameserver)


@pytest.mark.parametrize("other", [shares_classically, shares_and_pulls])
def test_a_member_of_ours_that_keeps_no_leases_brings_classic_mode_too(
    other: Callable[[AsyncCluster], PushConsumer | PullConsumer],
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        async with leased(cluster, Counted(0.0), consuming=Consuming(rebalance_every_s=0.2)) as member:
            await eventually(lambda: is_shared(member), "it has all queues")
            async with other(cluster):
                await eventually(lambda: member.mode == "classic", "it fell back")
                await eventually(lambda: len(orders_of(member)) == QUEUES // 2, "half is the other's")
            await eventually(lambda: member.mode == "leased", "leases again")
            await eventually(lambda: is_shared(member), "it has all queues again")

    play(scenario)


def test_a_process_with_leases_in_one_group_and_none_in_another_says_so_for_each() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        handler = Counted(0.0)
        await send(cluster, numbered(1))
        plain = consumer(cluster, handler, "h", mode="classic")
        async with leased(cluster, handler) as first, plain, leased(cluster, handler, "h") as second:
            await eventually(lambda: second.mode == "classic", "it fell back beside the classic one")
            await eventually(lambda: is_shared(first), "the other group keeps its leases")
            assert first.client_id == plain.client_id, "they share a session"
            assert first.mode == "leased"

    play(scenario)


async def join_as_java(cluster: AsyncCluster) -> PeerConnection:
    """A member as the stock client would be one."""
    connection = await PeerConnection.open(cluster.brokers["broker-a"])
    subscriptions = (SubscriptionData(topic=TOPIC, sub_string="*"),)
    beat = HeartbeatData(
        client_id="10.0.0.1@4711",
        consumer_data_set=(ConsumerData(group_name="g", subscription_data_set=subscriptions),),
    )
    command = Command(
        code=RequestCode.HEART_BEAT, opaque=1, language=LanguageCode.JAVA, body=encode_body(beat)
    )
    answer = await connection.ask(command, timeout_s=30.0)
    assert answer.code == 0
    return connection


def test_a_member_that_is_gone_without_goodbye_loses_its_queues_to_the_others() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        handler = Counted(0.0)
        await send(cluster, numbered(1))
        first, second = leased(cluster, handler), leased(cluster, handler)
        await first.start()
        await second.start()
        await eventually(lambda: is_shared(first, second), "both have their part")
        await cut_off(cluster, first)
        await eventually(lambda: is_shared(second), "the survivor has all queues")
        engine, now_ms = first._engine, first._clock.monotonic_ms()
        assert isinstance(engine, LeasedEngine)
        assert not any(engine.leased.may_hand_out(holding.queue, now_ms) for holding in first.holdings())
        await second.close()
        await first.close()

    play(scenario)


async def cut_off(cluster: AsyncCluster, member: PushConsumer) -> None:
    """Its connections break and cannot be made again; it does not know why."""
    links = member._session._links
    links._connect_s_max = 0.0
    links.now(cluster.brokers["broker-a"]).close()  # type: ignore[union-attr]


def test_the_flight_recorder_answers_through_running_info() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        handler = Counted(0.0)
        await send(cluster, numbered(1))
        async with leased(cluster, handler) as member:
            await eventually(lambda: is_shared(member), "it has all queues")
            info = member.running_info(with_stacks=False)
            flight = read_flight(info.properties["trimtab.flight"])
            taken = [event.queue for event in flight.events if event.kind == Kind.ACQUIRED]
            assert {queue.queue_id for queue in taken if queue and queue.topic == TOPIC} == set(range(QUEUES))
            assert info.properties["trimtab.mode"] == "leased"

    play(scenario)


def test_nonsense_is_refused_before_anything_happens() -> None:
    async def ignore(_: Received) -> None: ...

    for options, told in (
        ({"mode": "magic"}, "neither 'leased' nor 'classic'"),
        ({"mode": "leased", "broadcast": True}, "nothing to lease"),
        ({"mode": "classic", "strategy": "sticky"}, "needs leases"),
        ({"strategy": "stiky"}, "did you mean 'sticky'"),
    ):
        with pytest.raises(SettingsError, match=told):
            PushConsumer("g", subscribe={TOPIC: "*"}, handler=ignore, nameserver="127.0.0.1:1", **options)


def test_the_members_of_a_new_group_agree_although_its_retry_topic_appears_bit_by_bit() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        handler = Counted(0.0)
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=4)
        first, second = (leased(cluster, handler, client_id=name) for name in ("one", "two"))
        await first.start()
        await second.start()
        # Four queues of the topic and one of the retry topic at each of two brokers.
        await eventually(lambda: len(first.holdings()) + len(second.holdings()) == 10, "all queues are held")
        await first.close()
        await second.close()

    play(scenario, brokers=2)
