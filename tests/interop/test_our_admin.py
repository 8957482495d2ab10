"""Our `Admin` at our servers and at Apache's: the same calls, the same answers; with stock Java consumers as members."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest

import trimtab
from tests.interop.java_program import JAVA_CLIENTS
from tests.interop.servers import WAIT_S, eventually, unique
from trimtab.client.admin.offsets import MembersConnectedError
from trimtab.client.admin.reach import NoSuchGroupError, NoSuchTopicError
from trimtab.errors import NoMessageError
from trimtab.model import Message, MessageQueue
from trimtab.settings import Timeouts
from trimtab.wire.hashing import java_hash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.interop.java_program import JavaPrograms
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Program

T = TypeVar("T")
PATIENT = Timeouts(request_s=30.0, send_s=30.0)


def ask(server: ServerUnderTest, question: Callable[[trimtab.Admin], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with trimtab.Admin(nameserver=server.nameserver, timeouts=PATIENT) as admin:
            return await question(admin)

    return asyncio.run(asked())


def send(server: ServerUnderTest, *messages: Message) -> list[trimtab.Receipt]:
    async def sent() -> list[trimtab.Receipt]:
        async with trimtab.Producer(unique("pg"), nameserver=server.nameserver, timeouts=PATIENT) as producer:
            return [await producer.send(message) for message in messages]

    return asyncio.run(sent())


@pytest.fixture
def member_program(java_programs: JavaPrograms, server: ServerUnderTest) -> Program:
    """A stock Java client of the servers' own generation."""
    return java_programs.running(JAVA_CLIENTS[1] if server.version.startswith("5.") else JAVA_CLIENTS[0])


def test_a_topic_lives_and_dies(server: ServerUnderTest) -> None:
    topic = unique("ours")

    async def live(admin: trimtab.Admin) -> None:
        made = await admin.create_topic(topic, queues=3)
        assert [one.broker for one in made.brokers] == [broker.name for broker in server.brokers]
        settings = await admin.topic_settings(topic)
        assert [(one.read_queues, one.write_queues, one.perm) for one in settings.brokers] == [
            (3, 3, "rw")
        ] * 2
        assert topic in (await admin.topics()).names
        route = await admin.topic_route(topic)
        assert [place.master for place in route.brokers] == [broker.address for broker in server.brokers]
        await admin.alter_topic(topic, perm="r", brokers=[server.brokers[0].name])
        perms = [one.perm for one in (await admin.topic_route(topic)).queues]
        assert perms == ["r", "rw"]
        ((told, *_), failures) = await admin.topic_routes(topic)
        assert (told.route, failures) == (await admin.topic_route(topic), ())
        assert len((await admin.topic_queues(topic, times=True)).queues) == 6
        assert len(await admin.delete_topic(topic)) == 2
        with pytest.raises(NoSuchTopicError):
            await admin.topic_queues(topic)

    ask(server, live)


def test_a_group_lives_and_dies(server: ServerUnderTest) -> None:
    group = unique("ours-g")

    async def live(admin: trimtab.Admin) -> None:
        made = await admin.create_group(group, retries_max=3)
        assert await admin.group_settings(group) == made
        changed = await admin.alter_group(group, enabled=False)
        assert {(one.enabled, one.retries_max) for one in changed.brokers} == {(False, 3)}
        assert group in (await admin.groups()).names
        assert (await admin.members(group)).views == ()
        await admin.delete_group(group)
        with pytest.raises(NoSuchGroupError):
            await admin.group_settings(group)

    ask(server, live)


def test_a_message_is_found_in_every_way(server: ServerUnderTest) -> None:
    topic = server.make_topic("found", queues=1)
    key = unique("key")
    (receipt,) = send(server, Message(topic, b"hello", tag="eu", keys=[key], properties={"a": "b"}))

    async def by_key(admin: trimtab.Admin) -> bool:
        return bool((await admin.messages_by_key(topic, key)).messages)

    eventually(lambda: ask(server, by_key), "the index knows it")

    async def find(admin: trimtab.Admin) -> None:
        at = await admin.message(receipt.offset_message_id)
        assert (at.body, at.tag, at.keys, at.properties["a"]) == (b"hello", "eu", (key,), "b")
        assert at.queue == receipt.queue
        assert await admin.message(receipt.message_id, topic) == at
        assert (await admin.messages_by_key(topic, key)).messages == (at,)
        assert (await admin.read(receipt.queue, 0)).messages == (at,)
        assert (await admin.read(receipt.queue, 0, expression="us")).messages == ()
        with pytest.raises(NoMessageError):
            await admin.message(receipt.offset_message_id[:-8] + "0FFFFFFF")
        copy = await admin.resend(at)
        again = await admin.message(copy.offset_message_id)
        assert (again.body, again.message_id, again.properties["a"]) == (b"hello", receipt.message_id, "b")

    ask(server, find)


def test_the_cluster_and_its_settings(server: ServerUnderTest) -> None:
    async def look(admin: trimtab.Admin) -> None:
        view = await admin.cluster()
        assert [(place.broker, place.master) for place in view.brokers] == [
            (broker.name, broker.address) for broker in server.brokers
        ]
        states = await admin.broker_states()
        async with asyncio.timeout(WAIT_S):
            while states.failures:  # 4.9.3 throws inside until it has counted for a while
                await asyncio.sleep(0.5)
                states = await admin.broker_states()
        # A broker that just started has no rate yet.
        assert all(state.version and "putTps" in state.facts for state in states.brokers)
        name = "maxTransferCountOnMessageInMemory"
        for value in ("48", "32"):
            await admin.change_broker_settings({name: value}, [server.brokers[0].name])
            settings = (await admin.broker_settings()).settings
            assert settings[server.brokers[0].name][name] == value
        await admin.put_kv("trimtab", "k", "v")
        assert await admin.get_kv("trimtab", "k") == "v"
        await admin.delete_kv("trimtab", "k")
        assert await admin.get_kv("trimtab", "k") is None

    ask(server, look)


def test_a_queue_s_index_is_read_and_brokers_are_told_to_clean(server: ServerUnderTest) -> None:
    topic = server.make_topic("index", queues=1)
    sent = send(server, *(Message(topic, b"x" * n, tag="eu") for n in range(1, 5)))

    async def look(admin: trimtab.Admin) -> None:
        for queue in {receipt.queue for receipt in sent}:
            offsets = [receipt.queue_offset for receipt in sent if receipt.queue == queue]
            shown = await admin.queue_entries(queue, 0)
            assert [entry.queue_offset for entry in shown.entries] == sorted(offsets)
            assert (shown.min_offset, shown.max_offset) == (0, len(offsets))
            assert {entry.tag_hash for entry in shown.entries} == {java_hash("eu")}
        names = tuple(broker.name for broker in server.brokers)
        assert await admin.clean_queues() == names
        assert await admin.clean_topics() == names
        if not server.is_own:  # ours take no settings over the network
            before = (await admin.nameserver_settings()).settings[server.nameserver]["serverWorkerThreads"]
            for value in ("5", before):
                assert await admin.change_nameserver_settings({"serverWorkerThreads": value}) == (
                    server.nameserver,
                )
                assert (await admin.nameserver_settings()).settings[server.nameserver][
                    "serverWorkerThreads"
                ] == value

    ask(server, look)


def test_a_java_member_says_how_far_it_is(server: ServerUnderTest, member_program: Program) -> None:
    topic, group = server.make_topic("far", queues=1), unique("g")
    sent = send(server, *(Message(topic, b"%d" % n) for n in range(6)))
    with member_program.client("push", server, group=group, tags={topic: "*"}) as java:
        java.wait_for(6)

        def told() -> bool:
            rows = ask(server, lambda admin: admin.member_offsets(group, topic)).offsets
            return sum(row.offset for row in rows) == len(sent) and len({row.client_id for row in rows}) == 1

        eventually(told, "the member says that it has come to the end")


def test_write_permission_goes_and_comes_back(server: ServerUnderTest) -> None:
    topic = server.make_topic("wiped", queues=1)
    name = server.brokers[0].name

    async def wipe(admin: trimtab.Admin) -> None:
        assert await admin.wipe_write_perm(name) > 0
        try:
            perms = {one.broker: one.perm for one in (await admin.topic_route(topic)).queues}
            assert perms[name] == "r"
        finally:
            assert await admin.add_write_perm(name) > 0
        perms = {one.broker: one.perm for one in (await admin.topic_route(topic)).queues}
        assert perms[name] == "rw"

    ask(server, wipe)


def test_a_java_member_is_seen_says_what_it_holds_and_is_moved(
    server: ServerUnderTest, member_program: Program
) -> None:
    topic = server.make_topic("held", queues=2)
    send(server, *(Message(topic, b"%d" % number) for number in range(12)))
    with member_program.client("push", server, tags={topic: "*"}) as consumer:
        consumer.wait_for(12)
        group = consumer.group

        async def lag(admin: trimtab.Admin) -> int:
            progress = await admin.progress(group, topic)
            return progress.lag if len(progress.queues) == 4 else -1

        eventually(lambda: ask(server, lag) == 0, "all is committed")

        async def look(admin: trimtab.Admin) -> None:
            members = await admin.members(group)
            assert members.client_ids == (consumer.id,)
            assert [view.broker for view in members.views] == [broker.name for broker in server.brokers]
            view = members.views[0]
            assert {one.topic: one.expression for one in view.subscriptions}[topic] == "*"
            assert view.members[0].language == "JAVA"
            state = await admin.member_state(group, consumer.id, jstack=True)
            held = {row.queue for row in state.queues if row.topic == topic}
            assert held == {
                MessageQueue(topic, broker.name, number) for broker in server.brokers for number in (0, 1)
            }
            assert state.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert "STATE: " in (state.jstack or "")
            assert (await admin.topic_groups(topic)).names == (group,)
            with pytest.raises(MembersConnectedError):
                await admin.reset_offsets(group, topic, 1)

        ask(server, look)

        async def to_the_begin(admin: trimtab.Admin) -> None:
            change = await admin.reset_offsets(group, topic, "begin")
            assert change.through == "members"
            assert {move.after for move in change.moves} == {0}

        ask(server, to_the_begin)
        consumer.wait_for(24)

    def nobody() -> bool:
        return ask(server, lambda admin: admin.members(group)).views == ()

    eventually(nobody, "the member is gone")

    async def alone(admin: trimtab.Admin) -> None:
        change = await admin.reset_offsets(group, topic, 1, dry_run=True)
        assert change.through == "broker"
        await admin.reset_offsets(group, topic, 1)
        rows = await admin.group_offsets(group, topic)
        ends = {row.queue: row.max_offset for row in (await admin.topic_queues(topic)).queues}
        assert all(
            row.offset == min(1, ends[MessageQueue(row.topic, row.broker, row.queue_id)]) for row in rows
        )
        other = unique("clone")
        await admin.create_group(other)
        await admin.clone_offsets(group, other, topic)
        assert [row.offset for row in await admin.group_offsets(other, topic)] == [row.offset for row in rows]

    ask(server, alone)


def test_a_dead_letter_is_read_although_nobody_may_pull_it(server: ServerUnderTest) -> None:
    """4.9 makes topics of dead letters for writing only."""
    topic = server.make_topic("%DLQ%buried", queues=1)
    (receipt,) = send(server, Message(topic, b"dead", keys=["o-1"]))

    async def read(admin: trimtab.Admin) -> None:
        await admin.alter_topic(topic, perm="w")
        found = await admin.read_anyway(receipt.queue, 0)
        assert [(one.body, one.keys) for one in found.messages] == [(b"dead", ("o-1",))]
        assert found.next_offset == 1

    ask(server, read)
