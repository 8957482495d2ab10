"""Apache's admin tool, of the oldest and of the newest version, at our servers and at Apache's: the same commands, the same words."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.interop.ours import Loop, Ours
from tests.interop.servers import eventually, request, unique
from tests.interop.test_our_producer import producing
from tests.raw import RawConnection
from trimtab.model import Message
from trimtab.settings import Sending
from trimtab.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import CloneGroupOffset
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import (
    OffsetResponse,
    QueryConsumerOffset,
    QueueOnly,
    UpdateConsumerOffset,
)
from trimtab.wire.headers.send import SendMessageV2
from trimtab.wire.properties import encode_properties

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.mqadmin import MqAdmin, MqAdmins
    from tests.interop.servers import ServerUnderTest

TOOLS = ("4.9.3", "5.5.0")
CLUSTER = "DefaultCluster"


@pytest.fixture(params=TOOLS)
def mqadmin(request: pytest.FixtureRequest, mqadmins: MqAdmins, server: ServerUnderTest) -> MqAdmin:
    version = str(request.param)
    if not server.is_own and version[0] != server.version[0]:
        pytest.skip(
            "Apache's tools of 4.9 and 5.x do not get on with each other's brokers; both do with ours"
        )
    return mqadmins.at(server.nameserver, version)


@contextmanager
def online(server: ServerUnderTest, group: str, topic: str) -> Iterator[None]:
    """A consumer of the group, and a producer of the group `<group>-p`, connected to every broker."""
    consumer = ConsumerData(
        group_name=group, consume_type=ConsumeType.CONSUME_PASSIVELY, message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        subscription_data_set=(SubscriptionData(topic=topic, sub_string="*", sub_version=1),),
    )  # fmt: skip
    beat = HeartbeatData(
        client_id=f"127.0.0.1@{group}",
        consumer_data_set=(consumer,),
        producer_data_set=(ProducerData(group_name=f"{group}-p"),),
    )
    with ExitStack() as stack:
        for broker in server.brokers:
            connection = stack.enter_context(RawConnection(broker.address))
            answer = connection.exchange(request(RequestCode.HEART_BEAT, body=encode_body(beat)))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        eventually(lambda: server.has_route(f"%RETRY%{group}"), f"a route of the retry topic of {group}")
        yield


def send(server: ServerUnderTest, topic: str, count: int, key: str = "") -> None:
    """Messages into queue 0 of the first broker."""
    header = SendMessageV2(
        producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
        born_timestamp=1, flag=0, properties=encode_properties({"KEYS": key} if key else {}).decode(), reconsume_times=0,
    )  # fmt: skip
    with RawConnection(server.brokers[0].address) as connection:
        for _ in range(count):
            answer = connection.exchange(request(RequestCode.SEND_MESSAGE_V2, header, b"hello"))
            assert answer.code == ResponseCode.SUCCESS, answer.remark


def commit(server: ServerUnderTest, group: str, topic: str, offset: int) -> None:
    """In queue 0 of the first broker; 0 in all others."""
    for broker in server.brokers:
        for queue_id in range(4):
            place = offset if broker is server.brokers[0] and queue_id == 0 else 0
            header = UpdateConsumerOffset(
                consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=place
            )
            answer = server.ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
            assert answer.code == ResponseCode.SUCCESS, answer.remark


def committed(server: ServerUnderTest, group: str, topic: str) -> int:
    """In queue 0 of the first broker."""
    header = QueryConsumerOffset(consumer_group=group, topic=topic, queue_id=0)
    answer = server.ask(server.brokers[0].address, RequestCode.QUERY_CONSUMER_OFFSET, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_ext(OffsetResponse, answer.ext).offset


# --- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_lives_and_dies(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic = unique("admin")
    made = mqadmin.good("updateTopic", "-c", CLUSTER, "-t", topic, "-r", "4", "-w", "4")
    assert made.count("success") == 2
    assert f"topicName={topic}, readQueueNums=4, writeQueueNums=4, perm=RW-" in made
    route = mqadmin.good("topicRoute", "-t", topic)  # without a wait: who was told that it is there finds it
    assert route.count('"readQueueNums":4') == 2
    assert topic in mqadmin.good("topicList")
    assert CLUSTER in mqadmin.good("topicClusterList", "-t", topic)
    changed = mqadmin.good("updateTopicPerm", "-c", CLUSTER, "-t", topic, "-p", "4")
    assert changed.count("update topic perm from 6 to 4") == 2
    assert mqadmin.good("topicRoute", "-t", topic).count('"perm":4') == 2
    deleted = mqadmin.good("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert f"delete topic [{topic}] from cluster [{CLUSTER}] success" in deleted
    assert "from NameServer success" in deleted
    assert topic not in mqadmin.good("topicList")
    assert "CODE: 17" in mqadmin.told("topicRoute", "-t", topic)


def test_a_topic_at_one_broker_with_an_order(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic, broker = unique("ordered"), server.brokers[0]
    # It first asks for an order that is not there yet, prints that as an error, and goes on.
    made = mqadmin.told("updateTopic", "-b", broker.address, "-t", topic, "-r", "2", "-w", "2", "-o", "true")
    assert f"orderConf=[{broker.name}:2]" in made
    assert "success" in made
    assert mqadmin.good("topicRoute", "-t", topic).count('"readQueueNums"') == 1


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "bad/name", "x" * 128])
def test_system_topics_and_bad_names_are_refused(
    mqadmin: MqAdmin, server: ServerUnderTest, topic: str
) -> None:
    made = mqadmin.told("updateTopic", "-b", server.brokers[0].address, "-t", topic, "-r", "9", "-w", "9")
    assert "success" not in made
    assert "CODE: 1 " in made or "CODE: 29 " in made or "Exception" in made


def test_queues_are_allocated(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic = server.make_topic("allocated", queues=4)
    shared = mqadmin.good("allocateMQ", "-t", topic, "-i", "1.1.1.1,2.2.2.2")
    assert shared.count(topic) == 8


# --- messages ---------------------------------------------------------------------------------------------------------


def test_a_message_is_sent_and_found_in_every_way(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic, broker = server.make_topic("found", queues=2), server.brokers[0]
    key = unique("key")
    sent = mqadmin.good(
        "sendMessage", "-t", topic, "-p", "hello", "-k", key, "-c", "eu", "-b", broker.name, "-i", "1"
    )
    assert "SEND_OK" in sent
    message_id = sent.split()[-1]
    eventually(
        lambda: message_id in mqadmin.told("queryMsgByKey", "-t", topic, "-k", key), "the index knows it"
    )
    status = mqadmin.good("topicStatus", "-t", topic)
    assert re.search(rf"{broker.name} 1 0 1 \d{{4}}-", status)
    assert status.count("broker-") == 4
    by_offset = mqadmin.good("queryMsgByOffset", "-t", topic, "-b", broker.name, "-i", "1", "-o", "0")
    found = re.search(r"OffsetID: (\w+)", by_offset)
    assert found is not None
    for printed in (
        by_offset,
        mqadmin.good("queryMsgById", "-i", found[1], "-t", topic)
        if mqadmin.is_5x
        else mqadmin.good("queryMsgById", "-i", found[1]),
        mqadmin.good("queryMsgByUniqueKey", "-i", message_id, "-t", topic),
    ):
        assert f"Topic: {topic} Tags: [eu] Keys: [{key}] Queue ID: 1 Queue Offset: 0" in printed
    for command in (
        ("printMsg", "-t", topic),
        ("printMsgByQueue", "-t", topic, "-a", broker.name, "-i", "1", "-p", "true", "-d", "true"),
        ("consumeMessage", "-t", topic, "-b", broker.name, "-i", "1", "-o", "0", "-c", "1"),
    ):
        printed = mqadmin.good(*command)
        assert message_id in printed, command
        assert "hello" in printed, command


def test_a_queue_is_looked_into(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic, broker = server.make_topic("looked", queues=2), server.brokers[0]
    send(server, topic, 3)
    eventually(
        lambda: (
            "max: 3, min: 0"
            in mqadmin.told("queryCq", "-t", topic, "-q", "0", "-i", "1", "-c", "2", "-b", broker.address)
        ),
        "the queue has its entries",
    )
    shown = mqadmin.good("queryCq", "-t", topic, "-q", "0", "-i", "1", "-c", "2", "-b", broker.address)
    assert shown.count("ConsumeQueueData{physicOffset=") == 2


def test_a_queue_that_was_never_written_begins_at_0(server: ServerUnderTest) -> None:
    topic = server.make_topic("empty", queues=2)
    header = QueueOnly(topic=topic, queue_id=1)
    answer = server.ask(server.brokers[0].address, RequestCode.GET_MIN_OFFSET, header)
    assert decode_ext(OffsetResponse, answer.ext).offset == 0


def test_sending_is_timed(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic = server.make_topic("timed", queues=2)
    timed = mqadmin.good("checkMsgSendRT", "-t", topic, "-a", "3", "-s", "16")
    assert timed.count("true") == 3
    status = mqadmin.good("sendMsgStatus", "-b", server.brokers[0].name, "-s", "16", "-c", "2")
    assert status.count("SEND_OK") >= 2


# --- brokers ----------------------------------------------------------------------------------------------------------


def test_the_cluster_is_shown(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    listed = mqadmin.good("clusterList")
    for broker in server.brokers:
        assert re.search(
            rf"{CLUSTER} {broker.name} 0 {broker.address} V\d+_\d+_\d+ +\d+\.\d\d\(0,0ms", listed
        ), listed
    more = mqadmin.good("clusterList", "-m")
    assert len(re.findall(rf"{CLUSTER} broker-[ab] \d+ \d+ \d+ \d+", more)) == 2


def test_the_state_of_a_broker_is_shown(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    shown = mqadmin.good("brokerStatus", "-b", server.brokers[0].address)
    for name in (
        "bootTimestamp",
        "putTps",
        "getTotalTps",
        "commitLogDiskRatio",
        "msgPutTotalTodayNow",
        "runtime",
    ):
        assert re.search(rf"{name} *:", shown), name
    assert server.brokers[1].address in mqadmin.good("brokerStatus", "-c", CLUSTER)


def test_a_setting_is_changed_and_shown(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    address = server.brokers[0].address
    for value in ("48", "32"):
        changed = mqadmin.good(
            "updateBrokerConfig", "-b", address, "-k", "maxTransferCountOnMessageInMemory", "-v", value
        )
        assert "success" in changed
        shown = mqadmin.good("getBrokerConfig", "-b", address)
        assert f"maxTransferCountOnMessageInMemory = {value} " in f"{shown} "
        assert f"brokerName = {server.brokers[0].name} " in shown
    assert shown.count(" = ") > 20


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rocketmqHome", "/tmp/x"),
        ("filterServerNums", "1"),
        ("storePathRootDir", "/tmp/x"),
        ("maxMessageSize", "0"),
    ],
)
def test_our_brokers_refuse_to_change_the_rest(
    mqadmin: MqAdmin, server: ServerUnderTest, name: str, value: str
) -> None:
    if not server.is_own:
        pytest.skip("Apache's brokers of 4.9 let themselves be changed: CVE-2023-33246")
    address = server.brokers[0].address
    refused = mqadmin.told("updateBrokerConfig", "-b", address, "-k", name, "-v", value)
    assert "CODE: 16 " in refused
    assert "nothing was changed" in refused
    assert f"{name} = {value} " not in mqadmin.good("getBrokerConfig", "-b", address)


def test_brokers_are_cleaned(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic = server.make_topic("kept", queues=1)
    send(server, topic, 1)
    commands = ["cleanExpiredCQ", "cleanUnusedTopic"]
    if mqadmin.is_5x and server.speaks_5x:
        commands.append("deleteExpiredCommitLog")
    for command in commands:
        assert mqadmin.good(command, "-b", server.brokers[0].address).endswith("success"), command
    eventually(lambda: " 0 0 1 " in mqadmin.told("topicStatus", "-t", topic), "the message is still there")


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_group_lives_and_dies(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    group = unique("group")
    made = mqadmin.good("updateSubGroup", "-c", CLUSTER, "-g", group, "-r", "3")
    assert made.count("success") == 2
    assert f"groupName={group}" in made
    shown = mqadmin.good("getConsumerConfig", "-g", group)
    assert shown.count(f"groupName = {group}") == 2
    assert shown.count("retryMaxTimes = 3") == 2
    deleted = mqadmin.good("deleteSubGroup", "-c", CLUSTER, "-g", group, "-r", "true")
    assert deleted.count(f"delete subscription group [{group}] from broker") == 2
    assert group not in mqadmin.told("getConsumerConfig", "-g", group).replace(f"-g {group}", "")


def test_who_is_online_is_shown(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic, group = server.make_topic("watched"), unique("online")
    with online(server, group, topic):
        consumers = mqadmin.good("consumerConnection", "-g", group)
        assert f"127.0.0.1@{group}" in consumers
        assert f"{topic} *" in consumers
        assert "ConsumeType: CONSUME_PASSIVELY MessageModel: CLUSTERING" in consumers
        producers = mqadmin.good("producerConnection", "-g", f"{group}-p", "-t", topic)
        assert f"127.0.0.1@{group}" in producers
    eventually(
        lambda: re.search(r"CODE: 206 .*not online", mqadmin.told("consumerConnection", "-g", group)),
        "the consumer is gone",
    )


def test_progress_is_shown(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic, group, broker = server.make_topic("progress"), unique("behind"), server.brokers[0]
    send(server, topic, 5)
    with online(server, group, topic):
        commit(server, group, topic, 2)
        eventually(
            lambda: re.search(
                rf"{topic} {broker.name} 0 5 2 ", mqadmin.told("consumerProgress", "-g", group)
            ),
            "progress of the group",
        )
        shown = mqadmin.good("consumerProgress", "-g", group)
        assert "Diff Total: 3" in shown
        assert shown.count(topic) == 8
        listed = mqadmin.good("consumerProgress")
        assert re.search(rf"{group} 1 V\d\S* PUSH CLUSTERING 0 3", listed), listed
        everybody = mqadmin.good("brokerConsumeStats", "-b", broker.address)
        assert re.search(rf"{topic} {group} {broker.name} 0 5 2 3 \d{{4}}-", everybody)
        assert re.search(rf"{topic} {group} 3 ", mqadmin.good("statsAll", "-t", topic))
        assert f"{CLUSTER} {topic} {group}" in mqadmin.good("topicList", "-c")


def test_counters_are_shown(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic = server.make_topic("counted")
    send(server, topic, 20)
    shown = eventually(
        lambda: re.search(rf"{topic} 0 (\d+\.\d\d) (\d+) NO_CONSUMER", mqadmin.told("statsAll", "-t", topic)),
        "a line of the topic",
    )
    assert 0.0 <= float(shown[1]) <= 20.0
    assert int(shown[2]) in range(21)


def test_offsets_are_cloned(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic, group, other = server.make_topic("cloned"), unique("from"), unique("to")
    send(server, topic, 5)
    mqadmin.good("updateSubGroup", "-c", CLUSTER, "-g", other)
    with online(server, group, topic):
        commit(server, group, topic, 4)
        cloned = mqadmin.good("cloneGroupOffset", "-s", group, "-d", other, "-t", topic, "-o", "false")
    assert "clone group offset success" in cloned
    assert committed(server, other, topic) == 4


def test_offsets_are_cloned_by_a_broker(server: ServerUnderTest) -> None:
    """The tool clones by itself; other tools ask for it."""
    topic, group, other = server.make_topic("cloned"), unique("from"), unique("to")
    for name in (group, other):
        for broker in server.brokers:
            config = encode_body(SubscriptionGroupConfig(group_name=name))
            server.ask(broker.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
    send(server, topic, 5)
    commit(server, group, topic, 4)
    header = CloneGroupOffset(src_group=group, dest_group=other, topic=topic, offline=True)
    answer = server.ask(server.brokers[0].address, RequestCode.CLONE_GROUP_OFFSET, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert committed(server, other, topic) == 4


def test_offsets_of_a_group_that_is_away_are_reset(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic, group = server.make_topic("reset"), unique("away")
    send(server, topic, 5)
    with online(server, group, topic):
        commit(server, group, topic, 3)
    eventually(lambda: "CODE: 206" in mqadmin.told("consumerConnection", "-g", group), "the consumer is gone")
    mqadmin.good("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    eventually(lambda: committed(server, group, topic) == 0, "offset 0")
    mqadmin.good("skipAccumulatedMessage", "-g", group, "-t", topic)
    eventually(lambda: committed(server, group, topic) in (4, 5), "the end of the queue")


# --- name servers -----------------------------------------------------------------------------------------------------


def test_a_broker_loses_and_gets_back_its_write_permission(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic, broker = server.make_topic("wiped"), server.brokers[1]
    assert " OK, " in mqadmin.good("wipeWritePerm", "-b", broker.name)
    try:
        assert mqadmin.good("topicRoute", "-t", topic).count('"perm":4') == 1
    finally:
        assert " OK, " in mqadmin.good("addWritePerm", "-b", broker.name)
    assert '"perm":4' not in mqadmin.good("topicRoute", "-t", topic)


def test_name_servers_keep_values(mqadmin: MqAdmin) -> None:
    key = unique("k")
    assert "success" in mqadmin.good("updateKvConfig", "-s", "ns", "-k", key, "-v", "1")
    assert "success" in mqadmin.good("deleteKvConfig", "-s", "ns", "-k", key)
    assert "orderMessageEnable = false" in mqadmin.good("getNamesrvConfig")


# --- exports, and what is asked of clients ------------------------------------------------------------------------------


def test_everything_is_exported(mqadmin: MqAdmin, server: ServerUnderTest, tmp_path: Path) -> None:
    topic, group = server.make_topic("exported", queues=2), unique("exported")
    send(server, topic, 3)
    with online(server, group, topic):
        for command, name in (
            ("exportConfigs", "configs"),
            ("exportMetadata", "metadata"),
            ("exportMetrics", "metrics"),
        ):
            told = mqadmin.good(command, "-c", CLUSTER, "-f", str(tmp_path))
            assert f"{name}.json success" in told
    configs = json.loads((tmp_path / "configs.json").read_text())
    assert configs["clusterScale"]["masterBrokerSize"] == 2
    broker = configs["brokerConfigs"][server.brokers[0].name]
    assert {"brokerRole": "ASYNC_MASTER", "useTLS": "false", "traceOn": "true"}.items() <= broker.items()
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["topicConfigTable"][topic]["readQueueNums"] == 4, "of both brokers together"
    assert metadata["subscriptionGroupTable"][group]["groupName"] == group
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert set(metrics["evaluateReport"]) == {broker.name for broker in server.brokers}
    assert metrics["totalData"]["totalTps"]["totalNormalInTps"] >= 0


def test_a_consumer_answers_what_the_tool_asks_it_through_the_broker(
    mqadmin: MqAdmin, server: ServerUnderTest
) -> None:
    topic, group, broker = server.make_topic("asked", queues=2), unique("asked"), server.brokers[0]
    send(server, topic, 2)
    with Loop() as loop, Ours(loop, server, group, subscribe={topic: "*"}) as ours:
        eventually(lambda: len(ours.received) == 2, "both came")
        status = mqadmin.good("consumerStatus", "-g", group, "-i", ours.id)
        assert "PROP_CONSUME_TYPE : CONSUME_PASSIVELY" in status
        assert f"Topic: {topic} ClassFilter: false SubExpression: *" in status
        assert f"{topic} {broker.name} 0 ProcessQueueInfo [commitOffset=2," in status
        everybody = mqadmin.good("consumerStatus", "-g", group)
        assert f" {ours.id} V" in everybody
        assert "Same subscription in the same group of consumer" in everybody
        shown = mqadmin.good("queryMsgByOffset", "-t", topic, "-b", broker.name, "-i", "0", "-o", "1")
        found = re.search(r"OffsetID: (\w+)", shown)
        assert found is not None
        of_topic = ("-t", topic) if mqadmin.is_5x else ()
        consumed = mqadmin.good("queryMsgById", "-i", found[1], *of_topic, "-g", group, "-d", ours.id)
        assert "consumeResult=CR_SUCCESS" in consumed
        assert [message.queue_offset for message in ours.received] == [0, 1, 1]


def test_the_trace_of_a_message_is_shown(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    topic = server.make_topic("traced", queues=1)
    with producing(server, sending=Sending(trace=True)) as producer:
        receipt = producer.send(Message(topic, b"traced", keys=["k"]))
    eventually(
        lambda: re.search(
            r"#Type .* Pub .* success", mqadmin.told("queryMsgTraceById", "-i", receipt.message_id)
        ),
        "the trace of the message",
    )


def test_producers_of_a_broker_are_listed(mqadmin: MqAdmin, server: ServerUnderTest) -> None:
    if not mqadmin.is_5x:
        pytest.skip("the tool of 4.9 has no such command")
    topic, group = server.make_topic("producers"), unique("online")
    with online(server, group, topic):
        listed = mqadmin.good("producer", "-b", server.brokers[0].address)
    assert re.search(rf"producer group \({group}-p\) instance : clientId=127.0.0.1@{group},", listed), listed
