"""Our push consumer at real brokers, beside stock clients and tools."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.java_program import JAVA_CLIENTS
from tests.interop.ours import Loop, Ours
from tests.interop.seeds import seed
from tests.interop.servers import ApacheServer, eventually, unique
from tests.interop.stock_client import (
    Queue,
    make_offset_table,
    members,
    offset_stored,
    plain,
    wait_until_stored,
)
from trimtab import blocking
from trimtab.balance.strategies import Averagely, ByConfig, ByMachineRoom, MachineRoomNearby
from trimtab.client.push_outcomes import ConsumeLater
from trimtab.client.push_settings import Consuming
from trimtab.client.subscriptions import SQL
from trimtab.model import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.conftest import SharedClients
    from tests.interop.java_program import JavaPrograms
    from tests.interop.mqadmin import MqAdmins
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client, Program
    from trimtab.balance.strategies import Strategy
    from trimtab.client.received import Received

QUEUES = 8
"""Of a topic: four at each of two brokers."""


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with Loop() as running:
        yield running


@pytest.fixture
def stock(java_programs: JavaPrograms) -> Program:
    """The oldest Java client: the one that our classic mode follows."""
    return java_programs.running(JAVA_CLIENTS[0])


@pytest.fixture
def sender(stock: Program, server: ServerUnderTest, shared_clients: SharedClients) -> Client:
    return shared_clients.get("producer", stock, server)


@pytest.fixture
def looker(stock: Program, server: ServerUnderTest, shared_clients: SharedClients) -> Client:
    return shared_clients.get("pull", stock, server)


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_a_java_producer_s_messages_reach_our_handler(
    loop: Loop, server: ServerUnderTest, sender: Client
) -> None:
    topic, group = server.make_topic(), unique("g")
    sent = [
        sender.send(topic, body, tag="eu", key="k1 k2", properties={"n": body.decode()})
        for body in numbers(0, 20)
    ]
    with Ours(loop, server, group, subscribe={topic: "*"}) as ours:
        eventually(lambda: len(ours.received) >= 20, "all came")
    assert sorted(ours.bodies, key=int) == numbers(0, 20)
    by_id = {message.message_id: message for message in ours.received}
    for receipt in sent:
        message = by_id[str(receipt.id)]
        assert (message.broker_name, message.queue_id, message.queue_offset) == (
            receipt.broker,
            receipt.queue_id,
            receipt.offset,
        )
        assert (message.topic, message.tag, message.keys) == (topic, "eu", ("k1", "k2"))
        assert message.properties["n"].encode() == message.body


def test_tags_and_sql_filter_at_the_broker(loop: Loop, server: ServerUnderTest, sender: Client) -> None:
    topic = server.make_topic()
    for number, body in enumerate(numbers(0, 12)):
        sender.send(topic, body, tag="abc"[number % 3], properties={"n": str(number)})
    with (
        Ours(loop, server, unique("tags"), subscribe={topic: "a || b"}) as by_tag,
        Ours(loop, server, unique("sql"), subscribe={topic: SQL("n BETWEEN 4 AND 6")}) as by_sql,
    ):
        eventually(lambda: len(by_tag.received) >= 8 and len(by_sql.received) >= 3, "what matches")
    assert {message.tag for message in by_tag.received} == {"a", "b"}
    assert sorted(by_sql.bodies) == [b"4", b"5", b"6"]


def test_a_failed_message_comes_again_and_ends_as_a_dead_letter(
    loop: Loop, server: ServerUnderTest, sender: Client, looker: Client
) -> None:
    topic, group = server.make_topic(), unique("g")
    tries: list[tuple[int, str]] = []

    def judge(message: Received) -> None:
        tries.append((message.reconsume_times, message.topic))
        raise ConsumeLater(delay_level=1)

    sender.send(topic, b"poison", tag="a")
    consuming = Consuming(reconsume_times_max=1)
    with Ours(loop, server, group, subscribe={topic: "a"}, judge=judge, consuming=consuming):
        eventually(lambda: len(tries) == 2, "two tries")
        eventually(lambda: server.route(f"%DLQ%{group}") is not None, "the topic of dead letters")
        (dead,) = looker.read_when(f"%DLQ%{group}", 1)
    assert tries == [(0, topic), (1, topic)]
    assert dead.body == b"poison"
    assert dead.properties["RETRY_TOPIC"] == topic


def test_ordered_consumption_keeps_each_queue_s_order_over_failures(
    loop: Loop, server: ServerUnderTest, sender: Client, looker: Client
) -> None:
    topic, group = server.make_topic(), unique("g")
    queues = looker.queues(topic)
    for body in numbers(0, 24):
        sender.send(topic, body, queue=plain(queues[int(body) % 3]))

    def judge(message: Received) -> None:
        if message.queue_offset == 2 and message.reconsume_times < 1:
            raise ConsumeLater(after_s=0.05)

    with Ours(loop, server, group, subscribe={topic: "*"}, ordered=True, judge=judge) as ours:
        eventually(lambda: len(ours.received) >= 27, "all came, three of them twice")
    for queue in queues[:3]:
        seen = [
            m.queue_offset for m in ours.received if (m.broker_name, m.queue_id) == (queue.broker, queue.id)
        ]
        assert seen == [0, 1, 2, 2, 3, 4, 5, 6, 7]
        assert offset_stored(server, group, queue) == 8


def test_every_broadcasting_member_gets_everything(
    loop: Loop,
    server: ServerUnderTest,
    stock: Program,
    sender: Client,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    topic, group = server.make_topic(), unique("g")
    consuming = Consuming(offsets_directory=tmp_path_factory.mktemp("offsets"))
    options: dict[str, Any] = {"subscribe": {topic: "*"}, "broadcast": True, "consuming": consuming}
    with (
        Ours(loop, server, group, client_id=unique("127.0.0.1@a"), **options) as one,
        Ours(loop, server, group, client_id=unique("127.0.0.1@b"), **options) as two,
        stock.client("push", server, group=group, tags={topic: "*"}, broadcasting=True) as java,
    ):
        eventually(lambda: len(one.holds(topic)) == len(two.holds(topic)) == QUEUES, "all queues are held")
        eventually(lambda: len(java.holds(topic)) == QUEUES, "all queues are held")
        sender.send_all(topic, numbers(0, 10))
        java.wait_for(10)
        eventually(lambda: len(one.received) >= 10 and len(two.received) >= 10, "all came")
    assert sorted(one.bodies) == sorted(two.bodies) == sorted(numbers(0, 10))


def test_offsets_written_by_one_are_read_by_the_other(
    loop: Loop, server: ServerUnderTest, stock: Program, sender: Client
) -> None:
    topic, group = server.make_topic(), unique("g")
    make_offset_table(server, group, topic)
    sender.send_all(topic, numbers(0, 16))
    with stock.client("push", server, group=group, tags={topic: "*"}) as java:
        java.wait_for(16)
        queues = java.holds(topic)
    wait_until_stored(server, group, queues, 16)
    sender.send_all(topic, numbers(16, 16))
    with Ours(loop, server, group, subscribe={topic: "*"}) as ours:
        eventually(lambda: len(ours.received) >= 16, "the next ones")
    assert sorted(ours.bodies, key=int) == numbers(16, 16)
    sender.send_all(topic, numbers(32, 16))
    with stock.client("push", server, group=group, tags={topic: "*"}) as java:
        last = java.wait_for(16)
    assert sorted((message.body for message in last), key=int) == numbers(32, 16)


def test_mqadmin_works_on_our_consumer(
    loop: Loop, server: ServerUnderTest, sender: Client, looker: Client, mqadmins: MqAdmins
) -> None:
    mqadmin = mqadmins.at(server.nameserver, "4.9.3")
    topic, group = server.make_topic(), unique("g")
    sender.send_all(topic, numbers(0, 16))
    queues = looker.queues(topic)
    with Ours(loop, server, group, subscribe={topic: "*"}) as ours:
        eventually(lambda: len(ours.received) >= 16, "all came")
        wait_until_stored(server, group, queues, 16)
        progress = mqadmin.good("consumerProgress", "-g", group)
        assert f"{topic} {server.brokers[0].name} 0 2 2 0" in progress
        assert "Diff Total: 0" in progress
        connection = mqadmin.good("consumerConnection", "-g", group)
        assert f"{ours.id} " in connection
        assert "PYTHON" in connection
        assert "ConsumeType: CONSUME_PASSIVELY" in connection
        assert f"{topic} *" in connection
        status = mqadmin.good("consumerStatus", "-g", group, "-i", ours.id)
        assert "PROP_CONSUME_TYPE : CONSUME_PASSIVELY" in status
        assert f"Topic: {topic} ClassFilter: false SubExpression: *" in status
        assert f"{topic} {server.brokers[0].name} 0 ProcessQueueInfo [commitOffset=2," in status
        everywhere = [[ours.id]] * len(server.brokers)
        eventually(lambda: members(server, group) == everywhere, "every broker lists it")
        reset = mqadmin.good("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-f", "true")
        assert f"{server.brokers[0].name} 0 0" in reset
        eventually(lambda: len(ours.received) >= 32, "all came again")
    assert sorted(ours.bodies, key=int) == sorted(numbers(0, 16) * 2, key=int)


def test_mqadmin_works_on_our_pull_consumer(
    server: ServerUnderTest, sender: Client, looker: Client, mqadmins: MqAdmins
) -> None:
    mqadmin = mqadmins.at(server.nameserver, "4.9.3")
    topic, group = server.make_topic(), unique("g")
    queues = looker.queues(topic)
    for body in numbers(0, 16):  # two in each queue: 4.9.3 resets no group that lacks an offset anywhere
        sender.send(topic, body, queue=plain(queues[int(body) % len(queues)]))
    with blocking.PullConsumer(
        group, subscribe={topic: "*"}, nameserver=server.nameserver, start="first"
    ) as ours:
        got: list[bytes] = []

        def came(count: int) -> bool:
            got.extend(message.body for message in ours.poll(1))
            return len(got) >= count

        eventually(lambda: came(16), "all came")
        ours.commit()
        everywhere = [[ours.client_id]] * len(server.brokers)
        eventually(lambda: members(server, group) == everywhere, "every broker lists it")
        connection = mqadmin.good("consumerConnection", "-g", group)
        assert "ConsumeType: CONSUME_ACTIVELY" in connection
        status = mqadmin.good("consumerStatus", "-g", group, "-i", ours.client_id)
        assert "PROP_CONSUME_TYPE : CONSUME_ACTIVELY" in status
        assert f"Topic: {topic} ClassFilter: false SubExpression: *" in status
        assert f"{topic} {server.brokers[0].name} 0 ProcessQueueInfo [commitOffset=2," in status
        mqadmin.good("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-f", "true")
        eventually(lambda: came(32), "all came again")
    assert sorted(got, key=int) == sorted(numbers(0, 16) * 2, key=int)


CHANGES = 50 if os.environ.get("TRIMTAB_FULL") else 5


class TwoRooms:
    """Queues by their number, members by their names: the rooms that the Java program knows too."""

    def of_queue(self, queue: MessageQueue) -> str:
        return f"room-{queue.queue_id % 2}"

    def of_member(self, client_id: str) -> str:
        return f"room-{sum(map(ord, client_id)) % 2}"


def ours_of(strategy: str) -> str | Strategy:
    if strategy.startswith("MACHINE_ROOM "):
        return ByMachineRoom(strategy.split()[1:])
    return MachineRoomNearby(Averagely(), TwoRooms()) if strategy == "MACHINE_ROOM_NEARBY" else strategy


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY"])
def test_c1_java_and_python_members_share_every_queue_exactly_once(
    loop: Loop, server: ServerUnderTest, stock: Program, strategy: str
) -> None:
    """Members of both kinds come and go; in every settled state each queue has one owner."""
    come_and_go(loop, server, stock, strategy, QUEUES)


def test_c1_java_and_python_members_share_the_queues_of_a_machine_room(
    loop: Loop, thorough_version: str, stock: Program
) -> None:
    """The queues of the other room are nobody's. Rooms are in the names of brokers, so these are servers of their own."""
    with ApacheServer(thorough_version, ["near@broker-a", "far@broker-b"]) as rooms:
        come_and_go(loop, rooms, stock, "MACHINE_ROOM near", QUEUES // 2)


def come_and_go(
    loop: Loop, server: ServerUnderTest, stock: Program, strategy: str, shared_queues: int
) -> None:
    rng = random.Random(f"{seed()} {strategy}")
    topic, group = server.make_topic(), unique("g")
    members: list[Ours | Client] = []
    with ExitStack() as stack:

        def join() -> None:
            if rng.random() < 0.5 and any(isinstance(member, Ours) for member in members):
                java = stock.client("push", server, group=group, tags={topic: "*"}, strategy=strategy)
                members.append(stack.enter_context(java))
            else:
                ours = Ours(loop, server, group, subscribe={topic: "*"}, strategy=ours_of(strategy))
                members.append(stack.enter_context(ours))

        def leave() -> None:
            member = members.pop(rng.randrange(len(members)))
            if isinstance(member, Ours):
                member.close()
            else:
                member.shutdown()

        for change in range(CHANGES):
            if len(members) >= 2 and (len(members) == 5 or rng.random() < 0.4):
                leave()
            else:
                join()
            eventually(
                lambda: is_shared(members, topic, shared_queues),
                f"change {change}: {shared_queues} queues, one owner each (TRIMTAB_SEED={seed()})",
            )


def test_c1_members_of_both_kinds_hold_exactly_what_they_were_configured_to(
    loop: Loop, server: ServerUnderTest, stock: Program
) -> None:
    """CONFIG checks nothing: who leaves leaves queues without an owner, and nobody takes them."""
    topic, group, half = server.make_topic(), unique("g"), QUEUES // 2
    java_broker, our_broker = (broker.name for broker in server.brokers)
    own = ByConfig([MessageQueue(topic, our_broker, number) for number in range(half)])
    java_share = f"CONFIG {topic} {java_broker} {','.join(map(str, range(half)))}"
    with stock.client("push", server, group=group, tags={topic: "*"}, strategy=java_share) as java:
        with Ours(loop, server, group, subscribe={topic: "*"}, strategy=own) as ours:
            eventually(lambda: is_shared([java, ours], topic), "one owner each")
            assert {queue.broker_name for queue in ours.holds(topic)} == {our_broker}
        eventually(lambda: len(java.holds(topic)) == half, "Java keeps what it has")


def is_shared(members: list[Ours | Client], topic: str, queues: int = QUEUES) -> bool:
    held: list[Queue] = []
    for member in members:
        if isinstance(member, Ours):
            held += [Queue(queue.topic, queue.broker_name, queue.queue_id) for queue in member.holds(topic)]
        else:
            held += member.holds(topic)
    return len(held) == len(set(held)) == queues
