"""The stock Go client (rocketmq-client-go v2): its producers, and its push, ordered and pull consumers."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.interop.servers import eventually, unique
from tests.interop.stock_client import Queue, by_queue, encoded, offset_stored
from trimtab import Message, Sending, blocking
from trimtab.wire.ids import decode_offset_message_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.java_program import JavaPrograms
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client, Program
    from tests.interop.stock_client import Message as Found


@pytest.fixture(scope="module")
def sender(go: Program, server: ServerUnderTest) -> Iterator[Client]:
    with go.client("producer", server) as producer:
        yield producer


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def sorted_bodies(messages: list[Found]) -> list[bytes]:
    return sorted((message.body for message in messages), key=int)


def queues_of(server: ServerUnderTest, topic: str, count: int) -> list[Queue]:
    return [Queue(topic, broker.name, number) for broker in server.brokers for number in range(count)]


# --- sends --------------------------------------------------------------------------------------------------------


def test_a_send_visits_every_queue_and_its_receipt_names_it(
    server: ServerUnderTest, sender: Client, java_reader: Client
) -> None:
    topic = server.make_topic()
    addresses = {broker.name: broker.address for broker in server.brokers}

    receipts = [
        sender.send(topic, body, tag="t", key="k1 k2", properties={"ü": "🚀"}) for body in numbers(0, 8)
    ]
    stored = {message.id: message for message in java_reader.read_when(topic, 8)}

    assert {(receipt.broker, receipt.queue_id) for receipt in receipts} == {
        (queue.broker, queue.id) for queue in queues_of(server, topic, 4)
    }
    for number, receipt in enumerate(receipts):
        assert (receipt.status, receipt.offset, receipt.region) == ("SEND_OK", 0, "DefaultRegion")
        assert receipt.id is not None
        assert receipt.offset_id is not None
        message = stored[receipt.id]
        assert (message.body, message.offset_id) == (b"%d" % number, receipt.offset_id)
        assert (message.properties["TAGS"], message.properties["KEYS"], message.properties["ü"]) == ("t", "k1 k2", "🚀")  # fmt: skip
        assert decode_offset_message_id(receipt.offset_id).address == addresses[receipt.broker]


def test_a_key_goes_where_go_s_own_selector_sends_it(server: ServerUnderTest, sender: Client) -> None:
    """But for the order of brokers: Go means to sort them, compares their places instead of their names, and so turns the name server's
    order around each time.
    """
    topic = server.make_topic()
    brokers = set()
    keys = [f"order-{number}" for number in range(12)] + ["polygenelubricants", "schlüssel", "🚀"]
    sending = Sending(selector="fnv1a")
    with blocking.Producer(unique("group-own"), nameserver=server.nameserver, sending=sending) as producer:
        for key in keys:
            theirs = sender.send(topic, b"x", shard=key)
            ours = producer.send(Message(topic, b"x"), key=key)
            assert ours.queue.queue_id == theirs.queue_id, key
            brokers.add((ours.queue.broker_name, theirs.broker))
    assert len(brokers) == len(dict(brokers)) == len(server.brokers)


def test_async_and_one_way_sends_arrive(server: ServerUnderTest, sender: Client, java_reader: Client) -> None:
    topic = server.make_topic(queues=1)

    for body in numbers(0, 4):
        assert sender.send(topic, body, **{"async": True}).status == "SEND_OK"
    for body in numbers(4, 8):
        sender.do("oneway", topic=topic, body=encoded(body))

    assert sorted_bodies(java_reader.read_when(topic, 8)) == numbers(0, 8)


def test_a_batch_lies_together(server: ServerUnderTest, sender: Client, java_reader: Client) -> None:
    topic = server.make_topic()

    receipt = sender.do("batch", messages=[{"topic": topic, "body": encoded(body)} for body in numbers(0, 5)])
    messages = java_reader.read_when(topic, 5)

    assert [message.body for message in messages] == numbers(0, 5)
    assert [message.offset for message in messages] == [0, 1, 2, 3, 4]
    assert {(message.broker, message.queue_id) for message in messages} == {
        (receipt["broker"], receipt["queue_id"])
    }


def test_a_large_body_and_a_delayed_one(server: ServerUnderTest, sender: Client, java_reader: Client) -> None:
    topic = server.make_topic(queues=1)
    body = b"all work and no play " * 1_500

    sender.send(topic, body)
    sender.send(topic, b"late", delay_level=1)
    messages = {message.body: message for message in java_reader.read_when(topic, 2)}

    assert set(messages) == {body, b"late"}
    assert messages[b"late"].stored_ms - messages[b"late"].born_ms >= 1_000


def test_a_send_makes_its_topic(server: ServerUnderTest, sender: Client, java_reader: Client) -> None:
    topic = unique("auto")

    receipts = sender.send_all(topic, numbers(0, 8))

    assert {receipt.status for receipt in receipts} == {"SEND_OK"}
    eventually(lambda: server.route(topic), f"a route of {topic}")
    eventually(lambda: len(java_reader.read(topic)) == 8, "all are there")


# --- push ---------------------------------------------------------------------------------------------------------


def test_push_gets_the_wanted_tags_and_its_offsets_stay(
    go: Program, server: ServerUnderTest, sender: Client
) -> None:
    topic = server.make_topic(queues=1)
    receipts = {}
    for number, tag in enumerate("ABCABC"):
        receipt = sender.send(topic, b"%d" % number, tag=tag)
        receipts[receipt.id] = receipt

    with go.client("push", server, tags={topic: "A || C"}) as consumer:
        consumer.wait_for(4)
        sender.send(topic, b"6", tag="B")
        receipt = sender.send(topic, b"7", tag="A")
        receipts[receipt.id] = receipt
        messages = consumer.wait_for(5)
        last = Queue(topic, receipt.broker, receipt.queue_id)
        eventually(
            lambda: offset_stored(server, consumer.group, last) == receipt.offset + 1,
            "its offsets are stored every 5 s",
        )

    assert sorted_bodies(messages) == [b"0", b"2", b"3", b"5", b"7"]
    for message in messages:
        assert (message.offset, message.offset_id) == (
            receipts[message.id].offset,
            receipts[message.id].offset_id,
        )


def test_push_chooses_by_sql(go: Program, server: ServerUnderTest, sender: Client) -> None:
    topic = server.make_topic(queues=1)
    for number in range(6):
        sender.send(topic, b"%d" % number, properties={"a": str(number)})

    with go.client("push", server, sql={topic: "a BETWEEN 2 AND 4"}) as consumer:
        assert sorted_bodies(consumer.wait_for(3)) == [b"2", b"3", b"4"]


def test_a_failed_message_comes_again(
    go: Program, server: ServerUnderTest, sender: Client, java_reader: Client
) -> None:
    """The Go client learns of its retry topic only when it asks for routes again, so what is looked at is the topic."""
    topic = server.make_topic(queues=1)
    receipt = sender.send(topic, b"x")
    with go.client("push", server, tags={topic: "*"}, failures=1, delay_level=1) as consumer:
        consumer.wait_for(1)
        retry = f"%RETRY%{consumer.group}"
        eventually(lambda: server.route(retry), f"a route of {retry}")
        (again,) = java_reader.read_when(retry, 1)

    assert (again.body, again.id, again.times) == (b"x", receipt.id, 1)
    assert again.properties["RETRY_TOPIC"] == topic


def test_ordered_push_sees_each_queue_in_order(go: Program, server: ServerUnderTest, sender: Client) -> None:
    topic = server.make_topic(queues=2)
    for number in range(30):
        sender.send(topic, b"%d" % number, shard=f"s{number % 5}")

    with go.client("push", server, tags={topic: "*"}, ordered=True) as consumer:
        messages = consumer.wait_for(30)

    assert sorted_bodies(messages) == numbers(0, 30)
    for queue in by_queue(messages).values():
        assert all(earlier.offset + 1 == later.offset for earlier, later in pairwise(queue))


def test_broadcasting_gives_everything_to_everyone(
    go: Program, server: ServerUnderTest, sender: Client
) -> None:
    topic, group = server.make_topic(queues=1), unique("group")
    sender.send_all(topic, numbers(0, 6))
    options = {"group": group, "tags": {topic: "*"}, "broadcasting": True}
    with go.client("push", server, **options) as one, go.client("push", server, **options) as two:
        assert sorted_bodies(one.wait_for(6)) == numbers(0, 6)
        assert sorted_bodies(two.wait_for(6)) == numbers(0, 6)


def test_go_and_java_share_one_group(
    go: Program, java_programs: JavaPrograms, server: ServerUnderTest, sender: Client
) -> None:
    topic, group = server.make_topic(), unique("group")
    options = {"group": group, "tags": {topic: "*"}}
    with (
        java_programs.running("4.9.3").client("push", server, **options) as java,
        go.client("push", server, **options) as gopher,
    ):
        everything = set(queues_of(server, topic, 4))
        eventually(lambda: are_halves(java.holds(topic), last_share(gopher, topic), everything), "half each")

        sender.send_all(topic, numbers(0, 16))
        eventually(
            lambda: sorted_bodies(java.received() + gopher.received()) == numbers(0, 16), "each message once"
        )
    assert len(gopher.received()) == 8


def last_share(consumer: Client, topic: str) -> list[Queue]:
    """What the newest rebalance gave to it."""
    shares = consumer.shares(topic)
    return shares[-1].queues if shares else []


def are_halves(one: list[Queue], other: list[Queue], everything: set[Queue]) -> bool:
    return len(one) == len(other) == len(everything) // 2 and {*one, *other} == everything


# --- pull ---------------------------------------------------------------------------------------------------------


def test_pull_polls_and_pulls_from_an_offset(go: Program, server: ServerUnderTest, sender: Client) -> None:
    topic = server.make_topic(queues=1)
    sender.send_all(topic, numbers(0, 20))

    with go.client("pull", server, tags={topic: "*"}) as consumer:
        assert sorted_bodies(consumer.poll(20)) == numbers(0, 20)
        for queue in queues_of(server, topic, 1):
            found = consumer.pull(queue, 3, most=4)
            assert (found.status, found.first, found.end, found.next) == ("FOUND", 0, 10, 7)
            assert [message.offset for message in found.messages] == [3, 4, 5, 6]
        consumer.do("commit", topic=topic)
        queues = queues_of(server, topic, 1)
        eventually(
            lambda: {offset_stored(server, consumer.group, queue) for queue in queues} == {10}, "committed"
        )
