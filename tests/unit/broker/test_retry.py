"""CONSUMER_SEND_MSG_BACK: retries, dead letters, and who may not."""

from typing import Any

import pytest

from tests.unit.broker.driver import Client, Driver, HeldExecutor
from trimtab.broker.settings import BrokerSettings
from trimtab.wire.bodies import SubscriptionGroupConfig, TopicConfig
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.send import ConsumerSendMsgBack
from trimtab.wire.ids import decode_offset_message_id
from trimtab.wire.messages import StoredMessage

RETRY, DLQ = "%RETRY%g", "%DLQ%g"
LEVEL_DELAYS_MS = {3: 10_000, 4: 30_000, 5: 60_000}


def back(
    offset: int, *, level: int = 0, tries_max: int | None = None, group: str = "g"
) -> ConsumerSendMsgBack:
    return ConsumerSendMsgBack(
        offset=offset, group=group, delay_level=level, origin_topic="T", max_reconsume_times=tries_max
    )


def send_back(client: Client, header: ConsumerSendMsgBack, **how: Any) -> Command:
    return client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header, **how)


def sent(client: Client, **properties: Any) -> StoredMessage:
    at = decode_offset_message_id(client.send("T", b"body", **properties).msg_id).physical_offset
    (message,) = [message for message in client.pull("T") if message.physical_offset == at]
    return message


def test_a_message_sent_back_comes_again_after_10_s_and_keeps_what_it_was() -> None:
    broker = Driver()
    client = broker.connect()
    message = sent(client, TAGS="eu", KEYS="k1", UNIQ_KEY="U1")
    assert send_back(client, back(message.physical_offset)).code == ResponseCode.SUCCESS
    broker.advance(9_900)
    assert client.pull(RETRY) == []
    broker.advance(100)
    (again,) = client.pull(RETRY)
    assert (again.topic, again.queue_id, again.reconsume_times) == (RETRY, 0, 1)
    assert (again.body, again.flag, again.tag, again.keys, again.unique_id) == (
        b"body",
        7,
        "eu",
        ("k1",),
        "U1",
    )
    assert (again.born_timestamp, again.born_host_bytes) == (message.born_timestamp, message.born_host_bytes)
    assert again.properties["RETRY_TOPIC"] == "T"
    assert again.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id
    assert (again.properties["DELAY"], again.properties["REAL_TOPIC"]) == ("3", RETRY)


def test_each_retry_waits_a_level_longer_and_keeps_the_first_id_and_topic() -> None:
    broker = Driver()
    client = broker.connect()
    message = first = sent(client)
    for tries, (level, delay_ms) in enumerate(LEVEL_DELAYS_MS.items(), 1):
        assert send_back(client, back(message.physical_offset)).code == ResponseCode.SUCCESS
        broker.advance(delay_ms - 100, step_ms=delay_ms)
        assert len(client.pull(RETRY)) == tries - 1
        broker.advance(100)
        message = client.pull(RETRY)[-1]
        assert (message.reconsume_times, message.properties["DELAY"]) == (tries, str(level))
        assert message.properties["RETRY_TOPIC"] == "T"
        assert message.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id


def test_the_consumer_may_choose_the_level_and_too_high_a_level_is_the_highest() -> None:
    broker = Driver()
    client = broker.connect()
    message = sent(client)
    send_back(client, back(message.physical_offset, level=1))
    send_back(client, back(message.physical_offset, level=99))
    broker.advance(1_000)
    assert [again.properties["DELAY"] for again in client.pull(RETRY)] == ["1"]
    broker.advance(7_200_000, step_ms=60_000)
    assert [again.properties["DELAY"] for again in client.pull(RETRY)] == ["1", "18"]


@pytest.mark.parametrize(("level", "tries_max"), [(0, 0), (-1, None), (-1, 16)])
def test_after_too_many_tries_or_at_the_consumers_word_it_is_a_dead_letter_at_once(
    level: int, tries_max: int | None
) -> None:
    broker = Driver()
    client = broker.connect()
    message = sent(client, TAGS="eu")
    assert (
        send_back(client, back(message.physical_offset, level=level, tries_max=tries_max)).code
        == ResponseCode.SUCCESS
    )
    (dead,) = client.pull(DLQ)
    assert (dead.reconsume_times, dead.tag, dead.properties["DELAY"]) == (1, "eu", "0")
    assert dead.properties["RETRY_TOPIC"] == "T"
    topic = broker.core.topics.get(DLQ)
    assert topic is not None
    assert (topic.write_queue_nums, topic.perm) == (1, 6)
    broker.advance(20_000)
    assert client.pull(RETRY) == []


def test_a_client_older_than_3_4_9_has_no_say_in_the_number_of_tries() -> None:
    broker = Driver()
    client = broker.connect()
    message = sent(client)
    send_back(client, back(message.physical_offset, tries_max=0), version=120)
    broker.advance(10_000)
    assert len(client.pull(RETRY)) == 1


def test_a_timer_message_that_dies_is_not_held_back_again() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", b"late", TIMER_DELAY_SEC="3600")
    broker.advance(3_601_000, step_ms=10_000)
    (message,) = client.pull("T")
    send_back(client, back(message.physical_offset, level=-1))
    assert [dead.body for dead in client.pull(DLQ)] == [b"late"]


def test_retries_spread_over_the_retry_queues_of_the_group() -> None:
    broker = Driver()
    client = broker.connect()
    broker.core.groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=4), broker.now)
    message = sent(client)
    for _ in range(64):
        send_back(client, back(message.physical_offset, level=1))
    broker.advance(1_000)
    counts = [len(client.pull(RETRY, queue_id)) for queue_id in range(4)]
    assert sum(counts) == 64
    assert all(counts)


def test_a_group_without_retry_queues_gets_a_yes_and_nothing_else() -> None:
    broker = Driver()
    client = broker.connect()
    broker.core.groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=0), broker.now)
    message = sent(client)
    end = broker.core.store.written_end
    assert send_back(client, back(message.physical_offset)).code == ResponseCode.SUCCESS
    assert broker.core.store.written_end == end


def test_an_unknown_group_is_refused_where_groups_are_not_made() -> None:
    broker = Driver(BrokerSettings(auto_create_groups=False))
    client = broker.connect()
    message = sent(client)
    answer = send_back(client, back(message.physical_offset))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_retry_topic_that_may_not_be_written_refuses() -> None:
    broker = Driver()
    client = broker.connect()
    message = sent(client)
    broker.core.topics.put(
        TopicConfig(topic_name=RETRY, read_queue_nums=1, write_queue_nums=1, perm=4), broker.now
    )
    assert send_back(client, back(message.physical_offset)).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("offset", [-1, 0, 1, 17, 10**18, -(2**63)])
def test_a_place_where_no_message_lies_is_refused(offset: int) -> None:
    broker = Driver()
    client = broker.connect()
    sent(client)
    answer = send_back(client, back(offset))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "look message by offset failed" in (answer.remark or "")


def test_what_waits_inside_the_broker_cannot_be_pulled_out_by_sending_it_back() -> None:
    broker = Driver()
    client = broker.connect()
    waiting: list[dict[str, Any]] = [
        {"DELAY": "3"},
        {"TRAN_MSG": "true", "PGROUP": "pg"},
        {"TIMER_DELAY_SEC": "60"},
    ]
    for properties in waiting:
        at = decode_offset_message_id(client.send("T", b"secret", **properties).msg_id).physical_offset
        assert send_back(client, back(at, level=-1)).code == ResponseCode.SYSTEM_ERROR
    assert client.pull(DLQ) == []


@pytest.mark.parametrize("group", ["", "a b", "x" * 256])
def test_a_group_that_cannot_be_is_refused(group: str) -> None:
    broker = Driver()
    client = broker.connect()
    message = sent(client)
    assert send_back(client, back(message.physical_offset, group=group)).code != ResponseCode.SUCCESS


def test_the_answer_waits_until_the_retry_is_durable() -> None:
    disk = HeldExecutor()
    disk.is_holding = False
    broker = Driver(sync_executor=disk)
    client = broker.connect()
    message = sent(client)
    disk.is_holding = True
    opaque = client.request(RequestCode.CONSUMER_SEND_MSG_BACK, back(message.physical_offset))
    assert opaque not in client.answers
    disk.run()
    assert client.answers[opaque].code == ResponseCode.SUCCESS


def test_a_one_way_send_back_is_done_and_not_answered() -> None:
    broker = Driver()
    client = broker.connect()
    message = sent(client)
    opaque = client.request(
        RequestCode.CONSUMER_SEND_MSG_BACK, back(message.physical_offset, level=-1), is_oneway=True
    )
    assert len(client.pull(DLQ)) == 1
    assert opaque not in client.answers


def test_a_retry_survives_a_crash_while_it_waits() -> None:
    broker = Driver()
    client = broker.connect()
    message = sent(client)
    send_back(client, back(message.physical_offset))
    broker.advance(5_000)
    broker.restart(crash=True)
    broker.advance(5_000)
    assert [again.reconsume_times for again in broker.connect().pull(RETRY)] == [1]
