"""`Admin` at a real cluster of ours."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import trimtab
from tests.unit.client.admin_member import ScriptedMember, connected
from trimtab.client.admin.offsets import MembersConnectedError
from trimtab.client.admin.reach import NoSuchGroupError, NoSuchTopicError, PartlyDoneError
from trimtab.client.producer_standings import read_choices
from trimtab.errors import (
    BrokerNotFoundError,
    ClosedError,
    ConsumerNotOnlineError,
    InvalidMessageError,
    NoMessageError,
    NoRouteError,
    RequestTimeoutError,
    SettingsError,
    TrimtabError,
)
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.settings import Timeouts
from trimtab.testing import DROP, AsyncCluster, Cluster
from trimtab.wire.bodies import ProcessQueueInfo
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.hashing import java_hash

Scenario = Callable[[AsyncCluster, trimtab.Admin], Awaitable[None]]
PATIENT = Timeouts(request_s=30.0)


def play(scenario: Scenario, brokers: int = 2) -> None:
    async def run() -> None:
        async with (
            Cluster(brokers=brokers) as cluster,
            trimtab.Admin(nameserver=cluster.nameserver, timeouts=PATIENT) as admin,
        ):
            await scenario(cluster, admin)

    asyncio.run(run())


async def send(cluster: AsyncCluster, *messages: Message) -> list[Receipt]:
    async with trimtab.Producer("pg", nameserver=cluster.nameserver) as producer:
        return [await producer.send(message) for message in messages]


# --- mqadmin ------------------------------------------------------------------------------------------------------

MQADMIN_493 = """
updateTopic deleteTopic updateSubGroup deleteSubGroup updateBrokerConfig updateTopicPerm topicRoute topicStatus topicClusterList
addWritePerm brokerStatus queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset QueryMsgTraceById printMsg
printMsgByQueue sendMsgStatus brokerConsumeStats producerConnection consumerConnection consumerProgress consumerStatus
cloneGroupOffset clusterList topicList wipeWritePerm resetOffsetByTime skipAccumulatedMessage updateOrderConf cleanExpiredCQ
cleanUnusedTopic startMonitoring statsAll allocateMQ checkMsgSendRT clusterRT getNamesrvConfig updateNamesrvConfig
getBrokerConfig getConsumerConfig queryCq sendMessage consumeMessage updateAclConfig deleteAccessConfig clusterAclConfigVersion
updateGlobalWhiteAddr getAccessConfigSubCommand exportMetadata exportConfigs exportMetrics updateKvConfig
deleteKvConfig
"""
ADMIN_PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "administer-from-python.md"


def test_every_command_of_mqadmin_has_its_place_on_the_page_and_every_call_there_exists() -> None:
    table = ADMIN_PAGE.read_text().split("## From mqadmin")[1]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    commands = {name for theirs, _ in rows for name in re.findall(r"`(\w+)`", theirs)}
    assert commands == set(MQADMIN_493.split())
    calls = {name for _, ours in rows for name in re.findall(r"`([a-z_]+)[`(]", ours)}
    assert len(calls) > 30
    for name in calls:
        assert callable(getattr(trimtab.Admin, name))
        assert hasattr(trimtab.blocking.Admin, name)


# --- topics -------------------------------------------------------------------------------------------------------


def test_a_topic_is_made_and_can_be_used_at_once() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        made = await admin.create_topic("orders", queues=3)
        assert [(one.broker, one.read_queues, one.write_queues, one.perm) for one in made.brokers] == [
            ("broker-a", 3, 3, "rw"),
            ("broker-b", 3, 3, "rw"),
        ]
        assert await admin.topic_settings("orders") == made
        assert "orders" in (await admin.topics()).names
        route = await admin.topic_route("orders")
        assert [place.master for place in route.brokers] == list(cluster.brokers.values())
        assert route.queues == made.brokers

    play(scenario)


def test_a_topic_is_changed_where_it_is_and_only_in_what_is_said() -> None:
    async def scenario(_cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", read_queues=4, write_queues=2, brokers=["broker-a"])
        changed = await admin.alter_topic("orders", perm="r")
        (one,) = changed.brokers
        assert (one.broker, one.read_queues, one.write_queues, one.perm) == ("broker-a", 4, 2, "r")
        (one,) = (await admin.alter_topic("orders", queues=8, perm="rw")).brokers
        assert (one.read_queues, one.write_queues, one.perm) == (8, 8, "rw")
        with pytest.raises(SettingsError, match="none of broker-b has topic"):
            await admin.alter_topic("orders", perm="r", brokers=["broker-b"])

    play(scenario)


def test_a_deleted_topic_is_gone_from_brokers_and_name_servers() -> None:
    async def scenario(_cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders")
        assert await admin.delete_topic("orders") == ("broker-a", "broker-b")
        assert "orders" not in (await admin.topics()).names
        with pytest.raises(NoSuchTopicError, match="'orders' does not exist"):
            await admin.topic_queues("orders")

    play(scenario)


def test_queues_show_what_lies_in_them() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=2)
        receipts = await send(cluster, *(Message("orders", b"x") for _ in range(8)))
        queues = (await admin.topic_queues("orders", times=True)).queues
        assert [(row.broker, row.queue_id) for row in queues] == [
            ("broker-a", 0),
            ("broker-a", 1),
            ("broker-b", 0),
            ("broker-b", 1),
        ]
        assert sum(row.max_offset - row.min_offset for row in queues) == 8
        queue = receipts[0].queue
        row = next(row for row in queues if row.queue == queue)
        assert row.oldest_ms is not None
        assert row.newest_ms is not None
        assert row.oldest_ms <= row.newest_ms
        assert await admin.offset_at(queue, 0) == 0

    play(scenario)


@pytest.mark.parametrize("queues", [0, -1, 65_537])
def test_a_number_of_queues_that_cannot_be_is_refused_before_anything_is_sent(queues: int) -> None:
    async def scenario(_cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        with pytest.raises(SettingsError, match="cannot be"):
            await admin.create_topic("orders", queues=queues)

    play(scenario, brokers=1)


def test_names_that_cannot_be_are_refused() -> None:
    async def scenario(_cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        with pytest.raises(InvalidMessageError, match="letters, digits"):
            await admin.create_topic("no spaces")
        with pytest.raises(BrokerNotFoundError, match="there are broker-a"):
            await admin.create_topic("orders", brokers=["broker-x"])
        with pytest.raises(SettingsError, match="no cluster 'Elsewhere'"):
            await admin.create_topic("orders", cluster="Elsewhere")

    play(scenario, brokers=1)


# --- servers that fail --------------------------------------------------------------------------------------------


Question = Callable[[trimtab.Admin], Awaitable[None]]


async def hastily(cluster: AsyncCluster, question: Question) -> None:
    """Asked with little time, and with more while a loaded machine makes the healthy ones late too."""
    request_s = 0.25
    while True:
        timeouts = Timeouts(request_s=request_s)
        try:
            async with trimtab.Admin(nameserver=cluster.nameserver, timeouts=timeouts) as admin:
                return await question(admin)
        except TrimtabError:
            request_s *= 2
            assert request_s < 60


def test_a_hung_broker_delays_no_other_answer_and_is_named() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        async def ask(hasty: trimtab.Admin) -> None:
            found = await hasty.topic_queues("orders")
            assert {row.broker for row in found.queues} == {"broker-a"}
            (failure,) = found.failures
            assert (failure.broker, failure.address) == ("broker-b", cluster.brokers["broker-b"])
            assert failure.unreachable

        await admin.create_topic("orders", queues=1)
        cluster.intercept(RequestCode.GET_TOPIC_STATS_INFO, lambda _: DROP, server="broker-b")
        await hastily(cluster, ask)

    play(scenario)


def test_a_question_that_nobody_answers_is_raised() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        async def ask(hasty: trimtab.Admin) -> None:
            await hasty.topics()
            with pytest.raises(RequestTimeoutError):
                await hasty.topic_queues("orders")

        await admin.create_topic("orders", queues=1)
        cluster.intercept(RequestCode.GET_TOPIC_STATS_INFO, lambda _: DROP)
        await hastily(cluster, ask)

    play(scenario, brokers=1)


def test_a_change_that_one_broker_refuses_is_raised_and_says_where_it_was_made() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        def refuse(command: Command) -> Command:
            return Command(
                code=ResponseCode.SYSTEM_ERROR, opaque=command.opaque, flag=RESPONSE_FLAG, remark="not today"
            )

        cluster.intercept(RequestCode.UPDATE_AND_CREATE_TOPIC, refuse, server="broker-b")
        with pytest.raises(PartlyDoneError, match=r"done at broker-a, not at 1 other.*not today") as caught:
            await admin.create_topic("orders")
        assert caught.value.done == ("broker-a",)
        assert [one.broker for one in caught.value.failures] == ["broker-b"]

    play(scenario)


def test_a_name_server_that_is_not_there_is_said() -> None:
    async def run() -> None:
        async with trimtab.Admin(nameserver="127.0.0.1:1", timeouts=PATIENT) as admin:
            with pytest.raises(NoRouteError, match="no name server answered"):
                await admin.topics()

    asyncio.run(run())


def test_an_admin_that_is_not_open_says_how_to_use_it() -> None:
    async def run() -> None:
        admin = trimtab.Admin(nameserver="127.0.0.1:1")
        with pytest.raises(ClosedError, match="async with"):
            await admin.topics()

    asyncio.run(run())


# --- groups -------------------------------------------------------------------------------------------------------


def test_a_group_is_made_changed_and_deleted() -> None:
    async def scenario(_cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        made = await admin.create_group("billing", retries_max=3)
        assert [(one.broker, one.retries_max, one.enabled) for one in made.brokers] == [
            ("broker-a", 3, True),
            ("broker-b", 3, True),
        ]
        assert await admin.group_settings("billing") == made
        changed = await admin.alter_group("billing", enabled=False)
        assert {(one.retries_max, one.enabled) for one in changed.brokers} == {(3, False)}
        assert "billing" in (await admin.groups()).names
        await admin.delete_group("billing")
        assert "billing" not in (await admin.groups()).names
        with pytest.raises(NoSuchGroupError, match="'billing' does not exist"):
            await admin.group_settings("billing")

    play(scenario)


def test_members_are_told_as_each_broker_sees_them() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=2)
        one = ScriptedMember("billing", "c-1", {"orders": "eu || us"})
        two = ScriptedMember("billing", "c-2", {"orders": "eu || us"})
        async with connected(one, cluster.brokers.values()), connected(two, [cluster.brokers["broker-a"]]):
            members = await admin.members("billing")
            assert members.client_ids == ("c-1", "c-2")
            assert {view.broker: [m.client_id for m in view.members] for view in members.views} == {
                "broker-a": ["c-1", "c-2"],
                "broker-b": ["c-1"],
            }
            view = members.views[0]
            assert (view.subscriptions[0].topic, view.subscriptions[0].expression) == ("orders", "eu || us")
            assert (view.consume_type, view.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
            assert {member.language for member in view.members} == {"JAVA"}
        assert (await admin.members("nobody")).views == ()

    play(scenario)


def test_a_member_says_what_it_holds_and_where_its_threads_are() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=2)
        queue = MessageQueue("orders", "broker-a", 1)
        member = ScriptedMember(
            "billing", "c-1", {"orders": "*"}, {queue: ProcessQueueInfo(commit_offset=5, cached_msg_count=2)}
        )
        async with connected(member, cluster.brokers.values()):
            state = await admin.member_state("billing", "c-1", jstack=True)
            (held,) = state.queues
            assert (held.queue, held.committed, held.cached) == (queue, 5, 2)
            assert held.last_pull_ms is None
            assert state.jstack == "main: working"
            states = await admin.member_states("billing")
            assert [one.client_id for one in states.members] == ["c-1"]
            with pytest.raises(ConsumerNotOnlineError, match="members are c-1"):
                await admin.member_state("billing", "c-9")

    play(scenario)


def test_progress_counts_what_waits() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1)
        receipts = await send(cluster, *(Message("orders", b"x") for _ in range(6)))
        await admin.create_group("billing")
        queue = receipts[0].queue
        await admin.set_offset("billing", queue, 1)
        progress = await admin.progress("billing")
        (row,) = [row for row in progress.queues if row.topic == "orders" and row.broker == queue.broker_name]
        total = sum(one.queue == queue for one in receipts)
        assert (row.offset, row.max_offset, row.lag) == (1, total, total - 1)
        with pytest.raises(NoSuchGroupError):
            await admin.progress("nobody")

    play(scenario)


# --- offsets ------------------------------------------------------------------------------------------------------


def test_a_group_without_members_is_moved_at_the_broker_and_a_dry_run_moves_nothing() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1, brokers=["broker-a"])
        await send(cluster, *(Message("orders", b"x") for _ in range(5)))
        await admin.create_group("billing")
        queue = MessageQueue("orders", "broker-a", 0)
        await admin.set_offset("billing", queue, 2)
        planned = await admin.reset_offsets("billing", "orders", "end", dry_run=True)
        (move,) = planned.moves
        assert (move.before, move.after, move.max_offset, planned.through) == (2, 5, 5, "broker")
        assert [row.offset for row in await admin.group_offsets("billing", "orders")] == [2]
        for to, at_ms, wanted in (
            ("end", None, 5),
            ("begin", None, 0),
            (3, None, 3),
            ("time", 1, 0),
            (99, None, 5),
        ):
            change = await admin.reset_offsets("billing", "orders", to, at_ms=at_ms)
            assert [row.after for row in change.moves] == [wanted]
            assert [row.offset for row in await admin.group_offsets("billing", "orders")] == [wanted]
        with pytest.raises(SettingsError, match="needs at_ms"):
            await admin.reset_offsets("billing", "orders", "time")
        with pytest.raises(SettingsError, match="none of begin, end"):
            await admin.reset_offsets("billing", "orders", "tomorrow")

    play(scenario)


def test_a_group_with_members_is_moved_through_them() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1, brokers=["broker-a"])
        await send(cluster, *(Message("orders", b"x") for _ in range(5)))
        member = ScriptedMember("billing", "c-1", {"orders": "*"})
        queue = MessageQueue("orders", "broker-a", 0)
        async with connected(member, cluster.brokers.values()):
            await admin.set_offset("billing", queue, 4)
            change = await admin.reset_offsets("billing", "orders", "begin")
            assert change.through == "members"
            assert [row.after for row in change.moves] == [0]
            await asyncio.wait_for(member.was_reset.wait(), 30)
            assert member.resets == [{queue: 0}]
            with pytest.raises(MembersConnectedError, match="1 member"):
                await admin.reset_offsets("billing", "orders", 3)
            with pytest.raises(MembersConnectedError, match="stop them first"):
                await admin.clone_offsets("other", "billing", "orders")

    play(scenario)


def test_a_group_can_be_put_where_another_one_stands() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1, brokers=["broker-a"])
        await send(cluster, *(Message("orders", b"x") for _ in range(5)))
        for group in ("billing", "audit"):
            await admin.create_group(group)
        await admin.set_offset("billing", MessageQueue("orders", "broker-a", 0), 3)
        change = await admin.clone_offsets("billing", "audit", "orders", dry_run=True)
        assert [row.after for row in change.moves] == [3]
        await admin.clone_offsets("billing", "audit", "orders")
        assert [row.offset for row in await admin.group_offsets("audit", "orders")] == [3]

    play(scenario)


# --- messages -----------------------------------------------------------------------------------------------------


def test_a_message_is_found_by_either_id_by_key_and_by_place() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1)
        (receipt, *_) = await send(
            cluster,
            Message("orders", b"one", tag="eu", keys=["o-1"]),
            Message("orders", b"two", keys=["o-2"]),
        )
        found = await admin.message(receipt.offset_message_id)
        assert (found.body, found.tag, found.keys, found.queue) == (b"one", "eu", ("o-1",), receipt.queue)
        assert await admin.message(receipt.message_id, "orders") == found
        assert [one.body for one in (await admin.messages_by_key("orders", "o-2")).messages] == [b"two"]
        assert (await admin.messages_by_key("orders", "o-9")).messages == ()
        read = await admin.read(receipt.queue, receipt.queue_offset)
        assert read.messages[0] == found
        assert (await admin.read(receipt.queue, 0, expression="us")).messages == ()

    play(scenario)


def test_ids_of_no_message_are_said_to_be_so() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1)
        (receipt,) = await send(cluster, Message("orders", b"one"))
        beyond = receipt.offset_message_id[:-8] + "00FFFFFF"
        for wrong in ("nonsense", "00" * 16, beyond):
            with pytest.raises(NoMessageError):
                await admin.message(wrong)
            with pytest.raises(NoMessageError):
                await admin.message(wrong, "orders")

    play(scenario, brokers=1)


def test_a_member_handles_a_message_when_told_to() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1)
        (receipt,) = await send(cluster, Message("orders", b"one"))
        member = ScriptedMember("billing", "c-1", {"orders": "*"})
        async with connected(member, cluster.brokers.values()):
            outcome = await admin.handle_directly("billing", "c-1", receipt.offset_message_id)
        assert (outcome.result, outcome.spent_ms) == ("CR_SUCCESS", 7)

    play(scenario)


def test_traces_tell_what_became_of_a_message() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("traces", queues=1)
        sent = [
            "Pub",
            "1000",
            "r",
            "pg",
            "orders",
            "ID1",
            "eu",
            "o-1",
            "10.0.0.1:10911",
            "5",
            "3",
            "0",
            "OFF",
            "true",
        ]
        before = ["SubBefore", "1010", "r", "billing", "REQ1", "ID1", "0", "o-1"]
        after = ["SubAfter", "REQ1", "ID1", "12", "true", "o-1", "0"]
        other = ["Pub", "1000", "r", "pg", "orders", "ID2", "eu", "o-1", "h", "5", "3", "0", "OFF", "true"]
        body = "".join(
            "\x01".join(record) + "\x02" for record in (sent, before, after, other, ["Pub", "odd"])
        )
        await send(cluster, Message("traces", body.encode(), keys=["ID1", "o-1"]))
        trace = await admin.message_trace("ID1", trace_topic="traces")
        assert [(step.what, step.at_ms, step.group, step.ok) for step in trace.steps] == [
            ("sent", 1000, "pg", True),
            ("received", 1010, "billing", True),
            ("handled", 1022, "billing", True),
        ]

    play(scenario, brokers=1)


# --- the cluster --------------------------------------------------------------------------------------------------


def test_the_cluster_its_brokers_and_their_settings() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        view = await admin.cluster()
        assert {place.broker: place.master for place in view.brokers} == cluster.brokers
        assert view.clusters == ("DefaultCluster",)
        states = await admin.broker_states()
        assert [state.broker for state in states.brokers] == ["broker-a", "broker-b"]
        assert all(state.version and state.put_per_s is not None for state in states.brokers)
        assert await admin.change_broker_settings({"maxMessageSize": "2048"}, ["broker-a"]) == ("broker-a",)
        settings = (await admin.broker_settings()).settings
        assert settings["broker-a"]["maxMessageSize"] == "2048"
        assert settings["broker-b"]["maxMessageSize"] != "2048"
        assert list((await admin.nameserver_settings()).settings) == [cluster.nameserver]

    play(scenario)


def test_values_at_the_name_server_and_write_permission() -> None:
    async def scenario(_cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.put_kv("NS", "k", "v")
        assert await admin.get_kv("NS", "k") == "v"
        assert await admin.list_kv("NS") == {"k": "v"}
        await admin.delete_kv("NS", "k")
        assert await admin.get_kv("NS", "k") is None
        await admin.create_topic("orders", queues=1)
        assert await admin.wipe_write_perm("broker-a") > 0
        perms = {one.broker: one.perm for one in (await admin.topic_route("orders")).queues}
        assert perms == {"broker-a": "r", "broker-b": "rw"}
        assert await admin.add_write_perm("broker-a") > 0
        assert {one.perm for one in (await admin.topic_route("orders")).queues} == {"rw"}
        ((told,), failures) = await admin.topic_routes("orders")
        assert (told.route, failures) == (await admin.topic_route("orders"), ())

    play(scenario)


def test_producers_tell_how_they_choose_brokers() -> None:
    async def handle(_message: trimtab.Received) -> None:
        return None

    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1)
        options: dict[str, Any] = {"nameserver": cluster.nameserver, "client_id": "p-1"}
        async with (
            # A consumer of the same name and id does not answer for the producer.
            trimtab.PushConsumer("pg", subscribe={"orders": "*"}, handler=handle, **options),
            trimtab.Producer("pg", sending=trimtab.Sending(policy="4.9.3"), **options) as producer,
        ):
            await producer.send(Message("orders", b"x"))
            producer._policy.ended("broker-b", 3_000, producer._clock.monotonic_ms(), failed=True)
            async with asyncio.timeout(60):
                while not (told := await admin.producer_choices("pg")).producers:
                    assert told.untold == ()  # the first heartbeat is on its way
        (choices,) = told.producers
        assert (choices.client_id, choices.policy, told.untold) == ("p-1", "4.9.3", ())
        worst = choices.brokers[-1]
        assert (worst.broker, worst.available) == ("broker-b", False)
        assert 0 < worst.isolated_ms <= 600_000

    play(scenario)


def test_producers_of_others_do_not_tell() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1)
        async with trimtab.Producer("pg", nameserver=cluster.nameserver, client_id="p-1") as producer:
            producer._end_listening()
            await producer.send(Message("orders", b"x"))
            async with asyncio.timeout(60):
                while not (await admin.producers("pg")).members:
                    pass  # the first heartbeat is on its way
            told = await admin.producer_choices("pg")
        assert (told.producers, told.untold) == ((), ("p-1",))

    play(scenario)


@pytest.mark.parametrize("text", [None, "", "[]", '{"policy":1}'])
def test_choices_that_nobody_can_read_are_none(text: str | None) -> None:
    assert read_choices(text) is None


def test_producers_and_figures() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1)
        async with trimtab.Producer("pg", nameserver=cluster.nameserver, client_id="p-1") as producer:
            await producer.send(Message("orders", b"x"))
            async with asyncio.timeout(60):
                view = await admin.producers("pg")
                while not view.members:  # the first heartbeat is on its way
                    view = await admin.producers("pg")
        assert [member.client_id for member in view.members] == ["p-1"]
        assert (await admin.producers("nobody")).members == ()
        rates = await admin.broker_rates("TOPIC_PUT_NUMS", "orders")
        assert {rate.broker for rate in rates.rates} <= {"broker-a", "broker-b"}
        assert (await admin.topic_groups("orders")).names == ()

    play(scenario)


def test_the_blocking_admin_has_every_call() -> None:
    calls = {name for name in dir(trimtab.Admin) if not name.startswith("_")}
    assert calls <= {*dir(trimtab.blocking.Admin)}
    with Cluster(brokers=1) as cluster, trimtab.blocking.Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("orders", queues=2)
        assert [row.queue_id for row in admin.topic_queues("orders").queues] == [0, 1]
        assert admin.nameservers == (cluster.nameserver,)


def test_the_index_of_a_queue_is_shown_entry_by_entry() -> None:
    async def scenario(cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        await admin.create_topic("orders", queues=1)
        sent = await send(cluster, *(Message("orders", b"x" * n, tag="eu") for n in range(1, 4)))
        (queue,) = {receipt.queue for receipt in sent}
        shown = await admin.queue_entries(queue, 1)
        assert (shown.min_offset, shown.max_offset) == (0, 3)
        assert [entry.queue_offset for entry in shown.entries] == [1, 2]
        for entry in shown.entries:
            found = await admin.message(sent[entry.queue_offset].offset_message_id)
            assert len(found.body) == entry.queue_offset + 1
            assert entry.tag_hash == java_hash("eu")
        sizes = [entry.stored_size for entry in (await admin.queue_entries(queue, 0)).entries]
        assert sizes == [sizes[0], sizes[0] + 1, sizes[0] + 2]
        assert (await admin.queue_entries(queue, 3)).entries == ()
        with pytest.raises(NoRouteError, match="no queue at broker-z"):
            await admin.queue_entries(MessageQueue("orders", "broker-z", 0), 0)

    play(scenario, brokers=1)


def test_brokers_are_told_to_clean_and_name_servers_of_ours_take_no_settings() -> None:
    async def scenario(_cluster: AsyncCluster, admin: trimtab.Admin) -> None:
        assert await admin.clean_queues() == ("broker-a", "broker-b")
        assert await admin.clean_topics(["broker-b"]) == ("broker-b",)
        with pytest.raises(BrokerNotFoundError):
            await admin.clean_topics(["broker-z"])
        with pytest.raises(SettingsError, match="no setting is given"):
            await admin.change_nameserver_settings({})
        with pytest.raises(TrimtabError, match="takes no settings over the network"):
            await admin.change_nameserver_settings({"serverWorkerThreads": "4"})

    play(scenario)
