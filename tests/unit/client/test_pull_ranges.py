"""Parts of queues, read once; a received message by itself; the consumer without await."""

import pytest

from tests.unit.client.pull_scenes import ONE, play, send_to_one, session_of
from trimtab import Message, MessageQueue, blocking
from trimtab.client.pulls import Wanted
from trimtab.client.ranges import read_columns, read_range
from trimtab.client.received import Received
from trimtab.errors import NoPermissionError, RangeGoneError, RangeUnreachableError
from trimtab.settings import Pulling
from trimtab.testing import AsyncCluster, Cluster
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.messages import Storable, decode_messages, encode_stored

SOON = Pulling(pull_messages_max=32, retry_s_min=0.01, suspend_ms=100, timeout_s=20)


def test_a_range_is_exactly_what_was_asked_for() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 1_000, tag=lambda number: "ab"[number % 2])
        async with session_of(cluster) as session:
            for start, end in ((0, 1_000), (17, 33), (500, 500), (999, 1_000)):
                found = [
                    m
                    async for p in read_range(session, "g", ONE, start, end, pulling=SOON)
                    for m in p.messages
                ]
                assert [message.queue_offset for message in found] == list(range(start, end))
            offsets = []
            async for batch in read_columns(
                session,
                "g",
                ONE,
                3,
                900,
                Wanted("a"),
                columns=["queue_offset"],
                batch_messages=100,
                pulling=SOON,
            ):
                offsets += batch.column(0).to_pylist()
            assert offsets == [o for o in range(3, 900) if o in set(offsets)]
            assert 440 <= len(offsets) <= 460

    play(scenario)


def test_a_range_that_retention_has_taken_is_an_error_with_its_offsets() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)

        def gone(command: Command) -> Command:
            ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "5", "maxOffset": "10"}
            return Command(
                code=ResponseCode.PULL_OFFSET_MOVED, opaque=command.opaque, flag=RESPONSE_FLAG, ext=ext
            )

        remove = cluster.intercept(RequestCode.PULL_MESSAGE, gone)
        async with session_of(cluster) as session:
            with pytest.raises(
                RangeGoneError, match="offset 2 is not there, the broker has 5 to 10"
            ) as raised:
                await anext(read_range(session, "g", ONE, 2, 8, pulling=SOON))
        remove()
        assert (raised.value.asked, raised.value.min_offset, raised.value.max_offset) == (2, 5, 10)

    play(scenario)


def test_a_range_that_does_not_come_ends_in_time_and_says_how_far_it_came() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)
        async with session_of(cluster) as session:
            found: list[Received] = []

            async def read() -> None:
                async for pulled in read_range(session, "g", ONE, 0, 1_000, pulling=SOON, stall_s_max=1):
                    found.extend(pulled.messages)

            with pytest.raises(RangeUnreachableError, match="nothing came for 1 s at offset") as raised:
                await read()
        assert raised.value.next_offset == len(found)
        assert raised.value.retriable

    play(scenario)


def test_a_refusal_ends_a_range_at_once() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        await send_to_one(cluster, 10)

        def refuse(command: Command) -> Command:
            return Command(code=ResponseCode.NO_PERMISSION, opaque=command.opaque, flag=RESPONSE_FLAG)

        remove = cluster.intercept(RequestCode.PULL_MESSAGE, refuse)
        async with session_of(cluster) as session:
            with pytest.raises(NoPermissionError):
                await anext(read_range(session, "g", ONE, 0, 8, pulling=SOON))
        remove()

    play(scenario)


def received(queue: MessageQueue, properties: bytes, body: bytes = b"hello") -> Received:
    message = Storable(
        topic=queue.topic.encode(), body=body, properties=properties, queue_id=3, born_timestamp=5,
        born_host=b"\x7f\x00\x00\x01\x00\x00\x00\x01",
    )  # fmt: skip
    stored = encode_stored(message, 42, 99, 7, b"\x7f\x00\x00\x01\x00\x00\x00\x01")
    return Received(queue, decode_messages(b"".join([stored, stored]))[1])


def test_a_received_message_shows_itself_and_can_be_kept_for_long() -> None:
    message = received(MessageQueue("orders", "broker-a", 3), b"KEYS\x01a b\x02TAGS\x01eu\x02")
    assert repr(message).startswith("<Received orders@broker-a:3 offset=42 id=7F000001")
    kept = message.detach()
    assert (kept.body, kept.tag, kept.keys, kept.queue_offset) == (b"hello", "eu", ("a", "b"), 42)
    assert len(bytes(kept.stored._buffer)) * 2 == len(bytes(message.stored._buffer))
    assert kept.message_id == kept.offset_message_id


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("orders", b"", "orders"),
        ("%RETRY%billing", b"RETRY_TOPIC\x01orders\x02", "orders"),
        ("%RETRY%billing", b"", "%RETRY%billing"),
        ("prod%orders", b"INSTANCE_ID\x01prod\x02", "orders"),
        ("%RETRY%prod%billing", b"RETRY_TOPIC\x01prod%orders\x02INSTANCE_ID\x01prod\x02", "orders"),
    ],
)
def test_the_topic_is_the_one_it_was_sent_to(topic: str, properties: bytes, expected: str) -> None:
    assert received(MessageQueue(topic, "broker-a", 0), properties).topic == expected


def test_without_await_it_is_the_same() -> None:
    with Cluster() as cluster:
        with blocking.Producer("p", nameserver=cluster.nameserver) as producer:
            receipts = [producer.send(Message("orders", b"%d" % number)) for number in range(20)]
        queues = {receipt.queue for receipt in receipts}
        with blocking.PullConsumer("g", nameserver=cluster.nameserver, start="first") as consumer:
            consumer.assign(queues)
            assert set(consumer.assigned) == queues
            found = [next(consumer) for _ in range(10)]
            while len(found) < 20:
                found += consumer.poll(1)
            assert {message.body for message in found} == {b"%d" % number for number in range(20)}
            queue = next(iter(queues))
            rows = [
                row for batch in consumer.pull_columns(queue, columns=["body"]) for row in batch.to_pylist()
            ]
            assert len(rows) == consumer.position(queue)
        with pytest.raises(ZeroDivisionError):
            _fail_in_the_middle(cluster.nameserver, queue)
        with blocking.PullConsumer("g2", nameserver=cluster.nameserver) as consumer:
            assert consumer.committed(queue) == 0, "the message was not done"


def _fail_in_the_middle(nameserver: str, queue: MessageQueue) -> None:
    with blocking.PullConsumer("g2", nameserver=nameserver, start="first") as consumer:
        consumer.assign([queue])
        assert next(consumer).queue_offset == 0
        raise ZeroDivisionError
