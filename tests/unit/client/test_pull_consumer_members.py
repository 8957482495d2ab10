"""A pull consumer in its group: subscriptions that fail, topics given up in the middle of a round, an end that nobody waits for."""

import asyncio
import logging
from collections.abc import Iterable

import pytest

from tests.unit.client.pull_scenes import play, send, session_of, until
from tests.unit.client.test_pull_consumer import consumer_of, gather
from trimtab.balance.strategies import by_name
from trimtab.client.admin import Admin
from trimtab.client.pull_consumer_members import Membership
from trimtab.client.subscriptions import SQL
from trimtab.errors import NoRouteError, SubscriptionParseFailedError
from trimtab.model import MessageQueue
from trimtab.testing import AsyncCluster
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command


def test_a_subscribe_that_fails_changes_nothing() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 8)
        async with consumer_of(cluster) as consumer:
            with pytest.raises(NoRouteError):
                await consumer.subscribe("nowhere")
            await consumer.assign([])  # it subscribes to nothing yet
            await consumer.subscribe("orders")
            await gather(consumer, 8)
            for topic in ("orders", "nowhere"):
                with pytest.raises((SubscriptionParseFailedError, NoRouteError)):
                    await consumer.subscribe(topic, SQL("((("))
            await send(cluster, 8)
            await gather(consumer, 8)

    play(scenario)


def test_a_topic_that_has_no_route_does_not_keep_another_from_being_subscribed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 8)
        await send(cluster, 8, "bills")
        async with consumer_of(cluster, subscribe={"bills": "*"}) as consumer:
            await gather(consumer, 8)
            consumer._subscriptions.add("nowhere", "*", 0)
            await consumer.subscribe("orders")
            await gather(consumer, 8)

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert "topic 'nowhere' has no route" in caplog.text


def test_a_topic_that_is_given_up_while_a_round_takes_its_queues_does_not_end_the_rounds() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 8)
        await send(cluster, 8, "bills")
        both = {"orders": "*", "bills": "*"}
        async with consumer_of(cluster, subscribe=both) as first:
            leaving: list[asyncio.Task[None]] = []

            def give_up(command: Command) -> None:
                if command.ext["topic"] == "bills" and not leaving:
                    leaving.append(asyncio.create_task(first.unsubscribe("bills")))

            async with consumer_of(cluster, subscribe=both):
                await until(lambda: len(first.assigned) == 4)
                stop = cluster.intercept(RequestCode.QUERY_CONSUMER_OFFSET, give_up)
            await until(lambda: bool(leaving))
            stop()
            await asyncio.gather(*leaving)
            await until(lambda: [queue.topic for queue in first.assigned] == ["orders"] * 4)
            async with consumer_of(cluster, subscribe={"orders": "*"}) as second:
                await until(lambda: len(first.assigned) == len(second.assigned) == 2)
            await first.subscribe("bills")
            await until(lambda: len(first.assigned) == 8)

    play(scenario)


class Clumsy:
    """A taker that fails when it is told to."""

    fails = False
    asked = 0

    def topics(self) -> Iterable[str]:
        self.asked += 1
        if self.fails:
            raise ZeroDivisionError
        return ()

    async def start_of(self, queue: MessageQueue) -> int:
        return 0

    def take(self, queue: MessageQueue, offset: int) -> bool:
        return True

    async def give_up(self, queue: MessageQueue) -> None: ...

    def changed(self, topic: str) -> None: ...


def test_a_round_that_fails_is_not_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with session_of(cluster) as session:
            taker = Clumsy()
            membership = Membership(session, "g", by_name("AVG", ()), taker)
            await membership.start()
            taker.fails = True
            for round_number in (2, 3):
                membership.soon()
                await until(lambda: taker.asked == round_number)  # noqa: B023 - awaited at once
            await membership.close()

    play(scenario)
    assert "group g was not rebalanced" in caplog.text


def test_a_close_that_is_cancelled_leaves_the_group_all_the_same() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 8)
        consumer = consumer_of(cluster, subscribe={"orders": "*"})
        await consumer.start()
        await gather(consumer, 8)
        asked = asyncio.Event()
        stop = cluster.intercept(RequestCode.UPDATE_CONSUMER_OFFSET, lambda _: asked.set())
        closing = asyncio.create_task(consumer.close())
        await asked.wait()
        stop()
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await consumer.close()
        async with Admin(nameserver=cluster.nameserver) as admin:
            assert not (await admin.members("g")).views
        async with consumer_of(cluster, subscribe={"orders": "*"}) as next_one:
            assert len(next_one.assigned) == 4
            assert await next_one.poll(0.05) == [], "what was handed out is committed"

    play(scenario)


def test_a_start_right_after_a_close_that_was_cancelled_waits_for_its_end() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, 8)
        consumer = consumer_of(cluster, subscribe={"orders": "*"})
        await consumer.start()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        async with consumer:
            await gather(consumer, 8)

    play(scenario)
