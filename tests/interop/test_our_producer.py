"""Our producer, in every way it can send: what it is told, and what the stock Java consumer then finds, field by field."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.interop.java_program import JAVA_CLIENTS
from tests.interop.servers import eventually, unique
from tests.interop.stock_client import StockError, by_queue, messages_of
from trimtab import Message, MessageQueue, Receipt, Received, Resolution, Sending, Timeouts, blocking
from trimtab.errors import InvalidMessageError, MessageIllegalError, RequestTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.java_program import JavaPrograms
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client
    from tests.interop.stock_client import Message as Found

LONG = Timeouts(send_s=60, request_s=60)
COMPRESSED_FLAGS = 0x701
COMMITTED_FLAG = 0x8
MIB = 1 << 20
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def producing(server: ServerUnderTest, **options: object) -> blocking.Producer:
    return blocking.Producer(unique("group-own"), nameserver=server.nameserver, timeouts=LONG, **options)


@pytest.fixture
def producer(server: ServerUnderTest) -> Iterator[blocking.Producer]:
    with producing(server) as open_producer:
        yield open_producer


def facts(message: Found) -> tuple[object, ...]:
    return message.id, message.offset_id, message.broker, message.queue_id, message.offset


def claims(receipt: Receipt) -> tuple[object, ...]:
    queue = receipt.queue
    return (
        receipt.message_id,
        receipt.offset_message_id,
        queue.broker_name,
        queue.queue_id,
        receipt.queue_offset,
    )


def test_a_message_keeps_every_field(
    server: ServerUnderTest, producer: blocking.Producer, java_reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    properties = {"region": "eu", "über": "Grüße 🚀", "spaced": "a b"}
    message = Message(topic, "büdy".encode(), tag="TagA", keys=["k1", "k2"], properties=properties, flag=-7)

    receipt = producer.send(message)
    (found,) = java_reader.read_when(topic, 1)

    assert receipt.status == "SEND_OK"
    assert facts(found) == claims(receipt)
    assert (found.body, found.flag, found.times, found.sys_flag) == ("büdy".encode(), -7, 0, 0)
    assert properties.items() <= found.properties.items()
    assert (found.properties["TAGS"], found.properties["KEYS"]) == ("TagA", "k1 k2")
    assert found.properties["UNIQ_KEY"] == receipt.message_id
    assert found.stored_ms >= found.born_ms - 1_000


def test_round_robin_visits_every_queue_of_both_brokers(server: ServerUnderTest) -> None:
    topic = server.make_topic()
    with producing(server, sending=Sending(policy="round-robin")) as producer:
        receipts = [producer.send(Message(topic, b"x")) for _ in range(8)]

    assert {(receipt.queue.broker_name, receipt.queue.queue_id) for receipt in receipts} == {
        (broker.name, number) for broker in server.brokers for number in range(4)
    }


@pytest.mark.parametrize("batching", [True, False])
def test_many_at_once_have_their_own_receipts_and_with_batching_keep_their_order_per_queue(
    server: ServerUnderTest, java_reader: Client, batching: bool
) -> None:
    """Without batching many requests for a queue are on their way, and an Apache broker stores them in any order."""
    topic = server.make_topic()
    with producing(server, sending=Sending(batching=batching)) as producer:
        receipts = producer.send_many(
            Message(topic, b"%d" % number, tag=f"t{number % 3}", keys=[f"k{number}"]) for number in range(500)
        )

    found = java_reader.read_when(topic, 500)

    assert sorted(map(facts, found)) == sorted(map(claims, receipts))
    for messages in by_queue(found).values():
        numbers = [int(message.body) for message in messages]
        assert not batching or numbers == sorted(numbers)
        assert [message.properties["KEYS"] for message in messages] == [f"k{number}" for number in numbers]
        assert [message.properties["TAGS"] for message in messages] == [
            f"t{number % 3}" for number in numbers
        ]


def test_an_explicit_batch_lies_together(
    server: ServerUnderTest, producer: blocking.Producer, java_reader: Client
) -> None:
    topic = server.make_topic()
    batch = [
        Message(topic, b"%d" % n, tag="t", keys=[f"k{n}"], properties={"p": str(n)}, flag=n) for n in range(5)
    ]

    receipts = producer.send_batch(batch)
    found = java_reader.read_when(topic, 5)

    assert [facts(message) for message in found] == [claims(receipt) for receipt in receipts]
    assert [message.body for message in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.flag for message in found] == [0, 1, 2, 3, 4]
    assert [message.properties["p"] for message in found] == ["0", "1", "2", "3", "4"]


def test_a_batch_larger_than_a_message_may_be_is_split(
    server: ServerUnderTest, producer: blocking.Producer, java_reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    batch = [Message(topic, bytes(MIB), keys=[str(n)]) for n in range(6)]
    with pytest.raises(InvalidMessageError, match="split=True"):
        producer.send_batch(batch)

    receipts = producer.send_batch(batch, split=True)

    found = java_reader.read_when(topic, 6)
    assert sorted(map(facts, found)) == sorted(map(claims, receipts))
    assert {len(message.body) for message in found} == {MIB}


def test_a_one_way_send_arrives(
    server: ServerUnderTest, producer: blocking.Producer, java_reader: Client
) -> None:
    topic = server.make_topic(queues=1)

    for number in range(6):
        producer.send_oneway(Message(topic, b"%d" % number))

    found = java_reader.read_when(topic, 6)
    assert sorted(message.body for message in found) == [b"%d" % number for number in range(6)]


def test_a_send_to_a_queue_goes_there(server: ServerUnderTest, producer: blocking.Producer) -> None:
    topic = server.make_topic()
    for broker in server.brokers:
        for number in range(4):
            queue = MessageQueue(topic, broker.name, number)
            receipts = [producer.send(Message(topic, b"x"), queue=queue) for _ in range(2)]
            assert [(receipt.queue, receipt.queue_offset) for receipt in receipts] == [(queue, 0), (queue, 1)]


def test_a_key_goes_where_java_s_own_selector_sends_it(
    server: ServerUnderTest, producer: blocking.Producer, java_programs: JavaPrograms
) -> None:
    topic = server.make_topic()
    keys = [f"order-{number}" for number in range(12)] + ["polygenelubricants", "schlüssel", "🚀"]
    with java_programs.running(JAVA_CLIENTS[0]).client("producer", server) as java_producer:
        for key in keys:
            theirs = java_producer.send(topic, b"x", shard=key)
            ours = producer.send(Message(topic, b"x"), key=key)
            assert (ours.queue.broker_name, ours.queue.queue_id) == (theirs.broker, theirs.queue_id), key


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd", "none"])
def test_a_large_body_arrives_whole(
    server: ServerUnderTest, java_programs: JavaPrograms, compression: str
) -> None:
    """What only 5.x clients unpack is read by one of them."""
    topic = server.make_topic(queues=1)
    body = b"all work and no play " * 1_500
    version = JAVA_CLIENTS[0] if compression in ("zlib", "none") else JAVA_CLIENTS[-1]
    with (
        producing(server, sending=Sending(compression=compression)) as producer,
        java_programs.running(version).client("pull", server) as reader,
    ):
        producer.send(Message(topic, body))
        (message,) = reader.read_when(topic, 1)

    assert message.body == body
    assert bool(message.sys_flag & COMPRESSED_FLAGS) == (compression != "none")


def test_a_body_that_the_broker_finds_too_large(server: ServerUnderTest) -> None:
    topic = server.make_topic(queues=1)
    sending = Sending(message_bytes_max=8 * MIB, compression="none")
    with producing(server, sending=sending) as producer:
        with pytest.raises(MessageIllegalError) as refused:
            producer.send(Message(topic, bytes(5 * MIB)))
        assert (refused.value.retriable, refused.value.indeterminate) == (False, False)
        assert producer.send(Message(topic, b"goes on")).status == "SEND_OK"


def test_a_send_makes_its_topic(
    server: ServerUnderTest, producer: blocking.Producer, java_reader: Client
) -> None:
    topic = unique("auto")

    receipts = [producer.send(Message(topic, b"x")) for _ in range(8)]

    route = eventually(lambda: server.route(topic), f"a route of {topic}")
    assert {(data.read_queue_nums, data.write_queue_nums) for data in route.queue_datas} == {(4, 4)}
    assert sorted(map(facts, java_reader.read_when(topic, 8))) == sorted(map(claims, receipts))


def test_a_message_is_found_by_both_ids_and_by_key(
    server: ServerUnderTest, producer: blocking.Producer, java_programs: JavaPrograms
) -> None:
    topic = server.make_topic()
    receipts = producer.send_many(Message(topic, b"%d" % n, keys=[f"odd-{n % 2}", "all"]) for n in range(6))

    with java_programs.running(JAVA_CLIENTS[0]).client("producer", server) as looking:
        for number, receipt in enumerate(receipts):
            for name in (receipt.offset_message_id, receipt.message_id):
                body = eventually(partial(_found_by, looking, topic, name), f"{name} in the index")
                assert body == b"%d" % number
        found = messages_of(looking.do("query", topic=topic, key="odd-1"))
        assert sorted(message.body for message in found) == [b"1", b"3", b"5"]


def _found_by(client: Client, topic: str, name: str) -> bytes | None:
    try:
        return messages_of([client.do("view", topic=topic, id=name)])[0].body
    except StockError:
        return None


def test_a_delayed_message_comes_when_its_level_is_over(
    server: ServerUnderTest, producer: blocking.Producer, java_reader: Client
) -> None:
    topic = server.make_topic(queues=1)

    late = producer.send(Message(topic, b"late", delay_level=1, tag="t"))
    producer.send(Message(topic, b"soon"))
    found = {message.body: message for message in java_reader.read_when(topic, 2)}

    message = found[b"late"]
    assert message.id == late.message_id
    assert message.stored_ms - message.born_ms >= 1_000
    assert message.properties["TAGS"] == "t"


def test_a_message_is_delivered_at_a_time_of_its_own(
    server: ServerUnderTest, producer: blocking.Producer, java_reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    deliver_ms = int(time.time() * 1000) + 2_000

    receipt = producer.send(Message(topic, b"timed", deliver_at_ms=deliver_ms))
    (message,) = java_reader.read_when(topic, 1)

    assert (message.body, message.id) == (b"timed", receipt.message_id)
    if server.speaks_5x:
        assert message.stored_ms >= deliver_ms - 1_000, "rounded down to whole seconds"
    else:
        assert message.properties["TIMER_DELIVER_MS"] == str(deliver_ms), "4.9 delivers at once"


def test_a_committed_transaction_is_seen_and_a_rolled_back_one_is_not(
    server: ServerUnderTest, producer: blocking.Producer, java_reader: Client
) -> None:
    topic = server.make_topic(queues=1)

    dropped = producer.send_in_transaction(Message(topic, b"dropped"), lambda _m, _id: Resolution.ROLLBACK)
    kept = producer.send_in_transaction(Message(topic, b"kept", tag="t"), lambda _m, _id: Resolution.COMMIT)
    (message,) = java_reader.read_when(topic, 1)

    assert (dropped.resolution, kept.resolution) == (Resolution.ROLLBACK, Resolution.COMMIT)
    assert (message.body, message.id) == (b"kept", kept.receipt.message_id)
    assert message.sys_flag & 0xC == COMMITTED_FLAG
    assert (message.properties["PGROUP"], message.properties["TAGS"]) == (producer.group, "t")


def test_an_open_transaction_ends_as_the_check_says(server: ServerUnderTest, java_reader: Client) -> None:
    topic = server.make_topic(queues=1)
    asked: list[tuple[str, bytes]] = []

    def check(message: Received) -> Resolution:
        asked.append((message.topic, message.body))
        return Resolution.COMMIT if message.body == b"kept" else Resolution.ROLLBACK

    with producing(server, check=check) as producer:
        for body in (b"dropped", b"kept"):
            producer.send_in_transaction(Message(topic, body), lambda _m, _id: Resolution.UNKNOWN)
        assert java_reader.read(topic) == []
        (message,) = java_reader.read_when(topic, 1)
        eventually(lambda: len(set(asked)) == 2, "both transactions checked")

        assert message.body == b"kept"
        assert set(asked) == {(topic, b"dropped"), (topic, b"kept")}
        assert [found.body for found in java_reader.read(topic)] == [b"kept"]


def test_a_request_is_answered_by_a_java_consumer(
    server: ServerUnderTest, java_programs: JavaPrograms
) -> None:
    topic = server.make_topic(queues=1)
    java = java_programs.running(JAVA_CLIENTS[0])
    with (
        java.client("producer", server) as replier,
        java.client("push", server, tags={topic: "*"}, replier=replier.name),
        producing(server) as asker,
    ):
        for number in range(3):
            reply = asker.request(Message(topic, b"question %d" % number), timeout_s=60)
            assert reply.body == b"question %d" % number
            assert reply.properties["MSG_TYPE"] == "reply"
            assert reply.properties["REPLY_TO_CLIENT"] == asker.client_id


def test_a_request_that_nobody_answers_times_out(
    server: ServerUnderTest, producer: blocking.Producer
) -> None:
    topic = server.make_topic(queues=1)
    with pytest.raises(RequestTimeoutError, match="does anybody consume"):
        producer.request(Message(topic, b"anybody?"), timeout_s=0.5)


def test_a_traced_send_leaves_the_trace_that_java_leaves(
    server: ServerUnderTest, java_reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    with producing(server, sending=Sending(trace=True)) as producer:
        receipt = producer.send(Message(topic, b"traced", tag="t", keys=["k"]))
    mine = receipt.message_id.encode()

    trace = eventually(
        lambda: next((m for m in java_reader.read(TRACE_TOPIC) if mine in m.body), None),
        "a trace of the message",
    )

    fields = trace.body.split(b"\x02")[0].decode().split("\x01")
    addresses = {broker.name: broker.address for broker in server.brokers}
    assert fields[0] == "Pub"
    assert fields[2:10] == [
        "DefaultRegion", producer.group, topic, receipt.message_id, "t", "k", addresses[receipt.queue.broker_name], "6",
    ]  # fmt: skip
    assert fields[11:] == ["0", receipt.offset_message_id, "true"]
    assert {receipt.message_id, "k"} == set(trace.properties["KEYS"].split(" "))


def test_a_namespace_is_part_of_the_names_on_the_wire(server: ServerUnderTest, java_reader: Client) -> None:
    topic = unique("spaced")
    with producing(server, namespace="prod") as producer:
        receipt = producer.send(Message(topic, b"x"))

    (found,) = java_reader.read_when(f"prod%{topic}", 1)

    assert (found.body, found.id, found.properties["INSTANCE_ID"]) == (b"x", receipt.message_id, "prod")
    assert receipt.queue.topic == topic
