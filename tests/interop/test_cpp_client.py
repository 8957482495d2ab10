"""The stock C++ client (librocketmq, through its Python binding): its producer, and its push consumer, concurrent and ordered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.apache.cpp_client import start_cpp_program
from tests.interop.servers import eventually, unique
from tests.interop.stock_client import Program, Queue, encoded, wait_until_stored
from trimtab import Message, MessageQueue, blocking
from trimtab.wire.batch import decode_batch
from trimtab.wire.properties import DELAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client
    from trimtab import Received


@pytest.fixture(scope="module")
def cpp() -> Iterator[Program]:
    with start_cpp_program() as conversation:
        yield Program("cpp", conversation)


@pytest.fixture(scope="module")
def sender(cpp: Program, server: ServerUnderTest) -> Iterator[Client]:
    with cpp.client("producer", server) as producer:
        yield producer


def filled(server: ServerUnderTest, count: int) -> str:
    """A topic with so many messages of ours, half of them with another tag."""
    topic = server.make_topic()
    with blocking.Producer(unique("group-own"), nameserver=server.nameserver) as producer:
        producer.send_many(
            [
                Message(topic, b"%d" % number, tag="ab"[number % 2], keys=(f"k{number}",))
                for number in range(count)
            ]
        )
    return topic


# --- sends --------------------------------------------------------------------------------------------------------


def test_what_it_sends_is_stored_field_by_field(
    server: ServerUnderTest, sender: Client, java_reader: Client
) -> None:
    topic = server.make_topic()
    answers = [
        sender.do(
            "send", topic=topic, body=encoded(b"%d" % number), tag="t", key="k1 k2", properties={"a": "b"}
        )
        for number in range(8)
    ]
    stored = {message.id: message for message in java_reader.read_when(topic, 8)}
    assert len({answer["id"] for answer in answers}) == 8
    for number, answer in enumerate(answers):
        message = stored[answer["id"]]
        assert (answer["status"], message.offset) == ("SEND_OK", answer["offset"])
        assert message.body == b"%d" % number
        found = {name: message.properties[name] for name in ("TAGS", "KEYS", "a")}
        assert found == {"TAGS": "t", "KEYS": "k1 k2", "a": "b"}


def test_one_way_sends_arrive(server: ServerUnderTest, sender: Client, java_reader: Client) -> None:
    topic = server.make_topic()
    sender.do("oneway", topic=topic, body=encoded(b"alone"))
    assert [message.body for message in java_reader.read_when(topic, 1)] == [b"alone"]


def test_its_batch_is_one_message_because_it_does_not_say_that_it_is_a_batch(
    server: ServerUnderTest, sender: Client, java_reader: Client
) -> None:
    topic = server.make_topic()
    bodies = [b"%d" % number for number in range(5)]
    answer = sender.do("batch", topic=topic, bodies=[encoded(body) for body in bodies])
    assert answer["status"] == "SEND_OK"
    (message,) = java_reader.read_when(topic, 1)
    assert [entry.body for entry in decode_batch(message.body)] == bodies


def test_its_selector_keeps_a_shard_in_one_queue(
    server: ServerUnderTest, sender: Client, java_reader: Client
) -> None:
    topic = server.make_topic()
    for number in range(6):
        sender.do("orderly", topic=topic, body=encoded(b"%d" % number), shard=7)
    stored = java_reader.read_when(topic, 6)
    assert len({(message.broker, message.queue_id) for message in stored}) == 1
    assert [message.body for message in sorted(stored, key=lambda message: message.offset)] == [
        b"%d" % number for number in range(6)
    ]


def test_a_delayed_message_keeps_its_level(
    server: ServerUnderTest, sender: Client, java_reader: Client
) -> None:
    topic = server.make_topic()
    sender.do("send", topic=topic, body=encoded(b"later"), delay=1)
    (message,) = java_reader.read_when(topic, 1)
    assert (message.body, message.properties[DELAY]) == (b"later", "1")


# --- push consumers -----------------------------------------------------------------------------------------------


def test_its_push_consumer_gets_every_message_and_stores_offsets(
    cpp: Program, server: ServerUnderTest
) -> None:
    topic = filled(server, 40)
    with cpp.client("push", server, topic=topic) as consumer:
        got = consumer.wait_for(40)
        assert sorted((message.body for message in got), key=int) == [b"%d" % number for number in range(40)]
        assert {message.properties["KEYS"] for message in got} == {f"k{number}" for number in range(40)}
        queues = [Queue(topic, broker.name, number) for broker in server.brokers for number in range(4)]
        wait_until_stored(server, consumer.group, queues, 40)


def test_it_gets_the_tags_that_it_asked_for_alone(cpp: Program, server: ServerUnderTest) -> None:
    topic = filled(server, 20)
    with cpp.client("push", server, topic=topic, expression="a") as consumer:
        got = consumer.wait_for(10)
    assert {message.properties["TAGS"] for message in got} == {"a"}
    assert len(got) == 10


def test_its_ordered_consumer_locks_its_queues_and_keeps_their_order(
    cpp: Program, server: ServerUnderTest
) -> None:
    topic = server.make_topic()
    bodies = [b"%d" % number for number in range(40)]
    with blocking.Producer(unique("group-own"), nameserver=server.nameserver) as producer:
        for body in bodies:
            producer.send(Message(topic, body), key="one")
    with cpp.client("push", server, topic=topic, orderly=True) as consumer:
        assert [message.body for message in consumer.wait_for(40)] == bodies


def test_it_shares_a_topic_with_a_member_of_ours(cpp: Program, server: ServerUnderTest) -> None:
    """Ours falls back to classic mode beside it, and both compute the same shares."""
    topic = server.make_topic()
    group = unique("group-mixed")
    mine: list[bytes] = []

    def take(message: Received) -> None:
        mine.append(message.body)

    with (
        cpp.client("push", server, topic=topic, group=group) as theirs,
        blocking.PushConsumer(
            group, subscribe={topic: "*"}, handler=take, nameserver=server.nameserver, start="first"
        ) as ours,
    ):
        eventually(
            lambda: len(queues_held(ours, topic)) == 2 * len(server.brokers), "half of the queues are ours"
        )
        with blocking.Producer(unique("group-own"), nameserver=server.nameserver) as producer:
            sent = producer.send_many([Message(topic, b"%d" % number) for number in range(40)])
        held = queues_held(ours, topic)
        own = {b"%d" % n for n, receipt in enumerate(sent) if receipt.queue in held}
        eventually(lambda: set(mine) >= own, "ours has its part")
        eventually(lambda: len({m.body for m in theirs.received()} | set(mine)) == 40, "all were delivered")
    assert set(mine) == own


def queues_held(consumer: blocking.PushConsumer, topic: str) -> set[MessageQueue]:
    return {held.queue for held in consumer.holdings() if held.queue.topic == topic}
