"""A broker of Apache's that is killed outright costs no failed send either."""

import asyncio

import pytest

from tests.apache.cluster import ApacheCluster
from tests.interop.servers import OWN, chosen_servers
from tests.killing import a_killed_broker_costs_no_failed_send


@pytest.mark.parametrize("version", [version for version in chosen_servers() if version != OWN])
def test_a_killed_broker_costs_no_failed_send(version: str) -> None:
    with ApacheCluster(version, brokers=3, heap_mib=256) as cluster:
        names = {broker.name for broker in cluster.brokers}
        asyncio.run(
            a_killed_broker_costs_no_failed_send(
                cluster.nameserver, names, "broker-b", lambda: asyncio.to_thread(cluster.kill, "broker-b")
            )
        )
