"""Real members look for the canary that was ordered for their group, and depend on nobody for it."""

import asyncio
import logging

import pytest

from tests.unit.client.pushing import consumer, eventually, numbered, play, send
from tests.unit.client.test_push_leased import Counted, is_shared, leased
from trimtab.balance.canary_orders import NAMESPACE
from trimtab.client.admin import Admin
from trimtab.client.push_settings import Consuming
from trimtab.testing import DROP, AsyncCluster
from trimtab.wire.codes import RequestCode


def test_name_servers_that_do_not_answer_hold_up_no_share() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        cluster.intercept(RequestCode.GET_KV_CONFIG, lambda _: DROP)
        handler = Counted(0.0)
        async with leased(cluster, handler) as first, leased(cluster, handler) as second:
            await eventually(lambda: is_shared(first, second), "both have their part")

    play(scenario)


def test_an_order_that_nobody_understands_is_told_once_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario(cluster: AsyncCluster) -> None:
        await send(cluster, numbered(1))
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.put_kv(NAMESPACE, "g", '{"members": [], "part": 7}')
        often = Consuming(rebalance_every_s=0.05)
        async with consumer(cluster, Counted(0.0), mode="leased", consuming=often) as member:
            await eventually(lambda: is_shared(member), "it has all queues")
            await asyncio.sleep(0.5)
        told = [record for record in caplog.records if "is no setting" in record.getMessage()]
        assert len(told) == 1

    play(scenario)
