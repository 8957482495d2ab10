"""Names that peers choose end up in tables that are bounded by their number; so each name is bounded where it comes in."""

import pytest

from tests.unit.broker.driver import Driver
from trimtab.model import MessageQueue
from trimtab.wire.bodies import HeartbeatData, ProducerData
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.consume import UpdateConsumerOffset

LONG = "x" * 10_000
BAD_NAMES = [LONG, "../etc", "a b", "line\nbreak", ""]


def commit(broker: Driver, group: str, topic: str) -> int:
    header = UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=0, commit_offset=1)
    return broker.connect().ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_offset_is_kept_for_a_group_or_topic_that_cannot_be(name: str) -> None:
    broker = Driver()
    assert commit(broker, name, "T") == ResponseCode.SYSTEM_ERROR
    assert commit(broker, "G", name) == ResponseCode.SYSTEM_ERROR
    assert len(broker.core.offsets) == 0


def test_offsets_of_the_longest_names_are_kept() -> None:
    broker = Driver()
    group = "g" * 255
    assert commit(broker, group, "t" * 127) == ResponseCode.SUCCESS
    assert commit(broker, group, f"%RETRY%{group}") == ResponseCode.SUCCESS
    assert len(broker.core.offsets) == 2


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_lease_is_kept_for_a_group_or_topic_that_cannot_be(name: str) -> None:
    broker = Driver()
    client = broker.connect()
    assert client.lock(name, "c", MessageQueue("T", "broker-a", 0)).code == ResponseCode.SYSTEM_ERROR
    assert client.lock("G", "c", MessageQueue(name, "broker-a", 0)).code == ResponseCode.SYSTEM_ERROR
    assert len(broker.core.leases) == 0


def test_no_lease_is_kept_under_endless_ids_and_broker_names() -> None:
    broker = Driver()
    client = broker.connect()
    assert client.lock("G", LONG, MessageQueue("T", "broker-a", 0)).code == ResponseCode.SYSTEM_ERROR
    assert client.lock("G", "c", MessageQueue("T", LONG, 0)).code == ResponseCode.SYSTEM_ERROR
    assert len(broker.core.leases) == 0
    assert client.lock("G", "10.0.0.1@7#1", MessageQueue("T", "broker-a", 0)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("name", [LONG])
def test_a_producer_group_with_such_a_name_is_not_taken(name: str) -> None:
    broker = Driver()
    client = broker.connect()
    body = HeartbeatData(client_id="c", producer_data_set=(ProducerData(group_name=name),))
    assert client.ask(RequestCode.HEART_BEAT, body=encode_body(body)).code == ResponseCode.SYSTEM_ERROR
    body = HeartbeatData(client_id=name, producer_data_set=(ProducerData(group_name="P"),))
    assert client.ask(RequestCode.HEART_BEAT, body=encode_body(body)).code == ResponseCode.SYSTEM_ERROR
    assert len(broker.core.producers) == 0


def test_a_producer_group_may_be_called_what_apache_lets_it() -> None:
    broker = Driver()
    body = HeartbeatData(client_id="c", producer_data_set=(ProducerData(group_name="my.group"),))
    answer = broker.connect().ask(RequestCode.HEART_BEAT, body=encode_body(body))
    assert answer.code == ResponseCode.SUCCESS
