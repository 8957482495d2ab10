"""Every kind of send against brokers of ours: keys, selectors, batches, delays, transactions, requests, namespaces, traces, ACL, TLS."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.security.accounts import ORDERS, STRANGER, WRITER, sample_acl
from tests.security.certificates import identity
from tests.security.live import running
from tests.unit.client.test_producer import stored
from trimtab import Credentials, Message, MessageQueue, Received, Resolution
from trimtab.broker.server import BrokerPlan
from trimtab.broker.settings import BrokerSettings
from trimtab.client.producer import Producer
from trimtab.client.producer_packing import cuts
from trimtab.client.selectors import index_by
from trimtab.errors import InvalidMessageError, NoPermissionError, RequestTimeoutError, TrimtabError
from trimtab.io.tls import client_context, server_context
from trimtab.io.whereabouts import TOLD, Whereabouts
from trimtab.settings import Sending, Timeouts
from trimtab.testing import AsyncCluster, Cluster
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command
from trimtab.wire.ids import decode_unique_id
from trimtab.wire.messages import StoredMessage

LONG = Timeouts(send_s=60, request_s=60)
QUICK_CHECKS = BrokerSettings(transaction_timeout_ms=1, transaction_check_interval_ms=50)


def play(
    scenario: Callable[[AsyncCluster], Awaitable[None]],
    brokers: int = 1,
    settings: BrokerSettings | None = None,
) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), Cluster(brokers=brokers, settings=settings) as cluster:
            await scenario(cluster)

    asyncio.run(run())


def sends(cluster: AsyncCluster, **options: object) -> Producer:
    return Producer("pg", nameserver=cluster.nameserver, timeouts=LONG, **options)  # type: ignore[arg-type]


async def all_stored(cluster: AsyncCluster, topic: str, queues: int = 4) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    for broker in cluster.brokers:
        for number in range(queues):
            found += await stored(cluster, MessageQueue(topic, broker, number))
    return found


async def some_stored(cluster: AsyncCluster, topic: str, count: int = 1) -> list[StoredMessage]:
    while True:
        found = await all_stored(cluster, topic)
        if len(found) >= count:
            return found
        await asyncio.sleep(0.01)


# --- where a message goes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["java", "fnv1a", "siphash"])
def test_a_key_goes_to_the_queue_of_its_hash(selector: str) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster, sending=Sending(selector=selector)) as producer:
            for number in range(20):
                key = f"order-{number}"
                receipt = await producer.send(Message("orders", b"x"), key=key)
                at = index_by(selector, key, 8)
                assert (receipt.queue.broker_name, receipt.queue.queue_id) == (
                    ("broker-a", "broker-b")[at // 4],
                    at % 4,
                )
                assert receipt.chosen == f"key {key!r} by {selector}"
            again = await producer.send(Message("orders", b"x"), key="k", selector="java")
            (found, *_) = [m for m in await stored(cluster, again.queue) if m.unique_id == again.message_id]
            assert found.properties["__SHARDINGKEY"] == "k"

    play(scenario, brokers=2)


def test_a_message_that_nobody_answers_for_goes_where_it_is_told_to() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster) as producer:
            await producer.send_oneway(Message("orders", b"by key"), key="order-7")
            await producer.send_oneway(
                Message("orders", b"by selector"),
                selector=lambda queues, _message, at: queues[int(str(at))],
                arg=6,
            )
            with pytest.raises(InvalidMessageError, match="needs a key"):
                await producer.send_oneway(Message("orders", b"x"), selector="java")
            receipt = await producer.send(Message("orders", b"x"), key="order-7")
            found = {message.body: message for message in await some_stored(cluster, "orders", 3)}
        assert found[b"by key"].queue_id == receipt.queue.queue_id
        assert found[b"by key"].store_host == found[b"x"].store_host
        assert found[b"by key"].properties["__SHARDINGKEY"] == "order-7"
        assert found[b"by selector"].queue_id == 2

    play(scenario, brokers=2)


def test_a_selector_of_the_user_s_own() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        def select(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
            assert message.body == b"x"
            return queues[int(str(arg))]

        async with sends(cluster) as producer:
            receipts = [
                await producer.send(Message("orders", b"x"), selector=select, arg=number)
                for number in range(4)
            ]
            assert [receipt.queue.queue_id for receipt in receipts] == [0, 1, 2, 3]
            assert receipts[0].chosen == "by the selector given"
            by_key = await producer.send(Message("orders", b"x"), selector=select, key="3")
            assert by_key.queue.queue_id == 3

    play(scenario)


def test_places_that_contradict_each_other_are_refused() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        queue = MessageQueue("orders", "broker-a", 0)
        async with sends(cluster) as producer:
            for wrong in ({"queue": queue, "key": "k"}, {"selector": "java"}, {"key": ""}, {"key": "a\x02"}):
                with pytest.raises(InvalidMessageError):
                    await producer.send(Message("orders", b"x"), **wrong)
            with pytest.raises(InvalidMessageError, match="not of the message's topic"):
                await producer.send(Message("other", b"x"), queue=queue)

    play(scenario)


# --- batches --------------------------------------------------------------------------------------------------------


def test_an_explicit_batch_lies_together_with_a_receipt_for_each() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster) as producer:
            messages = [
                Message("orders", b"%d" % n, tag="t", keys=[f"k{n}"], properties={"p": str(n)}, flag=n)
                for n in range(50)
            ]
            receipts = await producer.send_batch(messages)
        assert len({receipt.queue for receipt in receipts}) == 1
        found = await stored(cluster, receipts[0].queue)
        assert [m.unique_id for m in found] == [receipt.message_id for receipt in receipts]
        assert [m.offset_message_id for m in found] == [receipt.offset_message_id for receipt in receipts]
        assert [m.queue_offset for m in found] == [receipt.queue_offset for receipt in receipts]
        assert [(m.body, m.tag, m.keys, m.properties["p"], m.flag) for m in found] == [
            (b"%d" % n, "t", (f"k{n}",), str(n), n) for n in range(50)
        ]

    play(scenario, brokers=2)


def test_ids_say_in_which_process_a_producer_was_started_wherever_it_was_made() -> None:
    async def scenario() -> None:
        async with Cluster(brokers=1) as cluster:
            TOLD.set(Whereabouts("192.0.2.1", 1))
            producer = Producer("pg", nameserver=cluster.nameserver, timeouts=LONG)
            TOLD.set(Whereabouts("192.0.2.1", 2))  # as after a fork
            async with producer:
                receipt = await producer.send(Message("T", b"x"))
            assert decode_unique_id(receipt.message_id).pid == 2

    asyncio.run(scenario())


def test_a_batch_of_very_many_messages_is_stored_once_and_has_a_receipt_for_each() -> None:
    async def scenario() -> None:
        async with (
            Cluster(brokers=1) as cluster,
            Producer("pg", nameserver=cluster.nameserver, timeouts=LONG) as producer,
        ):
            receipts = await producer.send_batch(Message("T", b"x") for _ in range(10_000))
            assert [receipt.queue_offset for receipt in receipts] == list(range(10_000))
            assert len({receipt.offset_message_id for receipt in receipts}) == 10_000

    asyncio.run(scenario())


def test_a_batch_that_is_too_large_is_refused_or_split() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster, sending=Sending(message_bytes_max=10_000)) as producer:
            messages = [Message("orders", bytes(1_000)) for _ in range(30)]
            with pytest.raises(InvalidMessageError, match="split=True"):
                await producer.send_batch(messages)
            receipts = await producer.send_batch(messages, split=True, key="k")
        assert len(receipts) == len({receipt.message_id for receipt in receipts}) == 30
        assert [receipt.queue_offset for receipt in receipts] == list(range(30))

    play(scenario)


@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        ([], "at least one"),
        ([Message("a", b"x"), Message("b", b"x")], "one topic"),
        ([Message("a", b"x", delay_level=1)], "delayed"),
        ([Message("a", b"x", deliver_at_ms=1)], "delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("a", b"x"), Message("a", b"")], "no body"),
    ],
)
def test_what_cannot_be_a_batch_names_the_rule(messages: list[Message], rule: str) -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster) as producer:
            with pytest.raises(InvalidMessageError, match=rule):
                await producer.send_batch(messages)

    play(scenario)


def test_cuts() -> None:
    assert cuts([3, 3, 3, 9, 1], 6) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert cuts([], 6) == []


# --- delays ---------------------------------------------------------------------------------------------------------


def test_a_delay_level_and_a_time_of_delivery_travel_alone_and_are_kept() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster) as producer:
            await producer.send_many(
                [
                    Message("orders", b"level", delay_level=1),
                    Message("orders", b"time", deliver_at_ms=1),
                    Message("orders", b"now"),
                ]
            )
            found = {message.body: message for message in await some_stored(cluster, "orders", 3)}
        assert set(found) == {b"level", b"time", b"now"}
        assert found[b"level"].store_timestamp - found[b"level"].born_timestamp >= 1_000
        for wrong in (Message("t", b"x", delay_level=-1), Message("t", b"x", delay_level=1, deliver_at_ms=5)):
            async with sends(cluster) as producer:
                with pytest.raises(InvalidMessageError):
                    await producer.send(wrong)

    play(scenario)


# --- transactions ---------------------------------------------------------------------------------------------------


def test_a_transaction_is_seen_when_it_commits_and_not_when_it_does_not() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        executed: list[tuple[bytes, str]] = []

        def commit(message: Message, transaction_id: str) -> Resolution:
            executed.append((message.body, transaction_id))
            return Resolution.COMMIT

        async def roll_back(_message: Message, _transaction_id: str) -> Resolution:
            return Resolution.ROLLBACK

        async with sends(cluster) as producer:
            dropped = await producer.send_in_transaction(Message("orders", b"dropped"), roll_back)
            kept = await producer.send_in_transaction(Message("orders", b"kept", tag="t"), commit)
            (message,) = await some_stored(cluster, "orders")
        assert (dropped.resolution, kept.resolution) == (Resolution.ROLLBACK, Resolution.COMMIT)
        assert (message.body, message.tag, message.unique_id) == (b"kept", "t", kept.receipt.message_id)
        assert executed == [(b"kept", kept.receipt.message_id)]

    play(scenario)


def test_brokers_ask_for_what_is_open_and_the_check_answers() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        asked: list[str] = []

        def fails(_message: Message, _transaction_id: str) -> Resolution:
            raise OSError("the database is gone")

        async def check(message: Received) -> Resolution:
            asked.append(message.message_id)
            assert (message.topic, message.tag) == ("orders", "t")
            return Resolution.COMMIT if asked.count(message.message_id) > 1 else Resolution.UNKNOWN

        async with sends(cluster, check=check) as producer:
            receipt = await producer.send_in_transaction(Message("orders", b"kept", tag="t"), fails)
            assert receipt.resolution is Resolution.UNKNOWN
            assert isinstance(receipt.error, OSError)
            (message,) = await some_stored(cluster, "orders")
        assert message.body == b"kept"
        assert set(asked) == {receipt.receipt.message_id}
        assert len(asked) >= 2

    play(scenario, settings=QUICK_CHECKS)


def test_a_plain_function_that_raises_stop_iteration_leaves_the_outcome_unknown_at_once() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        def finds_nothing(*_: object) -> Resolution:
            return next(iter(()))

        calls = 0

        def check(_message: Received) -> Resolution:
            nonlocal calls
            calls += 1
            return Resolution.COMMIT if calls > 1 else finds_nothing()

        async with sends(cluster, check=check) as producer:
            async with asyncio.timeout(20):
                receipt = await producer.send_in_transaction(Message("orders", b"kept"), finds_nothing)
                await some_stored(cluster, "orders")
        assert receipt.resolution is Resolution.UNKNOWN
        assert "raised StopIteration" in str(receipt.error)

    play(scenario, settings=QUICK_CHECKS)


def test_a_producer_that_joins_a_running_session_is_asked_at_once_for_what_its_group_left_open() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        def says_nothing(_message: Message, _transaction_id: str) -> Resolution:
            return Resolution.UNKNOWN

        async with sends(cluster, client_id="gone-soon") as producer:
            await producer.send_in_transaction(Message("orders", b"kept"), says_nothing)
        async with Producer("other", nameserver=cluster.nameserver, timeouts=LONG) as first:
            await first.send(Message("orders", b"first"))
            # The next heartbeat of the session that both share is half a minute away.
            async with sends(cluster, check=lambda _message: Resolution.COMMIT) as second:
                assert second.client_id == first.client_id
                async with asyncio.timeout(20):
                    found = await some_stored(cluster, "orders", 2)
        assert {message.body for message in found} == {b"first", b"kept"}

    play(scenario, settings=QUICK_CHECKS)


def test_of_several_producers_of_a_group_in_one_process_one_with_a_check_answers() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        asked: list[str] = []
        ended: list[str] = []

        async def check(message: Received) -> Resolution:
            asked.append(message.message_id)
            return Resolution.COMMIT

        def count(command: Command) -> None:
            ended.append(command.ext["fromTransactionCheck"])

        cluster.intercept(RequestCode.END_TRANSACTION, count)
        async with (
            sends(cluster) as none,
            sends(cluster, check=check) as one,
            sends(cluster, check=check) as two,
        ):
            assert none.client_id == one.client_id == two.client_id
            receipt = await two.send_in_transaction(
                Message("orders", b"kept"), lambda _message, _id: Resolution.UNKNOWN
            )
            await some_stored(cluster, "orders")
            await asyncio.sleep(0.2)  # another answer would be here by now
        assert asked == [receipt.receipt.message_id]
        assert ended == ["false", "true"]

    play(scenario, settings=BrokerSettings(transaction_timeout_ms=1, transaction_check_interval_ms=1_000))


def test_a_transaction_cannot_be_delayed() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster) as producer:
            with pytest.raises(InvalidMessageError, match="cannot be delayed"):
                await producer.send_in_transaction(
                    Message("orders", b"x", delay_level=1), lambda _message, _id: Resolution.COMMIT
                )

    play(scenario)


# --- request and reply ----------------------------------------------------------------------------------------------


def test_a_request_gets_its_reply() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with (
            sends(cluster) as asker,
            Producer("replier", nameserver=cluster.nameserver, client_id="the-replier") as replier,
        ):

            async def answer_all() -> None:
                answered: set[str] = set()
                while len(answered) < 2:
                    for message in await all_stored(cluster, "questions"):
                        if message.message_id not in answered:
                            answered.add(message.message_id)
                            queue = MessageQueue("questions", "broker-a", message.queue_id)
                            await replier.reply(Received(queue, message), b"re: " + message.body)
                    await asyncio.sleep(0.01)

            replying = asyncio.create_task(answer_all())
            small, large = await asyncio.gather(
                asker.request(Message("questions", b"why?")),
                asker.request(Message("questions", b"z" * 10_000), key="k"),
            )
            await replying
            assert (small.body, large.body) == (b"re: why?", b"re: " + b"z" * 10_000)
            assert small.properties["REPLY_TO_CLIENT"] == asker.client_id

    play(scenario)


def test_a_request_of_a_producer_that_joins_a_running_session_gets_its_reply() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with (
            Producer("admin", nameserver=cluster.nameserver, timeouts=LONG) as first,
            Producer("replier", nameserver=cluster.nameserver, client_id="the-replier") as replier,
        ):
            receipt = await first.send(Message("questions", b"not one"))

            async def answer() -> None:
                (_, question) = await some_stored(cluster, "questions", 2)
                queue = MessageQueue("questions", "broker-a", question.queue_id)
                await replier.reply(Received(queue, question), b"re: " + question.body)

            async with sends(cluster) as asker, asyncio.timeout(20), asyncio.TaskGroup() as tasks:
                assert asker.client_id == first.client_id
                # As if the heartbeat of the start had not arrived yet.
                asker._session._introduced.clear()
                tasks.create_task(answer())
                reply = await asker.request(
                    Message("questions", b"why?"), key=_key_of(receipt.queue.queue_id)
                )
                assert reply.body == b"re: why?"

    play(scenario)


def _key_of(queue_id: int) -> str:
    """A key whose queue it is."""
    return next(key for key in map(str, range(1_000)) if index_by("java", key, 4) == queue_id)


def test_a_request_that_nobody_answers_ends_in_time_and_a_plain_message_cannot_be_replied_to() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster) as producer:
            with pytest.raises(RequestTimeoutError, match=r"no reply within 0\.2 s"):
                await producer.request(Message("questions", b"anybody?"), timeout_s=0.2)
            receipt = await producer.send(Message("plain", b"x"))
            (message,) = await stored(cluster, receipt.queue)
            with pytest.raises(InvalidMessageError, match="CORRELATION_ID"):
                await producer.reply(Received(receipt.queue, message), b"re")

    play(scenario)


# --- namespaces and traces ------------------------------------------------------------------------------------------


def test_in_a_namespace_names_are_wrapped_on_the_wire_and_nowhere_else() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster, namespace="prod") as producer:
            receipt = await producer.send(Message("orders", b"x"))
            batch = await producer.send_batch([Message("orders", b"y")], queue=receipt.queue)
            assert producer.group == "pg"
        assert receipt.queue.topic == "orders"
        assert batch[0].queue == receipt.queue
        found = await stored(cluster, MessageQueue("prod%orders", "broker-a", receipt.queue.queue_id))
        assert [message.body for message in found] == [b"x", b"y"]
        assert found[0].properties["INSTANCE_ID"] == "prod"
        received = Received(MessageQueue("prod%orders", "broker-a", 0), found[0])
        assert received.topic == "orders"
        with pytest.raises(InvalidMessageError, match="characters"):
            async with sends(cluster, namespace="n" * 30) as producer:
                await producer.send(Message("t" * 100, b"x"))

    play(scenario)


def test_a_traced_send_is_told_of_in_the_trace_topic_and_the_telling_is_not() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster, sending=Sending(trace=True)) as producer:
            receipt = await producer.send(Message("orders", b"12345", tag="t", keys=["k1", "k2"]))
            await producer.send_in_transaction(
                Message("orders", b"half"), lambda _message, _id: Resolution.COMMIT
            )
        messages = await some_stored(cluster, "RMQ_SYS_TRACE_TOPIC")
        records = [
            record.split("\x01") for m in messages for record in m.body.decode().split("\x02") if record
        ]
        assert [record[0] for record in records] == ["Pub", "Pub", "EndTransaction"]
        assert records[0][2:10] == [
            "DefaultRegion", "pg", "orders", receipt.message_id, "t", "k1 k2", cluster.brokers["broker-a"], "5",
        ]  # fmt: skip
        assert records[0][11:] == ["0", receipt.offset_message_id, "true"]
        assert records[1][11] == "1"
        assert {receipt.message_id, "k1", "k2"} <= {key for message in messages for key in message.keys}

    play(scenario)


def test_every_message_of_a_traced_batch_is_told_of_as_itself() -> None:
    async def scenario(cluster: AsyncCluster) -> None:
        async with sends(cluster, sending=Sending(trace=True)) as producer:
            receipts = await producer.send_batch(
                [
                    Message("orders", b"1", tag="a", keys=["k1"]),
                    Message("orders", b"22222", tag="b", keys=["k2"]),
                ]
            )
        messages = await some_stored(cluster, "RMQ_SYS_TRACE_TOPIC")
        records = [
            record.split("\x01") for m in messages for record in m.body.decode().split("\x02") if record
        ]
        assert [(record[5], record[6], record[7], record[9]) for record in records] == [
            (receipts[0].message_id, "a", "k1", "1"),
            (receipts[1].message_id, "b", "k2", "5"),
        ]

    play(scenario)


# --- ACL and TLS ----------------------------------------------------------------------------------------------------


def test_every_request_is_signed_and_a_refusal_says_what_to_do() -> None:
    plan = BrokerPlan(acl=sample_acl(), settings=BrokerSettings(trace_topic=True))

    async def run(nameserver: str, credentials: Credentials | None) -> list[str]:
        async with Producer(
            "pg", nameserver=nameserver, credentials=credentials, timeouts=LONG, sending=Sending(retries=0)
        ) as producer:
            one = await producer.send(Message(ORDERS, b"x"))
            many = await producer.send_many(Message(ORDERS, b"y") for _ in range(50))
            batch = await producer.send_batch([Message(ORDERS, b"z")] * 3)
            return [receipt.status for receipt in (one, *many, *batch)]

    with running(plan) as servers:
        statuses = asyncio.run(run(servers.names.address, WRITER))
        assert statuses == ["SEND_OK"] * 54
        for wrong in (STRANGER, Credentials(WRITER.access_key, "not-the-secret"), None):
            with pytest.raises(NoPermissionError, match="access key") as caught:
                asyncio.run(run(servers.names.address, wrong))
            assert not caught.value.retriable
            assert WRITER.secret_key not in str(caught.value)


def test_tls_to_name_server_and_broker(tmp_path: Path) -> None:
    own = identity(tmp_path / "own")
    tls = server_context(own.cert, own.key)
    plan = BrokerPlan(tls=tls, nameserver_tls=client_context(own.ca))

    async def run(nameserver: str, trusted: Path | None) -> str:
        short = Timeouts(send_s=5, request_s=5, connect_s=5)
        async with Producer("pg", nameserver=nameserver, tls=trusted, timeouts=short) as producer:
            return (await producer.send(Message("orders", b"x"))).status

    with running(plan, names_tls=tls) as servers:
        assert asyncio.run(run(servers.names.address, own.ca)) == "SEND_OK"
        foreign = identity(tmp_path / "foreign")
        for wrong in (foreign.ca, None):
            with pytest.raises(TrimtabError):
                asyncio.run(run(servers.names.address, wrong))
