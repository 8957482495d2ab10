"""Sends go on while a broker is killed outright: the body of that test, for brokers of ours and Apache's."""

import asyncio
from collections.abc import Awaitable, Callable

from trimtab import Admin, Message, Producer, Receipt

WORKERS = 64
SENDS_AFTER = 20
TOPIC = "killed"


async def a_killed_broker_costs_no_failed_send(
    nameserver: str, brokers: set[str], victim: str, kill: Callable[[], Awaitable[None]]
) -> None:
    """No send fails, and at most one is slow for each message that was on its way."""
    async with Admin(nameserver=nameserver) as admin:
        await admin.create_topic(TOPIC, queues=4)
    async with Producer("g", nameserver=nameserver) as producer:
        receipts: list[Receipt] = []
        before = 0
        all_used, killed = asyncio.Event(), asyncio.Event()

        async def worker() -> None:
            after = 0
            while after < SENDS_AFTER:
                receipts.append(await producer.send(Message(TOPIC, b"x")))
                if not all_used.is_set() and {receipt.queue.broker_name for receipt in receipts} == brokers:
                    all_used.set()
                after += killed.is_set()

        async def killer() -> None:
            nonlocal before
            await all_used.wait()
            before = len(receipts)  # a broker that has just started may have been too busy for some of them
            await kill()
            killed.set()

        await asyncio.gather(killer(), *(worker() for _ in range(WORKERS)))
    assert {receipt.status for receipt in receipts} == {"SEND_OK"}
    assert max(receipt.attempts for receipt in receipts[before:]) <= 2
    assert sum(receipt.attempts > 1 for receipt in receipts[before:]) <= WORKERS
    assert {receipt.queue.broker_name for receipt in receipts[-WORKERS:]} <= brokers - {victim}
