"""A pull consumer that goes elsewhere, wants something else or pauses while much waits to be handed out."""

from collections.abc import Awaitable, Callable

import pytest

from tests.unit.client.pull_scenes import ONE, play, send, send_to_one, until
from tests.unit.client.test_pull_consumer import bodies_of, consumer_of, gather
from trimtab.client.admin import Admin
from trimtab.client.pull_consumer import PullConsumer
from trimtab.errors import SettingsError
from trimtab.settings import Pulling
from trimtab.testing import AsyncCluster

SMALL = Pulling(held_bytes_max=80_000, pull_messages_max=2)
"""A queue with a few messages of 2 kB is not pulled further."""
MESSAGES = 40


async def with_a_backlog(cluster: AsyncCluster, consumer: PullConsumer) -> None:
    """Back when so much waits that the queue is not pulled any more."""
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic("orders", queues=1)
    await send(cluster, MESSAGES, tag=lambda _: "eu", body=lambda number: b"%05d" % number * 400)
    await consumer.subscribe("orders")
    await until(lambda: " stopped " in repr(consumer._reading.shelf.queues[ONE].pulls))


async def seek_the_begin(consumer: PullConsumer) -> None:
    await consumer.seek(ONE, "begin")


async def seek_an_offset(consumer: PullConsumer) -> None:
    await consumer.seek(ONE, 5)


async def change_the_filter(consumer: PullConsumer) -> None:
    await consumer.subscribe("orders", "eu")


async def be_told_by_an_operator(consumer: PullConsumer) -> None:
    await consumer._answers().reset_offsets({ONE: 5})


@pytest.mark.parametrize(
    ("go_elsewhere", "first"),
    [(seek_the_begin, 0), (seek_an_offset, 5), (change_the_filter, 0), (be_told_by_an_operator, 5)],
)
def test_a_queue_of_which_much_waits_is_pulled_on_after_it_was_sent_elsewhere(
    go_elsewhere: Callable[[PullConsumer], Awaitable[None]], first: int
) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with consumer_of(cluster, pulling=SMALL) as consumer:
            await with_a_backlog(cluster, consumer)
            await go_elsewhere(consumer)
            found = await gather(consumer, MESSAGES - first)
            assert [message.queue_offset for message in found] == list(range(first, MESSAGES))

    play(scenario)


def test_a_paused_queue_that_is_sent_elsewhere_stays_paused() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with consumer_of(cluster, pulling=SMALL) as consumer:
            await with_a_backlog(cluster, consumer)
            consumer.pause(ONE)
            await consumer.seek(ONE, 5)
            assert await consumer.poll(0.05) == []
            assert consumer._reading.room.taken_bytes == 0
            consumer.resume(ONE)
            assert [message.queue_offset for message in await gather(consumer, 35)] == list(
                range(5, MESSAGES)
            )

    play(scenario)


def test_a_pause_in_the_middle_of_an_answer_keeps_the_rest_of_it_for_later() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        bodies = await send_to_one(cluster, 20)
        expected = await send(cluster, 20, "bills")
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE])
            found = [await anext(consumer) for _ in range(4)]
            consumer.pause(ONE)
            shelved = consumer._reading.shelf.queues[ONE]
            assert (shelved.done, shelved.handed) == (3, 4), "the last one is being worked on"
            assert await consumer.poll(0.05) == []
            assert (shelved.done, shelved.handed) == (4, 4), "who asks for more is done with it"
            await consumer.assign([ONE, *await consumer.queues("bills")])
            assert bodies_of(await gather(consumer, 20)) == expected
            consumer.resume()
            found += await consumer.poll(5, messages_max=2)
            consumer.pause(ONE)
            assert await consumer.poll(0.05) == []
            consumer.resume(ONE)
            found += await gather(consumer, len(bodies) - len(found))
        assert [message.queue_offset for message in found] == list(range(len(found)))
        assert [message.body for message in found][-20:] == bodies

    play(scenario)


def test_the_rest_of_an_answer_is_let_go_with_its_queue() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 20)
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE])
            end = await consumer.offset_of(ONE, "end")
            await anext(consumer)
            consumer.pause()
            await consumer.seek(ONE, 10)
            consumer.resume()
            found = await gather(consumer, end - 10)
            assert [message.queue_offset for message in found] == list(range(10, end))

    play(scenario)


@pytest.mark.parametrize("where", ["start", 3.5, None, True, b"begin"])
def test_a_place_that_is_none_is_refused_and_nothing_moves(where: object) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 5)
        async with consumer_of(cluster) as consumer:
            await consumer.assign([ONE])
            await anext(consumer)
            with pytest.raises(SettingsError, match="is no place in orders@broker-a:0"):
                await consumer.seek(ONE, where)  # type: ignore[arg-type]
            assert consumer.position(ONE) == 1
            assert (await anext(consumer)).queue_offset == 1
            await consumer.commit()
            assert await consumer.committed(ONE) == 2

    play(scenario)
