"""The stock Java producer, in every way it can send: what it is told, and what is then in the topic."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.interop.servers import eventually, unique
from tests.interop.stock_client import StockError, by_queue, encoded, messages_of, plain
from trimtab.wire.codes import ResponseCode
from trimtab.wire.ids import decode_offset_message_id

if TYPE_CHECKING:
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client, Message, Program

COMPRESSED_FLAGS = 0x701  # 5.x takes the first bit away when it unpacks, and leaves how it was packed
NOISE_SHA256 = "83f64e5cd4545f907b81e039cdd8cce2d9f47606e335f377255de252494ae3bb"
COMMITTED_FLAG = 0x8
MIB = 1 << 20
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


def test_a_send_visits_every_queue_of_both_brokers(server: ServerUnderTest, producer: Client) -> None:
    topic = server.make_topic()

    receipts = producer.send_all(topic, [b"x"] * 8)

    assert {(receipt.broker, receipt.queue_id) for receipt in receipts} == {
        (broker.name, number) for broker in server.brokers for number in range(4)
    }
    assert {(receipt.status, receipt.offset) for receipt in receipts} == {("SEND_OK", 0)}
    assert {receipt.region for receipt in receipts} == {"DefaultRegion"}


def test_a_receipt_names_the_message(server: ServerUnderTest, producer: Client, reader: Client) -> None:
    topic = server.make_topic(queues=1)
    addresses = {broker.name: broker.address for broker in server.brokers}

    receipts = producer.send_all(topic, [b"%d" % number for number in range(10)])
    stored = {message.id: message for message in reader.read_when(topic, 10)}

    assert len(stored) == 10
    for number, receipt in enumerate(receipts):
        assert receipt.id is not None
        assert receipt.offset_id is not None
        message = stored[receipt.id]
        assert (message.body, message.offset, message.queue_id) == (b"%d" % number, receipt.offset, 0)
        assert message.offset_id == receipt.offset_id
        assert decode_offset_message_id(receipt.offset_id).address == addresses[receipt.broker]
    for messages in by_queue(list(stored.values())).values():
        assert [message.offset for message in messages] == list(range(5))


def test_a_message_keeps_tag_keys_properties_and_flag(
    server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    properties = {"region": "eu", "über": "Grüße 🚀", "spaced": "a b"}

    receipt = producer.send(topic, "büdy".encode(), tag="TagA", key="k1 k2", properties=properties, flag=7)
    (message,) = reader.read_when(topic, 1)

    assert message.body == "büdy".encode()
    assert message.flag == 7
    assert properties.items() <= message.properties.items()
    assert (message.properties["TAGS"], message.properties["KEYS"]) == ("TagA", "k1 k2")
    assert message.properties["UNIQ_KEY"] == receipt.id
    assert message.properties["CLUSTER"] == "DefaultCluster"
    assert message.times == 0
    assert message.stored_ms >= message.born_ms - 1_000


def test_an_async_send_calls_back(server: ServerUnderTest, producer: Client, reader: Client) -> None:
    topic = server.make_topic(queues=1)

    receipts = [producer.send(topic, b"%d" % number, **{"async": True}) for number in range(6)]

    assert {receipt.status for receipt in receipts} == {"SEND_OK"}
    assert sorted(bodies(reader.read_when(topic, 6))) == [b"%d" % number for number in range(6)]


def test_a_one_way_send_arrives(server: ServerUnderTest, producer: Client, reader: Client) -> None:
    topic = server.make_topic(queues=1)

    for number in range(6):
        producer.do("oneway", topic=topic, body=encoded(b"%d" % number))

    assert sorted(bodies(reader.read_when(topic, 6))) == [b"%d" % number for number in range(6)]


def test_a_batch_lies_together_as_single_messages(
    java: Program, server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic()
    batch = [
        {"topic": topic, "body": encoded(b"%d" % number), "tag": "t", "key": f"k{number}"}
        for number in range(5)
    ]

    receipt = producer.do("batch", messages=batch)
    messages = reader.read_when(topic, 5)

    assert bodies(messages) == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.offset for message in messages] == [0, 1, 2, 3, 4]
    assert {(message.broker, message.queue_id) for message in messages} == {
        (receipt["broker"], receipt["queue_id"])
    }
    assert receipt["offset"] == 0
    if java.version == "4.9.3":  # 5.5.0 gives the batch an id too, and brokers put that on every message
        assert [message.id for message in messages] == receipt["id"].split(",")
    assert [message.offset_id for message in messages] == receipt["offset_id"].split(",")
    assert [message.properties["KEYS"] for message in messages] == ["k0", "k1", "k2", "k3", "k4"]


def test_a_send_to_a_queue_goes_there(server: ServerUnderTest, producer: Client) -> None:
    topic = server.make_topic()
    queues = sorted(producer.queues(topic))
    assert len(queues) == 8

    for queue in queues:
        receipts = [producer.send(topic, b"x", queue=plain(queue)) for _ in range(2)]
        assert [(receipt.broker, receipt.queue_id, receipt.offset) for receipt in receipts] == [
            (queue.broker, queue.id, 0),
            (queue.broker, queue.id, 1),
        ]


def test_one_shard_stays_in_one_queue_and_in_order(
    server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic()

    for number in range(12):
        producer.send(topic, b"%d" % number, shard=f"order-{number % 3}", properties={"s": str(number % 3)})

    for shard in "012":
        mine = [message for message in reader.read_when(topic, 12) if message.properties["s"] == shard]
        assert len(by_queue(mine)) == 1
        assert [int(message.body) % 3 for message in mine] == [int(shard)] * 4
        assert bodies(mine) == sorted(bodies(mine), key=int)


def test_a_large_body_travels_compressed(server: ServerUnderTest, producer: Client, reader: Client) -> None:
    topic = server.make_topic(queues=1)
    body = b"all work and no play " * 1_500

    producer.send(topic, body)
    (message,) = reader.read_when(topic, 1)

    assert message.body == body
    assert message.sys_flag & COMPRESSED_FLAGS


def test_a_body_of_three_mib_that_nothing_makes_smaller(
    server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic(queues=1)

    receipt = producer.do("send", topic=topic, noise_bytes=3 * MIB)
    (message,) = reader.read_when(topic, 1)

    assert receipt["status"] == "SEND_OK"
    assert len(message.body) == 3 * MIB
    assert hashlib.sha256(message.body).hexdigest() == NOISE_SHA256


def test_a_body_over_four_mib_is_refused(java: Program, server: ServerUnderTest) -> None:
    topic = server.make_topic(queues=1)
    with java.client("producer", server, bytes_max=8 * MIB) as producer:
        with pytest.raises(StockError) as refused:
            producer.do("send", topic=topic, noise_bytes=5 * MIB)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert producer.send(topic, b"goes on").status == "SEND_OK"


def test_a_send_makes_its_topic(server: ServerUnderTest, producer: Client, reader: Client) -> None:
    topic = unique("auto")

    receipts = producer.send_all(topic, [b"x"] * 16)

    assert {receipt.status for receipt in receipts} == {"SEND_OK"}
    route = eventually(lambda: server.route(topic), f"a route of {topic}")
    assert {(data.read_queue_nums, data.write_queue_nums, data.perm) for data in route.queue_datas} == {
        (4, 4, 6)
    }
    assert len(reader.read_when(topic, 16)) == 16


def test_a_message_is_found_by_both_ids_and_by_key(server: ServerUnderTest, producer: Client) -> None:
    topic = server.make_topic()
    receipts = [producer.send(topic, b"%d" % number, key=f"odd-{number % 2} all") for number in range(6)]

    for number, receipt in enumerate(receipts):
        for name in (receipt.offset_id, receipt.id):
            found = eventually(partial(found_by, producer, topic, name), f"{name} in the index")
            assert found == b"%d" % number
    found_by_key = messages_of(producer.do("query", topic=topic, key="odd-1"))
    assert sorted(bodies(found_by_key)) == [b"1", b"3", b"5"]


def found_by(producer: Client, topic: str, name: str | None) -> bytes | None:
    try:
        return messages_of([producer.do("view", topic=topic, id=name)])[0].body
    except StockError:
        return None


def test_a_queue_tells_its_bounds_and_offsets_by_time(
    server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    queue = producer.queues(topic)[0]
    for number in range(3):
        producer.send(topic, b"%d" % number, queue=plain(queue))
        time.sleep(0.05)  # each is stored in a millisecond of its own
    stored = [message for message in reader.read_when(topic, 3) if message.broker == queue.broker]

    bounds = producer.do("bounds", queue=plain(queue), at_ms=stored[1].stored_ms)

    assert (bounds["first"], bounds["end"], bounds["at"]) == (0, 3, 1)
    assert bounds["earliest_ms"] == stored[0].stored_ms


def test_a_delayed_message_comes_when_its_level_is_over(
    server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic(queues=1)

    late = producer.send(topic, b"late", delay_level=1, tag="t")
    assert reader.read(topic) == []
    producer.send(topic, b"soon")
    messages = {message.body: message for message in reader.read_when(topic, 2)}

    assert set(messages) == {b"late", b"soon"}
    message = messages[b"late"]
    assert message.id == late.id
    assert message.stored_ms - message.born_ms >= 1_000
    assert message.offset_id != late.offset_id
    assert (message.properties["TAGS"], message.properties["REAL_TOPIC"]) == ("t", topic)


def test_a_message_is_delivered_at_a_time_of_its_own(
    server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    if not server.speaks_5x:
        pytest.skip(f"{server.version} has no timer messages")
    topic = server.make_topic(queues=1)
    deliver_ms = int(time.time() * 1000) + 2_000

    producer.send(topic, b"timed", deliver_ms=deliver_ms)
    assert reader.read(topic) == []
    (message,) = reader.read_when(topic, 1)

    assert message.body == b"timed"
    assert message.stored_ms >= deliver_ms - 1_000, "rounded down to whole seconds"


def test_a_committed_transaction_is_seen_and_a_rolled_back_one_is_not(
    java: Program, server: ServerUnderTest, reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    with java.client("producer", server, transactional=True) as producer:
        dropped = producer.transact(topic, b"dropped", "ROLLBACK_MESSAGE")
        kept = producer.transact(topic, b"kept", "COMMIT_MESSAGE")

        (message,) = reader.read_when(topic, 1)

        assert (kept.status, kept.state) == ("SEND_OK", "COMMIT_MESSAGE")
        assert (dropped.status, dropped.state) == ("SEND_OK", "ROLLBACK_MESSAGE")
        assert (message.body, message.id) == (b"kept", kept.id)
        assert message.sys_flag & 0xC == COMMITTED_FLAG
        assert message.properties["PGROUP"] == producer.group
        executed = producer.events("executed")
        assert [event["transaction_id"] for event in executed] == [dropped.id, kept.id]


def test_an_open_transaction_ends_as_the_producer_says_when_asked(
    java: Program, server: ServerUnderTest, reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    with java.client("producer", server, transactional=True) as producer:
        dropped = producer.transact(topic, b"dropped", "UNKNOW", "ROLLBACK_MESSAGE")
        kept = producer.transact(topic, b"kept", "UNKNOW", "COMMIT_MESSAGE")
        assert reader.read(topic) == []

        (message,) = reader.read_when(topic, 1)
        eventually(lambda: len(producer.events("checked")) >= 2, "both transactions checked")

        assert (message.body, message.id) == (b"kept", kept.id)
        checked = producer.events("checked")
        assert {event["transaction_id"] for event in checked} == {dropped.id, kept.id}
        assert {event["topic"] for event in checked} == {topic}
        assert {event["properties"]["TRANSACTION_CHECK_TIMES"] for event in checked} >= {"1"}
        assert bodies(reader.read(topic)) == [b"kept"]


def test_a_request_is_answered_by_a_reply(java: Program, server: ServerUnderTest, producer: Client) -> None:
    topic = server.make_topic(queues=1)
    with (
        java.client("producer", server) as replier,
        java.client("push", server, tags={topic: "*"}, replier=replier.name),
        java.client("producer", server) as asker,
    ):
        for number in range(3):
            reply = asker.do("request", topic=topic, body=encoded(b"question %d" % number), key="k")
            assert reply["body"] == encoded(b"question %d" % number)
            assert reply["properties"]["MSG_TYPE"] == "reply"
            assert reply["properties"]["REPLY_TO_CLIENT"] == asker.id


def test_a_request_that_nobody_answers_times_out(server: ServerUnderTest, producer: Client) -> None:
    topic = server.make_topic(queues=1)

    with pytest.raises(StockError, match="RequestTimeoutException"):
        producer.do("request", topic=topic, body=encoded(b"anybody?"), timeout_ms=500)


def test_a_traced_send_leaves_a_trace(java: Program, server: ServerUnderTest, reader: Client) -> None:
    topic = server.make_topic(queues=1)
    with java.client("producer", server, traced=True) as producer:
        receipt = producer.send(topic, b"traced", key="k")
        assert receipt.id is not None
        mine = receipt.id.encode()
        trace = eventually(
            lambda: next((body for body in bodies(reader.read(TRACE_TOPIC)) if mine in body), None),
            "a trace of the message",
        )
        fields = trace.split(b"\x01")
        assert (fields[0], fields[3], fields[4], fields[5]) == (
            b"Pub",
            producer.group.encode(),
            topic.encode(),
            mine,
        )
