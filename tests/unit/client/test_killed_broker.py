"""A broker that is killed outright costs no failed send, and at most one slow one for each message on its way."""

import asyncio

from trimtab import Message, Producer, Receipt
from trimtab.testing import Cluster

WORKERS = 64
SENDS_AFTER = 20


def test_a_killed_broker_costs_no_failed_send() -> None:
    asyncio.run(_sends_while_a_broker_is_killed())


async def _sends_while_a_broker_is_killed() -> None:
    async with Cluster(brokers=3) as cluster, Producer("g", nameserver=cluster.nameserver) as producer:
        receipts: list[Receipt] = []
        all_used, killed = asyncio.Event(), asyncio.Event()

        async def worker() -> None:
            after = 0
            while after < SENDS_AFTER:
                receipts.append(await producer.send(Message("orders", b"x")))
                if len({receipt.queue.broker_name for receipt in receipts}) == 3:
                    all_used.set()
                after += killed.is_set()

        async def killer() -> None:
            await all_used.wait()
            await cluster.kill("broker-b")
            killed.set()

        await asyncio.gather(killer(), *(worker() for _ in range(WORKERS)))
        assert {receipt.status for receipt in receipts} == {"SEND_OK"}
        assert max(receipt.attempts for receipt in receipts) <= 2
        assert sum(receipt.attempts > 1 for receipt in receipts) <= WORKERS, (
            "one slow send per message in flight"
        )
        last = receipts[-WORKERS:]
        assert {receipt.queue.broker_name for receipt in last} <= {"broker-a", "broker-c"}
