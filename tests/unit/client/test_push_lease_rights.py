"""Offsets in leased mode: written under the epoch of the lease, by nobody whose lease is over, and one slow broker is one slow broker."""

import asyncio

from tests.unit.client.pushing import (
    TOPIC,
    ask,
    consumer,
    eventually,
    numbered,
    play,
    send,
    set_offset,
    stored_offset,
)
from trimtab.balance.recorder import Kind
from trimtab.client.producer import Producer
from trimtab.client.push import PushConsumer
from trimtab.client.push_leased_engine import LeasedEngine
from trimtab.client.push_offsets import BrokerOffsets
from trimtab.client.received import Received
from trimtab.client.sessions import acquire_session, connection_options, release_session
from trimtab.model import MessageQueue
from trimtab.testing import DROP, AsyncCluster, Drop, Interceptor
from trimtab.wire.bodies import LockBatchRequestBody, UnlockBatchRequestBody
from trimtab.wire.bodies.locks import LeaseBatchResponseBody
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


class Gated:
    """A handler that waits until it is let go."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.started = 0
        self.done: list[bytes] = []

    async def __call__(self, message: Received) -> None:
        self.started += 1
        await self.open.wait()
        self.done.append(message.body)


async def send_to_queue(cluster: AsyncCluster, count: int) -> None:
    async with Producer("pg", nameserver=cluster.nameserver) as producer:
        await asyncio.gather(*(producer.send(message, queue=QUEUE) for message in numbered(count)))


def engine_of(member: PushConsumer) -> LeasedEngine:
    engine = member._engine
    assert isinstance(engine, LeasedEngine)
    return engine


async def steal(cluster: AsyncCluster, member: PushConsumer, queue: MessageQueue) -> None:
    """The lease ends, and another member takes it, while its holder notices nothing."""
    unlock = UnlockBatchRequestBody(consumer_group="g", client_id=member.client_id, mq_set=(queue,))
    await ask(cluster, RequestCode.UNLOCK_BATCH_MQ, body=encode_body(unlock))
    lock = LockBatchRequestBody(consumer_group="g", client_id="thief", mq_set=(queue,))
    answer = await ask(cluster, RequestCode.LOCK_BATCH_MQ, body=encode_body(lock))
    assert decode_body(LeaseBatchResponseBody, answer.body).lock_ok_mq_set == (queue,)


def deceived(member: PushConsumer) -> Interceptor:
    """Answers every renewal of the member as if nothing had happened."""

    def answer(command: Command) -> Command | None:
        asked = decode_body(LockBatchRequestBody, command.body)
        if asked.client_id != member.client_id:
            return None
        holdings = [engine_of(member).leased.holding(queue) for queue in asked.mq_set]
        known = [one for one in holdings if one is not None and one.epoch is not None]
        body = LeaseBatchResponseBody(
            lock_ok_mq_set=tuple(one.queue for one in known),
            lease_epochs=tuple(one.epoch or 0 for one in known),
        )
        return Command(
            code=ResponseCode.SUCCESS, opaque=command.opaque, flag=RESPONSE_FLAG, body=encode_body(body)
        )

    return answer


def test_offsets_are_written_under_the_epoch_of_their_lease() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        written: list[str | None] = []
        cluster.intercept(
            RequestCode.UPDATE_CONSUMER_OFFSET, lambda command: written.append(command.ext.get("leaseEpoch"))
        )
        gated = Gated()
        gated.open.set()
        await send_to_queue(cluster, 1)
        async with consumer(cluster, gated, mode="leased") as member:
            await eventually(lambda: written, "an offset was written")
            holding = engine_of(member).leased.holding(QUEUE)
            assert holding is not None
            epoch = holding.epoch
        assert epoch is not None
        assert str(epoch) in written
        assert None not in written

    play(scenario)


def test_the_late_offset_of_a_former_holder_is_refused_and_the_queue_counts_as_lost() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        gated, lost = Gated(), list[MessageQueue]()
        await send_to_queue(cluster, 4)
        async with consumer(cluster, gated, mode="leased", on_lost=lost.extend) as member:
            await eventually(lambda: gated.started == 4, "handlers are at work")
            cluster.intercept(RequestCode.LOCK_BATCH_MQ, deceived(member))
            await steal(cluster, member, QUEUE)
            await set_offset(cluster, QUEUE, 3)
            gated.open.set()
            await eventually(lambda: QUEUE in lost, "the member knows that it lost the queue")
            events = [event for event in member.recorder.events if event.kind == Kind.LOST]
            assert ["the broker refused its offset" in event.cause for event in events] == [True]
            assert await stored_offset(cluster, QUEUE) == 3, "the group was not moved"

    play(scenario)


class Right:
    """As leases give it, but by word of the test."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.is_there = True
        self.refusals = 0

    def holds(self) -> bool:
        return self.is_there

    def refused(self) -> None:
        self.refusals += 1


def test_an_offset_that_waited_for_another_is_not_written_when_its_lease_is_over_by_then() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_queue(cluster, 5)
        session = acquire_session(connection_options(cluster.nameserver))
        right = Right()
        offsets = BrokerOffsets(session, "g", lambda _: right)
        assert await offsets.write(QUEUE, 1)
        cluster.pause("broker-a")
        first = asyncio.create_task(offsets.write(QUEUE, 2))
        await asyncio.sleep(0)
        second = asyncio.create_task(offsets.write(QUEUE, 3))
        connection = session.connection_now(cluster.brokers["broker-a"])
        assert connection is not None
        await eventually(lambda: connection.unanswered, "the first is on its way")
        assert offsets.is_writing(QUEUE)
        right.is_there = False
        cluster.resume("broker-a")
        assert await first
        assert not await second
        assert await stored_offset(cluster, QUEUE) == 2
        await release_session(session)

    play(scenario)


def test_a_broker_that_does_not_answer_holds_up_no_handover_at_another() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        dropped = 0

        def drop(_: Command) -> Drop:
            nonlocal dropped
            dropped += 1
            return DROP

        gated = Gated()
        gated.open.set()
        await send(cluster, numbered(40))
        first = consumer(cluster, gated, mode="leased")
        await first.start()
        await eventually(lambda: len(first.holdings()) == 10, "it holds all queues")
        cluster.intercept(RequestCode.UPDATE_CONSUMER_OFFSET, drop, server="broker-b")
        await send(cluster, numbered(40, 40))
        await eventually(lambda: dropped, "an offset for the silent broker is on its way")
        async with consumer(cluster, gated, mode="leased") as second:
            await eventually(
                lambda: any(held.queue.broker_name == "broker-a" for held in second.holdings()),
                "a queue of the other broker was handed over",
            )
            released = [event for event in first.recorder.events if event.kind == Kind.RELEASED]
            assert {event.queue.broker_name for event in released if event.queue} == {"broker-a"}
        await first.close()

    play(scenario, brokers=2)
