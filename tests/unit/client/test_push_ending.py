"""The end of a push consumer: whoever asks for it, however impatient, it comes to its end, once."""

import asyncio
from typing import Any

import pytest

from tests.unit.client.pushing import TOPIC, Inbox, consumer, eventually, numbered, play, send
from trimtab.client.admin import Admin
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.model import MessageQueue
from trimtab.testing import AsyncCluster

PATIENT = Consuming(drain_s_max=3_600.0)
"""Who waits for a handler that waits for the end waits for ever."""

every_kind = pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
every_mode = pytest.mark.parametrize("mode", ["classic", "leased"])


async def members(cluster: AsyncCluster, group: str = "g") -> object:
    async with Admin(nameserver=cluster.nameserver) as admin:
        return (await admin.members(group)).views


@every_mode
@every_kind
def test_a_close_that_is_cancelled_goes_on_and_leaves_no_ghost(mode: str, ordered: bool) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        at_work, may_end = asyncio.Event(), asyncio.Event()

        async def handle(_: Received) -> None:
            at_work.set()
            await may_end.wait()

        it = consumer(cluster, handle, mode=mode, ordered=ordered, consuming=PATIENT)
        await it.start()
        await at_work.wait()
        closing = asyncio.create_task(it.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        second, third = asyncio.create_task(it.close()), asyncio.create_task(it.close())
        await asyncio.sleep(0.01)
        assert not second.done(), "it waits for the same end"
        may_end.set()
        async with asyncio.timeout(30):
            await asyncio.gather(second, third, it.wait())
        assert not await members(cluster)
        inbox = Inbox()
        async with consumer(cluster, inbox, mode=mode, ordered=ordered) as other:
            await eventually(
                lambda: sum(one.queue.topic == TOPIC for one in other.holdings()) == 4, "it has all"
            )
            assert sum(holding.offset for holding in other.holdings()) == 1
        assert not inbox.messages

    play(scenario)


@every_mode
@every_kind
def test_handlers_may_close_their_consumer_and_wait_for_that(mode: str, ordered: bool) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(12))
        came_back: list[bytes] = []

        async def handle(message: Received) -> None:
            await asyncio.sleep(0.001 * int(message.body))  # some while the end waits for others
            await it.close()
            came_back.append(message.body)

        it = consumer(cluster, handle, mode=mode, ordered=ordered, consuming=PATIENT)
        async with asyncio.timeout(30), it:
            await it.wait()
        await eventually(lambda: came_back, "none was cancelled")
        assert not await members(cluster)
        inbox = Inbox()
        async with consumer(cluster, inbox, mode=mode, ordered=ordered):
            await eventually(lambda: set(came_back) <= set(inbox.bodies), "what was not done comes again")

    play(scenario)


@every_mode
def test_a_handler_that_gives_up_closing_is_waited_for_again(mode: str) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, [*numbered(1)])
        done: list[bytes] = []
        gave_up, may_end = asyncio.Event(), asyncio.Event()

        async def handle(message: Received) -> None:
            try:
                async with asyncio.timeout(0):
                    await it.close()
            except TimeoutError:
                gave_up.set()
            await may_end.wait()
            done.append(message.body)

        it = consumer(cluster, handle, mode=mode, consuming=PATIENT)
        await it.start()
        await gave_up.wait()
        may_end.set()
        async with asyncio.timeout(30):
            await it.wait()
        assert done == [b"0"]

    play(scenario)


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked"])
@every_mode
def test_a_callback_may_close_its_consumer(mode: str, name: str) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))

        async def close(_: tuple[MessageQueue, ...]) -> None:
            await it.close()

        options: dict[str, Any] = {name: close}
        it = consumer(cluster, Inbox(), mode=mode, consuming=Consuming(callback_s_max=3_600.0), **options)
        async with asyncio.timeout(30):
            await it.start()
            if name == "on_revoked":
                await eventually(it.holdings, "it holds something")
                await it.close()
            await it.wait()
        assert not await members(cluster)

    play(scenario)


def test_a_consumer_that_is_started_while_it_ends_starts_after_that() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(4))
        inbox = Inbox()
        it = consumer(cluster, inbox)
        await it.start()
        closing = asyncio.create_task(it.close())
        await asyncio.sleep(0)
        closing.cancel()
        async with it:
            await eventually(lambda: len(inbox.messages) >= 4, "it consumes")
            assert await members(cluster)
        assert not await members(cluster)

    play(scenario)
