"""How servers know who is there, seen by stock Java consumers: points B1 to B6 of the mission, one test or more each.

The consumers of these tests never rebalance because time passed (see `NEVER_BY_TIME`), so that every rebalance after the
start is one that a broker asked for.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tests.interop.servers import eventually, request, unique
from tests.interop.stock_client import members
from tests.raw import RawConnection
from trimtab.wire.bodies import (
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerConnection,
    SubscriptionData,
)
from trimtab.wire.codes import LanguageCode, RequestCode, ResponseCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import ProducerGroupOnly
from trimtab.wire.headers.consume import GroupOnly

if TYPE_CHECKING:
    from tests.interop.java_program import JavaPrograms
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client, Program, Queue

HOUR_MS = 3_600_000
QUEUES = 8


def connection(server: ServerUnderTest, group: str, broker: int = 0) -> ConsumerConnection | None:
    """What a broker knows of a group, or None if nobody is in it."""
    answer = server.ask(
        server.brokers[broker].address,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        GroupOnly(consumer_group=group),
    )
    return decode_body(ConsumerConnection, answer.body) if answer.code == ResponseCode.SUCCESS else None


def owners(consumers: list[Client], topic: str) -> dict[Queue, list[str]]:
    """Who pulls from which queue now."""
    held: dict[Queue, list[str]] = {}
    for consumer in consumers:
        for queue in consumer.holds(topic):
            held.setdefault(queue, []).append(consumer.id)
    return held


def is_balanced(consumers: list[Client], topic: str) -> bool:
    """Each queue has exactly one owner, and each member its share."""
    held = owners(consumers, topic)
    sizes = [len(consumer.holds(topic)) for consumer in consumers]
    return (
        len(held) == QUEUES and all(len(who) == 1 for who in held.values()) and max(sizes) - min(sizes) <= 1
    )


def are_listed(server: ServerUnderTest, group: str, *clients: Client) -> None:
    """At every broker, soon: a client that shares queues has asked one of them."""
    ids = sorted(client.id for client in clients)
    eventually(lambda: members(server, group) == [ids] * len(server.brokers), f"{ids} are listed")


def heartbeat(client: str, group: str, topics: list[str], version: int = 1) -> bytes:
    subscriptions = tuple(
        SubscriptionData(topic=topic, sub_string="*", sub_version=version) for topic in topics
    )
    consumer = ConsumerData(
        group_name=group, consume_type=ConsumeType.CONSUME_PASSIVELY, message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, subscription_data_set=subscriptions,
    )  # fmt: skip
    return encode_body(HeartbeatData(client_id=client, consumer_data_set=(consumer,)))


def test_b1_a_subscription_is_at_every_broker_at_once(java: Program, server: ServerUnderTest) -> None:
    topic, more = server.make_topic(), server.make_topic()
    with java.client("push", server, tags={topic: "A || B"}, heartbeat_ms=HOUR_MS) as consumer:
        for broker in (0, 1):
            known = eventually(partial(connection, server, consumer.group, broker), "registered")
            subscription = known.subscription_table[topic]
            assert (subscription.sub_string, set(subscription.tags_set)) == ("A || B", {"A", "B"})
            assert set(subscription.code_set) == {ord("A"), ord("B")}
            assert set(known.subscription_table) == {topic, f"%RETRY%{consumer.group}"}

        def is_known() -> bool:
            """Again, because a client drops the heartbeat of a subscription while another one is under way."""
            consumer.do("subscribe", topic=more)
            tables = [connection(server, consumer.group, broker) for broker in (0, 1)]
            return all(known is not None and more in known.subscription_table for known in tables)

        eventually(is_known, "a further subscription is at both brokers")


def test_b2_a_heartbeat_says_what_kind_of_consumer_it_is(java: Program, server: ServerUnderTest) -> None:
    topic = server.make_topic()
    with (
        java.client("push", server, tags={topic: "*"}, **{"from": "TIMESTAMP"}) as push,
        java.client("push", server, tags={topic: "*"}, broadcasting=True) as broadcast,
        java.client("lite", server, tags={topic: "*"}) as lite,
    ):
        kinds = {}
        for consumer in (push, broadcast, lite):
            known = eventually(partial(connection, server, consumer.group), "registered")
            kinds[consumer] = (known.consume_type, known.message_model)
            (one,) = known.connection_set
            assert one.client_id == consumer.id
            assert one.language == LanguageCode.JAVA
            assert one.client_addr is not None
        pushed = connection(server, push.group)

    assert kinds[push] == (ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING)
    assert kinds[broadcast] == (ConsumeType.CONSUME_PASSIVELY, MessageModel.BROADCASTING)
    assert kinds[lite] == (ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING)
    assert pushed is not None
    assert pushed.consume_from_where == ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


def test_b2_a_producer_is_known_to_the_brokers_it_sends_to(java: Program, server: ServerUnderTest) -> None:
    topic = server.make_topic()
    with java.client("producer", server) as producer:
        producer.send_all(topic, [b"x"] * 8)
        for broker in server.brokers:
            eventually(
                partial(knows_producer, server, broker.address, producer), f"{broker.name} knows the producer"
            )


def knows_producer(server: ServerUnderTest, address: str, producer: Client) -> bool:
    header = ProducerGroupOnly(producer_group=producer.group)
    answer = server.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
    if answer.code != ResponseCode.SUCCESS:
        return False
    connections = decode_body(ProducerConnection, answer.body).connection_set
    return [one.client_id for one in connections] == [producer.id]


def test_b3_a_newcomer_and_a_topic_are_changes_and_a_version_is_none(server: ServerUnderTest) -> None:
    topic, other, group = server.make_topic(), server.make_topic(), unique("group")
    address = server.brokers[0].address

    with RawConnection(address) as first, RawConnection(address) as second:

        def beat(connection: RawConnection, name: str, topics: list[str], version: int) -> None:
            body = heartbeat(name, group, topics, version)
            assert (
                connection.exchange(request(RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS
            )

        def notices(connection: RawConnection) -> int:
            """How many notices came until a question asked now is answered."""
            question = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupOnly(consumer_group=group))
            connection.send(question)
            count = 0
            while True:
                came = connection.receive()
                if came.is_response and came.opaque == question.opaque:
                    return count
                if came.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and not came.is_response:
                    assert came.ext["consumerGroup"] == group
                    assert came.is_oneway
                    count += 1

        beat(first, "first", [topic], 1)
        notices(first)
        beat(second, "second", [topic], 1)
        assert notices(first) == 1, "a newcomer"
        notices(second)
        beat(second, "second", [topic], 2)
        assert (notices(first), notices(second)) == (0, 0), "a version"
        beat(second, "renamed", [topic], 2)
        assert (notices(first), notices(second)) == (0, 0), "another id on a known connection"
        beat(second, "renamed", [topic, other], 3)
        assert notices(first) == 1, "a topic more"
        notices(second)
        beat(second, "renamed", [topic], 4)
        assert notices(first) == 1, "a topic less"


def test_b4_a_join_makes_the_others_share(java: Program, server: ServerUnderTest, producer: Client) -> None:
    topic, group = server.make_topic(), unique("group")
    options = {"group": group, "tags": {topic: "*"}}
    with java.client("push", server, **options) as first:
        eventually(lambda: len(first.holds(topic)) == QUEUES, "the first one has all queues")

        with java.client("push", server, **options) as second:
            eventually(lambda: is_balanced([first, second], topic), "two share eight queues")
            told = [share for share in first.shares(topic) if len(share.members) == 2]
            assert told
            assert told[0].members == sorted([first.id, second.id])
            assert {queue.broker for queue in first.holds(topic)} != {
                queue.broker for queue in second.holds(topic)
            }


def test_b4_a_heartbeat_makes_the_retry_topic(java: Program, server: ServerUnderTest) -> None:
    topic = server.make_topic()
    with java.client("push", server, tags={topic: "*"}) as consumer:
        retry = f"%RETRY%{consumer.group}"
        eventually(lambda: server.has_route(retry), f"a route of {retry} at both brokers")
        route = server.route(retry)
        assert route is not None
        assert {(data.read_queue_nums, data.write_queue_nums, data.perm) for data in route.queue_datas} == {
            (1, 1, 6)
        }


def test_b4_b5_b6_three_members_share_and_take_over(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic, group = server.make_topic(), unique("group")
    options = {"group": group, "tags": {topic: "*"}}
    with ExitStack() as stack:
        trio = [stack.enter_context(java.client("push", server, **options)) for _ in range(3)]
        eventually(lambda: is_balanced(trio, topic), "three share eight queues")
        in_order = sorted(trio, key=lambda one: one.id)
        assert [len(one.holds(topic)) for one in in_order] == [3, 3, 2], "pages in the order of the ids"
        assert [queue for one in in_order for queue in one.holds(topic)] == sorted(owners(trio, topic))
        are_listed(server, group, *trio)

        producer.send_all(topic, [b"%d" % number for number in range(24)])
        eventually(lambda: sum(len(one.received()) for one in trio) == 24, "24 messages for three")
        for one in trio:
            assert {(message.broker, message.queue_id) for message in one.received()} == {
                (queue.broker, queue.id) for queue in one.holds(topic)
            }

        trio.pop(1).shutdown()
        eventually(lambda: is_balanced(trio, topic), "two share eight queues")
        are_listed(server, group, *trio)
        later = {b"%d" % number for number in range(24, 32)}
        producer.send_all(topic, later)
        eventually(
            lambda: later <= {message.body for one in trio for message in one.received()},
            "nothing is left out",
        )

        trio.pop().shutdown()
        eventually(lambda: len(trio[0].holds(topic)) == QUEUES, "one has all queues")
    are_listed(server, group)


def test_b5_the_last_one_to_leave_takes_the_group_with_it(java: Program, server: ServerUnderTest) -> None:
    topic = server.make_topic()
    with java.client("push", server, tags={topic: "*"}) as consumer:
        are_listed(server, consumer.group, consumer)
    are_listed(server, consumer.group)
    assert connection(server, consumer.group) is None


def test_b5_who_dies_is_replaced(java: Program, java_programs: JavaPrograms, server: ServerUnderTest) -> None:
    topic, group = server.make_topic(), unique("group")
    options = {"group": group, "tags": {topic: "*"}}
    doomed = java_programs.another(java.version)
    with java.client("push", server, **options) as survivor:
        victim = doomed.client("push", server, **options)
        eventually(lambda: len(survivor.holds(topic)) == QUEUES // 2, "half for the survivor")
        are_listed(server, group, survivor, victim)

        doomed.kill()

        eventually(lambda: len(survivor.holds(topic)) == QUEUES, "all for the survivor")
        are_listed(server, group, survivor)


def test_b5_a_closed_connection_is_a_member_less(java: Program, server: ServerUnderTest) -> None:
    topic, group = server.make_topic(), unique("group")
    with java.client("push", server, group=group, tags={topic: "*"}) as consumer:
        eventually(lambda: len(consumer.holds(topic)) == QUEUES, "it has all queues")
        with ExitStack() as stack:
            for broker in server.brokers:
                raw = stack.enter_context(RawConnection(broker.address))
                body = heartbeat("0.0.0.0@raw", group, [topic])
                assert raw.exchange(request(RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS
            eventually(lambda: len(consumer.holds(topic)) == QUEUES // 2, "it gave half away")
        eventually(lambda: len(consumer.holds(topic)) == QUEUES, "it took them back")


def test_b6_a_group_that_nobody_is_in_is_an_error(server: ServerUnderTest) -> None:
    for broker in server.brokers:
        answer = server.ask(
            broker.address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupOnly(consumer_group=unique("nobody"))
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "no consumer for this group" in answer.remark


def test_members_of_both_versions_share_one_group(
    java_programs: JavaPrograms, server: ServerUnderTest
) -> None:
    topic, group = server.make_topic(), unique("group")
    options = {"group": group, "tags": {topic: "*"}}
    with (
        java_programs.running("4.9.3").client("push", server, **options) as old,
        java_programs.running("5.5.0").client("push", server, **options) as new,
    ):
        eventually(lambda: is_balanced([old, new], topic), "old and new share eight queues")


def test_c7_an_ordered_queue_goes_over_when_it_is_let_go(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic, group = server.make_topic(), unique("group")
    options = {"group": group, "tags": {topic: "*"}, "ordered": True}
    with java.client("push", server, **options) as first:
        eventually(lambda: len(first.holds(topic)) == QUEUES, "the first one has all queues")
        with java.client("push", server, **options) as second:

            def shared() -> bool:
                """A queue that is still locked is skipped; without a timer somebody must ask again."""
                for consumer in (first, second):
                    consumer.do("rebalance")
                return is_balanced([first, second], topic)

            eventually(shared, "two share eight locked queues")
        eventually(lambda: len(first.holds(topic)) == QUEUES, "the first one has all queues again")
