"""Canaries and weights in real members: what is wrong for sure is refused at once, what does not fit the group now costs no queue."""

import logging

import pytest

from tests.unit.client.pushing import TOPIC, Inbox, consumer, eventually, owners, play
from trimtab.balance.recorder import Kind
from trimtab.balance.strategies import CanarySetting, LeasedCanary, Planner, Sticky, Weighted
from trimtab.client.admin import Admin
from trimtab.client.push import PushConsumer
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue
from trimtab.testing import AsyncCluster

QUEUES = 8


def member(cluster: AsyncCluster, name: str, strategy: Planner) -> PushConsumer:
    return consumer(cluster, Inbox(), mode="leased", client_id=name, strategy=strategy)


def shares(*members: PushConsumer) -> list[int]:
    held = owners(members)
    return [sum(one.client_id in who for who in held.values()) for one in members]


async def make_topic(cluster: AsyncCluster) -> None:
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage()
        for one in caplog.records
        if one.levelno == logging.WARNING and "do not fit" in one.getMessage()
    ]


def test_members_of_other_weights_get_shares_by_them(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await make_topic(cluster)
        weights = Weighted({"big": 3, "small": 1})
        async with member(cluster, "big", weights) as big, member(cluster, "small", weights) as small:
            # The queue of retries is shared, too.
            await eventually(lambda: shares(big, small) in ([6, 2], [7, 1]), "three to one")

    play(scenario)
    assert warnings(caplog) == []


def test_a_member_without_weight_costs_no_queue_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await make_topic(cluster)
        async with member(cluster, "a", Weighted({"a": 3})) as a:
            await eventually(lambda: shares(a) == [QUEUES], "all queues")
            async with member(cluster, "b", Weighted({"b": 1})) as b:
                await eventually(lambda: shares(a, b) == [QUEUES // 2] * 2, "even shares")
                for one in (a, b):
                    misfits = [event for event in one.recorder.events if event.kind == Kind.MISFIT]
                    assert len(misfits) == 1
                    assert "has no weight" in misfits[0].cause

    play(scenario)
    assert len(warnings(caplog)) == 2  # one a member


def test_a_canary_as_large_as_the_group_costs_no_queue_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await make_topic(cluster)
        canary = LeasedCanary(Sticky(), CanarySetting(frozenset({"a"}), part=0.25))
        async with member(cluster, "a", canary) as a:
            await eventually(lambda: shares(a) == [QUEUES], "it has everything while it is alone")
            async with member(cluster, "b", canary) as b:
                # A quarter of nine, with the queue of retries, which may be among them.
                await eventually(lambda: shares(a, b) in ([2, 6], [3, 5]), "a quarter is the canary's")

    play(scenario)
    assert any(
        "1 canaries in a group of 1: at least one member must be left" in line for line in warnings(caplog)
    )


def test_what_is_wrong_for_sure_is_refused_before_anything_is_asked() -> None:
    def begin(strategy: Planner, client_id: str | None) -> None:
        PushConsumer("g", subscribe={TOPIC: "*"}, handler=Inbox(), nameserver="127.0.0.1:1", client_id=client_id, strategy=strategy)  # fmt: skip

    with pytest.raises(SettingsError, match="member c has no weight; name it by its client_id, or give"):
        begin(Weighted({"a": 1, "b": 2}), "c")
    with pytest.raises(SettingsError, match="a member without a client_id of its own has no weight"):
        begin(Weighted({"a": 1}), None)
    begin(Weighted({"a": 1}, otherwise=1), None)
    foreign = CanarySetting(frozenset({"a"}), queues=frozenset({MessageQueue("invoices", "broker-a", 0)}))
    with pytest.raises(SettingsError, match="of topic invoices, which is not subscribed to"):
        begin(LeasedCanary(Sticky(), foreign), "a")
