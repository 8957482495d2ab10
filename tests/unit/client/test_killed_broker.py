"""A broker that is killed outright costs no failed send, and at most one slow one for each message on its way."""

import asyncio

from tests.killing import a_killed_broker_costs_no_failed_send
from trimtab.testing import Cluster


def test_a_killed_broker_costs_no_failed_send() -> None:
    async def run() -> None:
        async with Cluster(brokers=3) as cluster:
            await a_killed_broker_costs_no_failed_send(
                cluster.nameserver, set(cluster.brokers), "broker-b", lambda: cluster.kill("broker-b")
            )

    asyncio.run(run())
