"""A producer against a real cluster of ours: where messages go, what receipts say, what failures say."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from trimtab.client.producer import Producer
from trimtab.errors import (
    ClosedError,
    InvalidMessageError,
    NoPermissionError,
    NoRouteError,
    RequestTimeoutError,
    SettingsError,
    TrimtabError,
)
from trimtab.io.connection import PeerConnection
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.settings import Sending, Timeouts
from trimtab.testing import DROP, AsyncCluster, Cluster
from trimtab.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.consume import PullMessage
from trimtab.wire.hot import encode_pull_request
from trimtab.wire.messages import StoredMessage, decode_messages

Scenario = Callable[[AsyncCluster], Awaitable[None]]


def play(scenario: Scenario, brokers: int = 2) -> None:
    async def run() -> None:
        async with Cluster(brokers=brokers) as cluster:
            await scenario(cluster)

    asyncio.run(run())


async def stored(cluster: AsyncCluster, queue: MessageQueue) -> list[StoredMessage]:
    """Everything in a queue, read with raw wire values."""
    connection = await PeerConnection.open(cluster.brokers[queue.broker_name])
    messages: list[StoredMessage] = []
    while True:
        header = PullMessage(
            consumer_group="TOOLS_CONSUMER", topic=queue.topic, queue_id=queue.queue_id, queue_offset=len(messages),
            max_msg_nums=1_000, sys_flag=4, commit_offset=0, suspend_timeout_millis=0, sub_version=0, subscription="*",
            max_msg_bytes=1 << 20,
        )  # fmt: skip
        opaque = connection.next_opaque()
        answer = await asyncio.wait_for(
            connection.ask_soon(opaque, encode_pull_request(header, opaque=opaque)), 30
        )
        if answer.code != ResponseCode.SUCCESS:
            connection.close()
            return messages
        messages += decode_messages(answer.body)


def test_what_is_sent_is_stored_and_the_receipt_says_where() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            message = Message(
                "orders", b"hello", tag="eu", keys=["o-1", "o-2"], properties={"p": "v"}, flag=5
            )
            receipt = await producer.send(message)
        assert receipt.status == "SEND_OK"
        (found,) = await stored(cluster, receipt.queue)
        assert (found.body, found.tag, found.keys, found.flag) == (b"hello", "eu", ("o-1", "o-2"), 5)
        assert found.properties["p"] == "v"
        assert (found.message_id, found.offset_message_id) == (receipt.message_id, receipt.offset_message_id)
        assert found.queue_offset == receipt.queue_offset == 0

    play(scenario)


@pytest.mark.parametrize("batching", [True, False])
def test_every_message_of_many_has_its_own_receipt_and_order_per_queue_is_kept(batching: bool) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        sending, patient = Sending(batching=batching), Timeouts(send_s=60)
        async with Producer(
            "pg", nameserver=cluster.nameserver, sending=sending, timeouts=patient
        ) as producer:
            receipts = await producer.send_many(Message("orders", b"%d" % number) for number in range(2_000))
        assert len({receipt.message_id for receipt in receipts}) == 2_000
        by_queue: dict[MessageQueue, list[tuple[int, bytes, Receipt]]] = {}
        for number, receipt in enumerate(receipts):
            by_queue.setdefault(receipt.queue, []).append((receipt.queue_offset, b"%d" % number, receipt))
        assert len(by_queue) == 8
        for queue, expected in by_queue.items():
            found = await stored(cluster, queue)
            assert [(message.queue_offset, message.body) for message in found] == [
                (o, b) for o, b, _ in expected
            ]
            assert [m.offset_message_id for m in found] == [r.offset_message_id for _, _, r in expected]

    play(scenario)


def test_equal_brokers_get_equal_shares() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver, timeouts=Timeouts(send_s=60)) as producer:
            receipts = await producer.send_many(Message("orders", b"x") for _ in range(800))
        share = Counter(receipt.queue for receipt in receipts)
        assert set(share.values()) == {100}

    play(scenario)


def test_a2_when_a_broker_dies_no_send_fails() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            await producer.send_many(Message("orders", b"x") for _ in range(16))
            await cluster.kill("broker-a")
            receipts = await producer.send_many(Message("orders", b"y") for _ in range(200))
            assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}
            assert {receipt.attempts for receipt in receipts} <= {1, 2}
            assert producer.brokers()[0].broker_name == "broker-b"

    play(scenario)


def test_known_routes_go_on_without_name_servers() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("orders", b"x"))
            await cluster.kill("nameserver")
            receipts = await producer.send_many(Message("orders", b"y") for _ in range(50))
            assert len(receipts) == 50
            with pytest.raises(NoRouteError, match="no name server answered"):
                await producer.send(Message("other", b"x"))

    play(scenario)


def test_a_given_queue_is_the_only_one_tried() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            queue = (await producer.send(Message("orders", b"x"))).queue
            receipts = [await producer.send(Message("orders", b"y"), queue=queue) for _ in range(5)]
            assert {receipt.queue for receipt in receipts} == {queue}
            await cluster.kill(queue.broker_name)
            with pytest.raises(TrimtabError):
                await producer.send(Message("orders", b"z"), queue=queue)

    play(scenario)


def test_a_large_body_travels_compressed_and_comes_back_whole() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        for compression in ("zlib", "lz4", "zstd", "none"):
            sending = Sending(compression=compression)
            async with Producer("pg", nameserver=cluster.nameserver, sending=sending) as producer:
                receipt = await producer.send(Message(f"large-{compression}", b"abc" * 10_000))
            (found,) = await stored(cluster, receipt.queue)
            assert found.body == b"abc" * 10_000
            assert (len(found.stored_body) < 1_000) == (compression != "none")

    play(scenario, brokers=1)


def test_a_one_way_message_is_stored_without_a_receipt() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            queue = (await producer.send(Message("orders", b"first"))).queue
            for _ in range(8):
                await producer.send_oneway(Message("orders", b"unheard"))
            last = await producer.send(Message("orders", b"last"), queue=queue)
        bodies = [message.body for message in await stored(cluster, last.queue)]
        assert b"unheard" in bodies

    play(scenario, brokers=1)


def test_a_broker_that_never_answers_ends_in_an_indeterminate_time_out() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver, timeouts=Timeouts(send_s=0.3)) as producer:
            await producer.send(Message("orders", b"x"))
            cluster.intercept(RequestCode.SEND_MESSAGE_V2, lambda _command: DROP)
            with pytest.raises(RequestTimeoutError) as caught:
                await producer.send(Message("orders", b"y"))
        assert caught.value.retriable
        assert caught.value.indeterminate

    play(scenario, brokers=1)


def test_a_refusal_is_tried_on_another_broker_and_then_raised() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        asked = []

        def refuse(command: Command) -> Command:
            asked.append(command.opaque)
            return Command(
                code=ResponseCode.NO_PERMISSION, opaque=command.opaque, flag=RESPONSE_FLAG, remark="not today"
            )

        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("orders", b"x"))
            cluster.intercept(RequestCode.SEND_MESSAGE_V2, refuse)
            with pytest.raises(NoPermissionError, match="not today"):
                await producer.send(Message("orders", b"y"))
        assert len(asked) == 3

    play(scenario)


def test_mistakes_are_found_before_anything_is_sent() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            for message in (Message("a b", b"x"), Message("t", b""), Message("t", b"x", tag="\x01")):
                with pytest.raises(InvalidMessageError):
                    await producer.send(message)
        with pytest.raises(ClosedError):
            await producer.send(Message("t", b"x"))

    play(scenario, brokers=1)


def test_without_a_name_server_the_error_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(SettingsError, match="NAMESRV_ADDR"):
        Producer("pg")
    with pytest.raises(SettingsError, match="policy"):
        Sending(policy="best")


@pytest.mark.parametrize("policy", ["adaptive", "round-robin", "classic-4.2", "4.9.3"])
def test_every_policy_sends(policy: str) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with Producer("pg", nameserver=cluster.nameserver, sending=Sending(policy=policy)) as producer:
            receipts = await producer.send_many(Message("orders", b"x") for _ in range(80))
        assert len({receipt.queue for receipt in receipts}) == 8

    play(scenario)


def test_closing_leaves_no_task() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        before = asyncio.all_tasks()
        async with Producer("pg", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("orders", b"x"))
        assert asyncio.all_tasks() <= before | {asyncio.current_task()}

    play(scenario)
