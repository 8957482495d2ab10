"""Brokers that stop and start again under stock Java clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop.servers import eventually, unique
from tests.interop.stock_client import StockError, make_offset_table, offset_stored, wait_until_stored

if TYPE_CHECKING:
    from tests.interop.java_program import JavaPrograms
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client, Message


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_a_restart_of_the_brokers_loses_nothing(java_programs: JavaPrograms, server: ServerUnderTest) -> None:
    """Messages, topics and offsets are there again, and clients that were there go on by themselves."""
    topic, gone, late = server.make_topic(), unique("gone"), server.make_topic()
    old, new = java_programs.running("4.9.3"), java_programs.running("5.5.0")
    with (
        old.client("producer", server) as producer,
        new.client("pull", server) as reader,
        old.client("push", server, tags={topic: "*"}) as staying,
    ):
        producer.send_all(topic, numbers(0, 40))
        make_offset_table(server, gone, topic)
        with new.client("push", server, group=gone, tags={topic: "*"}) as leaving:
            leaving.wait_for(40)
            queues = leaving.holds(topic)
        wait_until_stored(server, gone, queues, 40)
        staying.wait_for(40)
        before = {message.offset_id: message.body for message in reader.read_when(topic, 40)}
        offsets = {queue: offset_stored(server, gone, queue) for queue in queues}
        delayed = producer.send(late, b"delayed", delay_level=2)

        server.restart()

        # The client may have asked for routes while one broker was back and the other was not.
        eventually(lambda: reader.queues(topic) == queues, "the reader sees all queues again")
        after = eventually(lambda: read_again(reader, topic), "the topic is read again")
        assert {message.offset_id: message.body for message in after} == before
        assert {queue: offset_stored(server, gone, queue) for queue in queues} == offsets
        assert sum(offset or 0 for offset in offsets.values()) == 40
        eventually(lambda: sends(producer, topic, b"40"), "the producer sends again")
        eventually(lambda: goes_on(staying, b"40"), "the consumer goes on")
        assert set(bodies(staying)) == set(numbers(0, 41))
        (message,) = reader.read_when(late, 1)
        assert (message.body, message.id) == (b"delayed", delayed.id)

    with new.client("push", server, group=gone, tags={topic: "*"}) as returning:
        eventually(lambda: b"40" in bodies(returning), "what was sent meanwhile")
        assert set(bodies(returning)) == {b"40"}


def test_killed_brokers_lose_no_message_they_answered_for(
    java_programs: JavaPrograms, server: ServerUnderTest
) -> None:
    topic = server.make_topic()
    program = java_programs.running("4.9.3")
    with program.client("producer", server) as producer, program.client("pull", server) as reader:
        sent = {receipt.id for receipt in producer.send_all(topic, numbers(0, 40))}
        queues = reader.queues(topic)

        server.crash()

        eventually(lambda: reader.queues(topic) == queues, "the reader sees all queues again")
        after = eventually(lambda: read_again(reader, topic), "the topic is read again")
        assert {message.id for message in after} == sent
        eventually(lambda: sends(producer, topic, b"40"), "the producer sends again")
        assert max(message.offset for message in reader.read_when(topic, 41)) == 5, "behind the others"


def goes_on(consumer: Client, body: bytes) -> bool:
    """Who shared out queues while one broker was back and the other was not does so again, here when told, else by the clock."""
    consumer.do("rebalance")
    return body in bodies(consumer)


def bodies(consumer: Client) -> list[bytes]:
    return [message.body for message in consumer.received()]


def read_again(reader: Client, topic: str) -> list[Message] | None:
    """None while connections are still those of before the restart."""
    try:
        return reader.read(topic)
    except StockError:
        return None


def sends(producer: Client, topic: str, body: bytes) -> bool:
    try:
        return producer.send(topic, body).status == "SEND_OK"
    except StockError:
        return False
