"""`Admin` and the diagnosis with real consumers of ours as members."""

import asyncio

import pytest

import trimtab
from trimtab.client.admin.diagnosis import diagnose
from trimtab.client.admin.facts import facts_of
from trimtab.errors import SettingsError
from trimtab.io.clock import SystemClock
from trimtab.settings import Timeouts
from trimtab.testing import Cluster

PATIENT = Timeouts(request_s=30.0)
WAIT_S = 60.0


async def handle(_message: trimtab.Received) -> None:
    return None


async def causes(admin: trimtab.Admin) -> set[str]:
    facts = await facts_of(admin, "billing", SystemClock(), sample_s=0)
    return {finding.cause for finding in diagnose(facts)}


def test_members_of_ours_are_seen_and_healthy_and_a_fault_is_named() -> None:
    async def run() -> None:
        async with (
            Cluster(brokers=2) as cluster,
            trimtab.Admin(nameserver=cluster.nameserver, timeouts=PATIENT) as admin,
        ):
            ns = cluster.nameserver
            await admin.create_topic("orders", queues=2)

            def consumer(name: str, expression: str) -> trimtab.PushConsumer:
                return trimtab.PushConsumer(
                    "billing", subscribe={"orders": expression}, handler=handle, nameserver=ns, client_id=name
                )

            async with consumer("c-1", "*"), consumer("c-2", "*"), asyncio.timeout(WAIT_S):
                while await causes(admin):
                    pass
                states = await admin.member_states("billing")
                held = {
                    state.client_id: [row for row in state.queues if row.topic == "orders"]
                    for state in states.members
                }
                assert {name: len(rows) for name, rows in held.items()} == {"c-1": 2, "c-2": 2}
                assert (await admin.members("billing")).views[0].members[0].language == "PYTHON"
                async with consumer("c-3", "eu"):
                    while "unequal-subscriptions" not in await causes(admin):
                        pass

    asyncio.run(run())


def test_members_say_how_far_they_are_before_they_have_committed_it() -> None:
    async def run() -> None:
        async with (
            Cluster(brokers=2) as cluster,
            trimtab.Admin(nameserver=cluster.nameserver, timeouts=PATIENT) as admin,
            trimtab.Producer("shop", nameserver=cluster.nameserver) as producer,
        ):
            await admin.create_topic("orders", queues=1)
            queues = (
                (await producer.send(trimtab.Message("orders", b"1"))).queue,
                (await producer.send(trimtab.Message("orders", b"2"))).queue,
            )
            never = trimtab.Consuming(offsets_every_s=3_600)
            async with (
                trimtab.PushConsumer(
                    "billing", subscribe={"orders": "*"}, handler=handle, nameserver=cluster.nameserver, client_id="c-1",
                    start="first", mode="classic", consuming=never,
                ),
                asyncio.timeout(WAIT_S),
            ):  # fmt: skip
                wanted = {("c-1", queue.broker_name, 0, queues.count(queue)) for queue in queues}
                while True:
                    told = await admin.member_offsets("billing", "orders")
                    rows = {(row.client_id, row.broker, row.queue_id, row.offset) for row in told.offsets}
                    if wanted <= rows:
                        break
                assert not told.failures

    asyncio.run(run())


def test_a_group_is_moved_in_a_topic_that_its_members_do_not_read() -> None:
    async def run() -> None:
        async with (
            Cluster(brokers=1) as cluster,
            trimtab.Admin(nameserver=cluster.nameserver, timeouts=PATIENT) as admin,
            trimtab.Producer("shop", nameserver=cluster.nameserver) as producer,
        ):
            for topic in ("orders", "bills"):
                await admin.create_topic(topic, queues=1)
                await producer.send(trimtab.Message(topic, b"1"))
            (queue,) = (row.queue for row in (await admin.topic_queues("bills")).queues)
            await admin.set_offset("billing", queue, 1)
            async with trimtab.PushConsumer(
                "billing", subscribe={"orders": "*"}, handler=handle, nameserver=cluster.nameserver
            ):
                change = await admin.reset_offsets("billing", "bills", "begin")
                assert [(move.before, move.after) for move in change.moves] == [(1, 0)]
                assert change.through == "broker"
                (stored,) = await admin.group_offsets("billing", "bills")
                assert not stored.offset
                planned = await admin.reset_offsets("billing", "orders", "begin", dry_run=True)
                assert planned.through == "members"

    asyncio.run(run())


@pytest.mark.parametrize("offset", [-1, 1.5, True, "7", 2**63])
def test_an_offset_that_nobody_could_start_at_is_not_set(offset: object) -> None:
    async def run() -> None:
        async with trimtab.Admin(nameserver="127.0.0.1:1") as admin:
            queue = trimtab.MessageQueue("orders", "broker-a", 0)
            with pytest.raises(SettingsError, match="offset"):
                await admin.set_offset("billing", queue, offset)  # type: ignore[arg-type]

    asyncio.run(run())
