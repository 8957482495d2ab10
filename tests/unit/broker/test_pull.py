"""Pulls: reading, waiting, filtering, and every way of being at a wrong offset."""

import pytest

from tests.unit.broker.driver import Client, Driver
from trimtab.broker.settings import BrokerSettings
from trimtab.wire.bodies import SubscriptionGroupConfig
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.admin import CreateTopic, TopicOnly
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import PullMessage, PullMessageResponse
from trimtab.wire.messages import decode_messages

WAIT = 6


def fields(answer: Command) -> PullMessageResponse:
    return decode_ext(PullMessageResponse, answer.ext)


def pull(client: Client, offset: int, topic: str = "T", **changes: object) -> Command:
    return client.ask(RequestCode.PULL_MESSAGE, client.pull_header(topic, 0, offset, **changes))


def test_an_answer_says_what_it_found_and_where_to_go_on() -> None:
    client = Driver().connect()
    for number in range(5):
        client.send("T", b"%d" % number)
    answer = pull(client, 1, max_msg_nums=3)
    assert [message.body for message in decode_messages(answer.body)] == [b"1", b"2", b"3"]
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert fields(answer) == PullMessageResponse(
        suggest_which_broker_id=0, next_begin_offset=4, min_offset=0, max_offset=5
    )


@pytest.mark.parametrize(
    ("offset", "code", "remark", "next_offset"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (9, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
def test_a_wrong_offset_is_named_and_a_right_one_given(
    offset: int, code: ResponseCode, remark: str, next_offset: int
) -> None:
    client = Driver().connect()
    for _ in range(3):
        client.send("T")
    answer = pull(client, offset)
    assert (answer.code, answer.remark, fields(answer).next_begin_offset) == (code, remark, next_offset)


def test_an_empty_queue_is_fine_for_who_begins_at_its_beginning() -> None:
    client = Driver().connect()
    client.send("T", queue_id=1)
    assert pull(client, 0).code == ResponseCode.PULL_NOT_FOUND
    assert pull(client, 5).code == ResponseCode.PULL_OFFSET_MOVED


def test_a_pull_that_may_wait_is_held_until_a_message_comes() -> None:
    broker = Driver()
    consumer, producer = broker.connect(), broker.connect()
    producer.send("T", queue_id=1)
    header = consumer.pull_header("T", sys_flag=WAIT, suspend_timeout_millis=15_000)
    opaque = consumer.request(RequestCode.PULL_MESSAGE, header)
    broker.advance(14_000)
    assert opaque not in consumer.answers
    producer.send("T", b"news")
    assert [message.body for message in decode_messages(consumer.answers[opaque].body)] == [b"news"]


def test_a_held_pull_is_told_that_there_is_nothing_when_its_time_is_over() -> None:
    broker = Driver()
    consumer = broker.connect()
    consumer.send("T")
    opaque = consumer.request(
        RequestCode.PULL_MESSAGE,
        consumer.pull_header("T", 0, 1, sys_flag=WAIT, suspend_timeout_millis=15_000),
    )
    broker.advance(15_100)
    answer = consumer.answers[opaque]
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert fields(answer).next_begin_offset == 1


def test_a_message_that_the_filter_refuses_does_not_wake_a_held_pull() -> None:
    broker = Driver()
    consumer, producer = broker.connect(), broker.connect()
    producer.send("T", queue_id=1)
    header = consumer.pull_header("T", sys_flag=WAIT, suspend_timeout_millis=15_000, subscription="wanted")
    opaque = consumer.request(RequestCode.PULL_MESSAGE, header)
    producer.send("T", TAGS="other")
    assert opaque not in consumer.answers
    producer.send("T", b"yes", TAGS="wanted")
    assert [message.body for message in decode_messages(consumer.answers[opaque].body)] == [b"yes"]


def test_a_held_pull_whose_filter_refused_many_is_answered_so_that_it_gets_on() -> None:
    broker = Driver()
    consumer, producer = broker.connect(), broker.connect()
    producer.send("T", queue_id=1)
    header = consumer.pull_header("T", sys_flag=WAIT, suspend_timeout_millis=15_000, subscription="wanted")
    opaque = consumer.request(RequestCode.PULL_MESSAGE, header)
    for _ in range(64):
        producer.send("T", TAGS="other")
    answer = consumer.answers[opaque]
    assert (answer.code, fields(answer).next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 64)


def test_the_number_of_held_pulls_is_bounded_and_one_more_is_answered_at_once() -> None:
    broker = Driver(settings=BrokerSettings(held_pulls_max=2))
    client = broker.connect()
    client.send("T", queue_id=1)
    header = client.pull_header("T", sys_flag=WAIT, suspend_timeout_millis=15_000)
    opaques = [client.request(RequestCode.PULL_MESSAGE, header) for _ in range(3)]
    assert [opaque in client.answers for opaque in opaques] == [False, False, True]


def test_a_connection_that_closes_takes_its_held_pulls_with_it() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", queue_id=1)
    client.request(
        RequestCode.PULL_MESSAGE, client.pull_header("T", sys_flag=WAIT, suspend_timeout_millis=15_000)
    )
    assert len(broker.core.polls) == 1
    client.close()
    assert len(broker.core.polls) == 0


def test_a_stopping_broker_leaves_nobody_waiting() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T", queue_id=1)
    header = client.pull_header("T", sys_flag=WAIT, suspend_timeout_millis=15_000)
    opaque = client.request(RequestCode.PULL_MESSAGE, header)
    broker.stop()
    assert client.answers[opaque].code == ResponseCode.PULL_NOT_FOUND


def test_a_pull_can_carry_a_commit() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T")
    pull(client, 1, sys_flag=5, commit_offset=1, consumer_group="g")
    assert broker.core.offsets.get("g", "T", 0) == 1


def test_tags_are_compared_by_hash_and_messages_without_one_have_zero() -> None:
    client = Driver().connect()
    for tag in ("a", "b"):
        client.send("T", tag.encode(), TAGS=tag)
    client.send("T", b"none")
    assert [m.body for m in decode_messages(pull(client, 0, subscription="b || a").body)] == [b"a", b"b"]
    assert [m.body for m in decode_messages(pull(client, 0, subscription="*").body)] == [b"a", b"b", b"none"]
    refused = pull(client, 0, subscription="c")
    assert (refused.code, fields(refused).next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 3)


def test_sql92_filters_by_properties() -> None:
    client = Driver().connect()
    for price in ("5", "15", "x"):
        client.send("T", price.encode(), price=price)
    found = pull(client, 0, subscription="price > 10", expression_type="SQL92")
    assert [message.body for message in decode_messages(found.body)] == [b"15"]
    broken = pull(client, 0, subscription="price >", expression_type="SQL92")
    assert broken.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_a_client_that_asks_for_bytes_gets_more_than_32_messages() -> None:
    client = Driver().connect()
    for _ in range(100):
        client.send("T", bytes(100))
    assert len(decode_messages(pull(client, 0, max_msg_nums=1_000).body)) == 32
    assert len(decode_messages(pull(client, 0, max_msg_nums=1_000, max_msg_bytes=1 << 20).body)) == 100


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nobody"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 99}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": -1}, ResponseCode.SYSTEM_ERROR),
        ({"sys_flag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    ],
)
def test_what_may_not_be_pulled_is_refused(changes: dict[str, object], code: ResponseCode) -> None:
    client = Driver().connect()
    client.send("T")
    header = client.pull_header(**({"topic": "T"} | changes))  # type: ignore[arg-type]
    assert client.ask(RequestCode.PULL_MESSAGE, header).code == code


def test_a_group_that_may_not_consume_is_refused() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T")
    broker.core.groups.put(SubscriptionGroupConfig(group_name="g", consume_enable=False), broker.now)
    assert pull(client, 0, consumer_group="g").code == ResponseCode.NO_PERMISSION


def test_a_subscription_newer_than_the_brokers_is_refused_until_the_heartbeat() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T")
    client.heartbeat("c", consumes={"g": ["T"]})
    assert pull(client, 0, consumer_group="g", sys_flag=0, sub_version=0).code == ResponseCode.SUCCESS
    newer = pull(client, 0, consumer_group="g", sys_flag=0, sub_version=2**60)
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert (
        pull(client, 0, topic="T", consumer_group="other", sys_flag=0).code
        == ResponseCode.SUBSCRIPTION_NOT_EXIST
    )


def test_a_held_pull_is_judged_anew_when_a_message_comes() -> None:
    broker = Driver()
    client, other = broker.connect(), broker.connect()
    client.send("T")
    waiting = client.request(RequestCode.PULL_MESSAGE, held_header(client))
    read_only = CreateTopic(
        topic="T",
        default_topic="",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=2,
        topic_filter_type="SINGLE_TAG",
    )
    assert other.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, read_only).code == ResponseCode.SUCCESS
    other.send("T")
    assert client.answers[waiting].code == ResponseCode.NO_PERMISSION


def test_a_held_pull_of_a_topic_that_is_deleted_is_told_so_and_not_that_its_offset_is_wrong() -> None:
    broker = Driver()
    client, other = broker.connect(), broker.connect()
    client.send("T")
    waiting = client.request(RequestCode.PULL_MESSAGE, held_header(client))
    other.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic="T"))
    broker.advance(10_100)
    assert client.answers[waiting].code == ResponseCode.TOPIC_NOT_EXIST


def held_header(client: Client) -> PullMessage:
    return client.pull_header("T", offset=1, sys_flag=6, suspend_timeout_millis=10_000)
