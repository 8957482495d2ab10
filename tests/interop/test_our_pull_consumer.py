"""Our pull consumer at real brokers: what a Java producer sent, field by field; offsets that Java and mqadmin see."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.java_program import JAVA_CLIENTS
from tests.interop.servers import eventually, unique
from tests.interop.stock_client import Queue, encoded, offset_stored, plain
from trimtab import MessageQueue, Pulling, blocking
from trimtab.client.subscriptions import SQL

if TYPE_CHECKING:
    from tests.interop.conftest import SharedClients
    from tests.interop.java_program import JavaPrograms
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client, Message, Program
    from trimtab import Received

COUNT = 2_000 if os.environ.get("TRIMTAB_FULL") == "1" else 400


@pytest.fixture
def stock(java_programs: JavaPrograms) -> Program:
    return java_programs.running(JAVA_CLIENTS[0])


@pytest.fixture
def sender(stock: Program, server: ServerUnderTest, shared_clients: SharedClients) -> Client:
    return shared_clients.get("producer", stock, server)


@pytest.fixture
def looker(stock: Program, server: ServerUnderTest, shared_clients: SharedClients) -> Client:
    return shared_clients.get("pull", stock, server)


def consuming(server: ServerUnderTest, group: str | None = None, **options: Any) -> blocking.PullConsumer:
    options.setdefault("start", "first")
    return blocking.PullConsumer(group or unique("group-own"), nameserver=server.nameserver, **options)


def gathered(consumer: blocking.PullConsumer, count: int) -> list[Received]:
    found: list[Received] = []

    def enough() -> bool:
        found.extend(consumer.poll(1))
        return len(found) >= count

    eventually(enough, f"{count} messages")
    return found


def batch_of(topic: str, bodies: list[bytes]) -> list[dict[str, str]]:
    return [{"topic": topic, "body": encoded(body)} for body in bodies]


def stock_queue(queue: MessageQueue) -> Queue:
    return Queue(queue.topic, queue.broker_name, queue.queue_id)


def as_java_sees_it(message: Received) -> dict[str, object]:
    return {
        "topic": message.topic, "broker": message.broker_name, "queue_id": message.queue_id, "offset": message.queue_offset,
        "id": message.message_id, "offset_id": message.offset_message_id, "body": message.body,
        "times": message.reconsume_times, "born_ms": message.born_timestamp, "stored_ms": message.store_timestamp,
        "tag": message.tag, "keys": message.keys, "flag": message.stored.flag,
    }  # fmt: skip


def as_java_says(message: Message) -> dict[str, object]:
    properties = message.properties
    return {
        "topic": message.topic, "broker": message.broker, "queue_id": message.queue_id, "offset": message.offset,
        "id": message.id, "offset_id": message.offset_id, "body": message.body, "times": message.times,
        "born_ms": message.born_ms, "stored_ms": message.stored_ms, "tag": properties.get("TAGS"),
        "keys": tuple(properties.get("KEYS", "").split()), "flag": message.flag,
    }  # fmt: skip


def place(message: Received | Message) -> tuple[object, ...]:
    facts = as_java_sees_it(message) if hasattr(message, "broker_name") else as_java_says(message)  # type: ignore[arg-type]
    return facts["broker"], facts["queue_id"], facts["offset"]


def test_every_field_of_a_java_producer_s_messages_is_what_java_reads(
    server: ServerUnderTest, sender: Client, looker: Client
) -> None:
    topic = server.make_topic()
    for number in range(30):
        sender.send(
            topic, b"%d" % number * (1 + number * 300), tag="TagA" if number % 2 else None, key="k1 k2",
            properties={"n": str(number), "ü": "Grüße 🚀"},
        )  # fmt: skip
    sender.do("batch", messages=batch_of(topic, [b"b%d" % number for number in range(20)]))
    expected = sorted(looker.read_when(topic, 50), key=place)
    with consuming(server, subscribe={topic: "*"}) as consumer:
        found = sorted(gathered(consumer, 50), key=place)
    assert [as_java_sees_it(message) for message in found] == [as_java_says(message) for message in expected]
    for ours, theirs in zip(found, expected, strict=True):
        broker_s_own = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
        assert (
            ours.properties.items()
            >= {name: value for name, value in theirs.properties.items() if name not in broker_s_own}.items()
        )
    assert any(message.stored.stored_body_bytes < len(message.body) for message in found), (
        "some were compressed"
    )


def test_a_backlog_is_pipelined_and_nothing_is_wasted(server: ServerUnderTest, sender: Client) -> None:
    topic = server.make_topic(queues=1)
    for first in range(0, COUNT, 100):
        bodies = [b"%d" % number for number in range(first, first + 100)]
        sender.do("batch", messages=batch_of(topic, bodies))
    with consuming(server) as consumer:
        consumer.assign(consumer.queues(topic))
        found = gathered(consumer, COUNT)
        tallies = consumer.tallies()
    assert sorted(int(message.body) for message in found) == list(range(COUNT))
    for queue in {message.queue for message in found}:
        offsets = [message.queue_offset for message in found if message.queue == queue]
        assert offsets == list(range(len(offsets)))
    sent, wasted = sum(tally.sent for tally in tallies), sum(tally.wasted for tally in tallies)
    assert wasted <= sent * 0.05


def test_tags_and_sql_choose(server: ServerUnderTest, sender: Client) -> None:
    topic = server.make_topic()
    for number in range(12):
        sender.send(topic, b"%d" % number, tag="abc"[number % 3], properties={"n": str(number)})
    with consuming(server, subscribe={topic: "a || b"}) as consumer:
        assert {message.tag for message in gathered(consumer, 8)} == {"a", "b"}
    with consuming(server, subscribe={topic: SQL("n BETWEEN 4 AND 6")}) as consumer:
        assert sorted(message.body for message in gathered(consumer, 3)) == [b"4", b"5", b"6"]


def test_offsets_are_shared_with_java(server: ServerUnderTest, sender: Client, looker: Client) -> None:
    topic, group = server.make_topic(queues=1), unique("g")
    queue = looker.queues(topic)[0]
    for number in range(10):
        sender.send(topic, b"%d" % number, queue=plain(queue))
    ours = MessageQueue(queue.topic, queue.broker, queue.id)
    with consuming(server, group) as consumer:
        consumer.assign([ours])
        assert [message.body for message in consumer.poll(30, messages_max=4)] == [b"0", b"1", b"2", b"3"]
        consumer.commit()
        assert offset_stored(server, group, queue) == 4
        assert [next(consumer).body for _ in range(2)] == [b"4", b"5"]
    assert offset_stored(server, group, queue) == 6, "a clean end commits what was handed out"
    with consuming(server, group) as consumer:
        consumer.assign([ours])
        assert next(consumer).body == b"6", "it goes on where the group stands"


def test_seek_goes_to_the_ends_and_to_a_time(server: ServerUnderTest, sender: Client, looker: Client) -> None:
    topic = server.make_topic(queues=1)
    queue = looker.queues(topic)[0]
    for number in range(5):
        sender.send(topic, b"%d" % number, queue=plain(queue))
    ours = MessageQueue(queue.topic, queue.broker, queue.id)
    with consuming(server, pulling=Pulling(suspend_ms=1_000)) as consumer:
        consumer.assign([ours])
        found = gathered(consumer, 5)
        at = datetime.fromtimestamp(found[2].store_timestamp / 1000, UTC)
        consumer.seek(ours, at)
        assert next(consumer).store_timestamp == found[2].store_timestamp
        assert consumer.seek(ours, "begin") == 0
        assert next(consumer).body == b"0"
        assert consumer.seek(ours, "end") == 5
        sender.send(topic, b"new", queue=plain(queue))
        assert next(consumer).body == b"new"


def test_columns_hold_what_messages_hold(server: ServerUnderTest, sender: Client, looker: Client) -> None:
    topic = server.make_topic(queues=1)
    queue = looker.queues(topic)[0]
    bodies = [b"%d" % number * (3_000 if number % 50 == 0 else 1) for number in range(150)]
    for number, body in enumerate(bodies):
        sender.send(topic, body, tag="ab"[number % 2], key=f"k{number}", queue=plain(queue))
    ours = MessageQueue(queue.topic, queue.broker, queue.id)
    with consuming(server) as consumer:
        names = ["queue_offset", "body", "tag", "message_id"]
        rows = [
            row for batch in consumer.pull_columns(ours, 10, 140, columns=names) for row in batch.to_pylist()
        ]
        assert [row["queue_offset"] for row in rows] == list(range(10, 140))
        assert [row["body"] for row in rows] == bodies[10:140]
        consumer.assign([ours])
        found = {message.queue_offset: message for message in gathered(consumer, 150)}
        assert [(row["tag"], row["message_id"]) for row in rows] == [
            (found[offset].tag, found[offset].message_id) for offset in range(10, 140)
        ]


def test_java_and_our_member_share_a_group(server: ServerUnderTest, stock: Program) -> None:
    topic, group = server.make_topic(), unique("g")
    with consuming(server, group, subscribe={topic: "*"}) as ours:
        every = {stock_queue(queue) for queue in ours.queues(topic)}
        eventually(lambda: {stock_queue(queue) for queue in ours.assigned} == every, "we have all")
        with stock.client("lite", server, group=group, tags={topic: "*"}) as theirs:

            def is_shared() -> bool:
                theirs.do("poll")
                mine = {stock_queue(queue) for queue in ours.assigned}
                return len(mine) == len(every) // 2

            eventually(is_shared, "half of the queues are Java's")
        eventually(lambda: {stock_queue(queue) for queue in ours.assigned} == every, "we have all again")
