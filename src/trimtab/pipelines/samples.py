"""Traffic for pipelines that run without a cluster of yours: made by real clients on a real cluster in this process."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trimtab import Admin, ConsumeLater, Consuming, Message, Producer, PushConsumer, Received, Sending
from trimtab.errors import TrimtabError

TOPIC = "orders"
GROUP = "billing"
QUEUES = 4
"""On each broker."""
DONE_S_MAX = 120.0
HANDLER_S = 0.01
REGIONS = ("eu", "us", "asia")
_LOOK_S = 0.05


async def send_orders(nameserver: str, messages: int, *, topic: str = TOPIC) -> None:
    """So many orders, at once; every tenth is there twice, as after a client that sent again."""
    async with Admin(nameserver=nameserver) as admin:
        await admin.create_topic(topic, queues=QUEUES)
    async with Producer("shop", nameserver=nameserver) as producer:
        numbers = [number for at in range(messages) for number in ((at, at) if at % 10 == 0 else (at,))]
        await asyncio.gather(*(producer.send(_order(topic, number)) for number in numbers))


def _order(topic: str, number: int) -> Message:
    body = f'{{"order": {number}, "amount": {number * 7 % 1000}}}'.encode()
    return Message(topic, body, tag=REGIONS[number % len(REGIONS)], keys=[f"o-{number}"])


class _Group:
    """Members in classic mode, traced, and what they got."""

    def __init__(self, nameserver: str, record_to: str | None) -> None:
        self._nameserver = nameserver
        self._record_to = record_to
        self.members: list[PushConsumer] = []
        self.got: Counter[str] = Counter()

    async def join(self) -> None:
        """One more."""
        consuming = Consuming(trace=True, concurrency=4, drain_s_max=0, record_to=self._record_to)
        member = PushConsumer(
            GROUP, subscribe={TOPIC: "*"}, handler=self._handle, nameserver=self._nameserver, mode="classic", start="first",
            consuming=consuming,
        )  # fmt: skip
        await member.start()
        self.members.append(member)

    async def leave(self) -> None:
        """The oldest goes, and does not wait for its handlers."""
        await self.members.pop(0).close()

    async def _handle(self, message: Received) -> None:
        await asyncio.sleep(HANDLER_S)
        self.got[message.message_id] += 1


async def trace_changes(
    nameserver: str, *, per_second: int = 200, step_s: float = 1.5, record_to: str | None = None
) -> int:
    """Three members, one joins, one leaves, one joins, one leaves, under load and with trace on; how many messages were sent."""
    async with Admin(nameserver=nameserver) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    group = _Group(nameserver, record_to)
    try:
        for _ in range(3):
            await group.join()
        async with _load(nameserver, per_second) as sent:
            for change in (group.join, group.leave, group.join, group.leave):
                await asyncio.sleep(step_s)
                await change()
            await asyncio.sleep(step_s)
        await _until_all_came(group, sent)
        return len(sent)
    finally:
        await asyncio.gather(*(member.close() for member in group.members))


@asynccontextmanager
async def _load(nameserver: str, per_second: int) -> AsyncIterator[set[str]]:
    """Messages at a steady rate for as long as the block; the ids of those sent."""
    sent: set[str] = set()
    is_over = asyncio.Event()

    async def send() -> None:
        time_s = asyncio.get_running_loop().time
        async with Producer("shop", nameserver=nameserver, sending=Sending(trace=True)) as producer:
            began_s, number = time_s(), 0
            while not is_over.is_set():
                due = int((time_s() - began_s) * per_second)
                orders = (producer.send(_order(TOPIC, at)) for at in range(number, due))
                sent.update(receipt.message_id for receipt in await asyncio.gather(*orders))
                number = max(number, due)
                await asyncio.sleep(_LOOK_S)

    sending = asyncio.create_task(send())
    try:
        yield sent
    finally:
        is_over.set()
        await sending


async def _until_all_came(group: _Group, sent: set[str]) -> None:
    try:
        async with asyncio.timeout(DONE_S_MAX):
            while not sent <= group.got.keys():  # noqa: ASYNC110 - handlers of several members count
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        missing = len(sent - group.got.keys())
        raise TrimtabError(
            f"{missing} of {len(sent)} messages did not come within {DONE_S_MAX:.0f} s"
        ) from None


async def fail_some(nameserver: str, messages: int) -> int:
    """A group that fails with the orders of one region and puts off those of another, and gives up at once; how many dead letters there are."""
    await send_orders(nameserver, messages)
    dead = sum(1 for at in range(messages) for _ in range(2 if at % 10 == 0 else 1) if at % len(REGIONS) < 2)

    async def handle(message: Received) -> None:
        if message.tag == REGIONS[2]:
            return
        if message.tag == REGIONS[0]:
            raise ValueError(f"order {message.keys[0]} has no price")
        raise ConsumeLater

    consumer = PushConsumer(
        GROUP,
        subscribe={TOPIC: "*"},
        handler=handle,
        nameserver=nameserver,
        mode="classic",
        start="first",
        consuming=Consuming(trace=True, reconsume_times_max=0),
    )
    async with asyncio.timeout(DONE_S_MAX), consumer, Admin(nameserver=nameserver) as admin:
        while await _stored(admin, f"%DLQ%{GROUP}") < dead:  # noqa: ASYNC110 - it happens at the brokers
            await asyncio.sleep(_LOOK_S)
    return dead


async def _stored(admin: Admin, topic: str) -> int:
    if topic not in (await admin.topics()).names:
        return 0
    return (await admin.topic_queues(topic)).messages
