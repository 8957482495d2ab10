"""The flight recorder of members in classic mode: what happened to queues, why, and how much was in flight."""

import asyncio

from tests.unit.client.pushing import consumer, eventually, numbered, play, send
from trimtab.balance.recorder import Kind
from trimtab.client.push import PushConsumer
from trimtab.client.received import Received
from trimtab.testing import AsyncCluster


def kinds(member: PushConsumer) -> list[str]:
    return [event.kind for event in member.recorder.events]


def test_a_classic_member_records_what_it_takes_and_lets_go_and_why() -> None:
    may_end = asyncio.Event()

    async def held_up(_: Received) -> None:
        await may_end.wait()

    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(40))
        first, second = consumer(cluster, held_up), consumer(cluster, held_up)
        await first.start()
        await eventually(lambda: kinds(first).count(Kind.ACQUIRED) == 5, "it has all queues and the retries")
        await eventually(
            lambda: sum(held.waiting_messages for held in first.holdings()) == 40, "all was pulled"
        )
        await second.start()
        await eventually(lambda: Kind.DROPPED in kinds(first), "it gave something up")
        may_end.set()
        await first.close()
        await second.close()
        events = first.recorder.events
        assert (events[0].kind, events[0].cause) == (Kind.JOINED, "start")
        assert events[-1].kind == Kind.LEFT
        dropped = [event for event in events if event.kind == Kind.DROPPED]
        assert {event.cause for event in dropped} == {"another member has it in its share"}
        assert any(event.in_flight for event in dropped)

    play(scenario)


def test_a_classic_member_records_that_an_offset_was_set_elsewhere() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(8))
        got: list[bytes] = []

        async def handle(message: Received) -> None:
            got.append(message.body)

        async with consumer(cluster, handle) as member:
            await eventually(lambda: len(got) == 8, "all came")
            await member.reset_offsets({held.queue: 0 for held in member.holdings()})
            await eventually(lambda: len(got) >= 16, "all came again")
            assert Kind.OFFSET_MOVED in kinds(member)

    play(scenario)
