"""`group doctor` on faults that are made, not said: real members of ours and real servers. With Java members: tests/interop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trimtab
from trimtab.client.admin.diagnosis import diagnose
from trimtab.client.admin.facts import facts_of
from trimtab.io.clock import SystemClock
from trimtab.model import MessageQueue
from trimtab.settings import Timeouts
from trimtab.testing import DROP, AsyncCluster, Cluster
from trimtab.wire.codes import RequestCode

WAIT_S = 120.0
PATIENT = Timeouts(request_s=30.0)
GROUP, TOPIC = "billing", "orders"


class AllForMe:
    """A strategy as somebody might write it: everybody takes everything."""

    name = "all-for-me"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> tuple[MessageQueue, ...]:
        return tuple(queues)


class NothingForMe:
    """One by which nobody takes anything."""

    name = "nothing-for-me"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> tuple[MessageQueue, ...]:
        return ()


async def handle(_message: trimtab.Received) -> None:
    return None


def member(cluster: AsyncCluster, name: str, **options: Any) -> trimtab.PushConsumer:
    return trimtab.PushConsumer(
        GROUP, subscribe={TOPIC: "*"}, handler=handle, nameserver=cluster.nameserver, client_id=name, start="first", **options
    )  # fmt: skip


async def until(admin: trimtab.Admin, is_so: Callable[[set[str]], bool], what: str) -> None:
    found: set[str] = set()
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                facts = await facts_of(admin, GROUP, SystemClock(), sample_s=0.2)
                found = {finding.cause for finding in diagnose(facts)}
                if is_so(found):
                    return
    except TimeoutError:
        raise AssertionError(f"{what}: the doctor finds {found or 'nothing'}") from None


def healthy(found: set[str]) -> bool:
    return not found


def play(story: Callable[[AsyncCluster, trimtab.Admin], Awaitable[None]]) -> None:
    async def run() -> None:
        async with (
            Cluster(brokers=2) as cluster,
            trimtab.Admin(nameserver=cluster.nameserver, timeouts=PATIENT) as admin,
        ):
            await admin.create_topic(TOPIC, queues=2)
            await admin.create_group(GROUP)
            await story(cluster, admin)

    asyncio.run(run())


def test_a_healthy_group_yields_nothing_in_either_mode() -> None:
    async def story(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        for mode in ("leased", "classic"):
            async with member(cluster, "c-1", mode=mode), member(cluster, "c-2", mode=mode):
                await until(admin, healthy, f"two {mode} members")

    play(story)


def test_members_that_all_take_everything_are_found() -> None:
    async def story(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        greedy = AllForMe()
        async with (
            member(cluster, "c-1", mode="classic", strategy=greedy),
            member(cluster, "c-2", mode="classic", strategy=greedy),
        ):
            await until(admin, lambda found: found == {"double-held-queues"}, "queues with two holders")

    play(story)


def test_queues_that_nobody_takes_are_found() -> None:
    async def story(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        async with member(cluster, "c-1", mode="classic", strategy=NothingForMe()):
            await until(admin, lambda found: "unheld-queues" in found, "queues without a holder")

    play(story)


def test_a_member_that_one_broker_does_not_see_is_found() -> None:
    async def story(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        deaf = cluster.intercept(RequestCode.HEART_BEAT, lambda _: DROP, server="broker-b")
        async with member(cluster, "c-1", mode="classic"):
            await until(admin, lambda found: "split-view" in found, "heartbeats that broker-b does not get")
            deaf()

    play(story)


def test_a_lease_that_cannot_be_renewed_is_found_and_forgotten_when_it_can() -> None:
    async def story(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        async with member(cluster, "c-1"), member(cluster, "c-2"):
            await until(admin, healthy, "two members with leases")
            stop = cluster.intercept(RequestCode.LOCK_BATCH_MQ, lambda _: DROP, server="broker-a")
            await until(admin, lambda found: "expired-leases" in found, "leases at broker-a are not renewed")
            stop()
            lately = {"fenced-leases", "lost-leases"}  # told for ten minutes
            await until(admin, lambda found: found <= lately, "leases are renewed again")

    play(story)


def test_a_hot_queue_and_a_group_without_members_are_found() -> None:
    async def story(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        hot = MessageQueue(TOPIC, "broker-a", 1)
        async with trimtab.Producer("shop", nameserver=cluster.nameserver) as producer:
            messages = [trimtab.Message(TOPIC, b"x")] * 1_200
            await asyncio.gather(*(producer.send(message, queue=hot) for message in messages))
        await admin.reset_offsets(GROUP, TOPIC, "begin")
        await until(admin, lambda found: found == {"hot-queue", "no-members"}, "one queue has it all")

    play(story)


def test_name_servers_that_know_different_brokers_are_found() -> None:
    async def run() -> None:
        async with Cluster() as first, Cluster(brokers=2) as second:
            for cluster in (first, second):
                async with trimtab.Admin(nameserver=cluster.nameserver, timeouts=PATIENT) as one:
                    await one.create_topic(TOPIC, queues=2)
                    await one.create_group(GROUP)
            both = f"{first.nameserver};{second.nameserver}"
            async with (
                trimtab.Admin(nameserver=both, timeouts=PATIENT) as admin,
                member(first, "c-1"),
            ):
                await until(admin, lambda found: "nameservers-disagree" in found, "two name servers")

    asyncio.run(run())
