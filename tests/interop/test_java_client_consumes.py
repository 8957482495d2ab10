"""Stock Java consumers: push (concurrent, ordered, broadcasting), lite pull and pull."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.interop.servers import eventually, unique
from tests.interop.stock_client import (
    StockError,
    by_queue,
    make_offset_table,
    offset_stored,
    plain,
    pulled_of,
    wait_until_stored,
)
from trimtab.wire.codes import ResponseCode

if TYPE_CHECKING:
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client, Message, Program, Pulled, Queue

TAGS_WITH_ONE_HASH = ("Aa", "BB")


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def sorted_bodies(messages: list[Message]) -> list[bytes]:
    return sorted((message.body for message in messages), key=int)


# --- push: concurrent ---------------------------------------------------------------------------------------------


def test_push_gets_everything_once_and_its_offsets_stay(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic, group = server.make_topic(), unique("group")
    make_offset_table(server, group, topic)
    receipts = {receipt.id: receipt for receipt in producer.send_all(topic, numbers(40))}

    with java.client("push", server, group=group, tags={topic: "*"}) as consumer:
        messages = consumer.wait_for(40)
        producer.send_all(topic, [b"40"])
        messages = consumer.wait_for(41)
        queues = consumer.holds(topic)

    assert sorted_bodies(messages) == numbers(41)
    for message in messages[:40]:
        receipt = receipts[message.id]
        assert (message.broker, message.queue_id, message.offset, message.offset_id) == (
            receipt.broker,
            receipt.queue_id,
            receipt.offset,
            receipt.offset_id,
        )
    assert len(queues) == 8
    wait_until_stored(server, group, queues, 41)


def test_push_gets_several_at_once(java: Program, server: ServerUnderTest, producer: Client) -> None:
    topic = server.make_topic(queues=1)
    queue = producer.queues(topic)[0]
    batch = [{"topic": topic, "body": "MQ==", "tag": "t"}] * 16
    producer.do("batch", messages=batch, queue=plain(queue))

    with java.client("push", server, tags={topic: "*"}, batch=8) as consumer:
        messages = consumer.wait_for(16)

    assert [message.batch for message in messages] == [8] * 16
    assert sorted(message.offset for message in messages) == list(range(16))


def test_offsets_at_the_broker_survive_the_consumer(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic, group = server.make_topic(), unique("group")
    make_offset_table(server, group, topic)
    producer.send_all(topic, numbers(12))
    with java.client("push", server, group=group, tags={topic: "*"}) as first:
        assert sorted_bodies(first.wait_for(12)) == numbers(12)
        queues = first.holds(topic)
    wait_until_stored(server, group, queues, 12)

    producer.send_all(topic, [b"12", b"13", b"14"])
    with java.client("push", server, group=group, tags={topic: "*"}) as second:
        assert sorted_bodies(second.wait_for(3)) == [b"12", b"13", b"14"]


def test_a_suspended_consumer_goes_on_when_it_is_resumed(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic = server.make_topic(queues=1)
    with java.client("push", server, tags={topic: "*"}) as consumer:
        producer.send_all(topic, [b"0"])
        consumer.wait_for(1)
        consumer.do("suspend")
        producer.send_all(topic, [b"1", b"2"])
        consumer.do("resume")
        assert sorted_bodies(consumer.wait_for(3)) == numbers(3)


# --- push: what is wanted -----------------------------------------------------------------------------------------


def test_only_the_wanted_tags_come(java: Program, server: ServerUnderTest, producer: Client) -> None:
    topic = server.make_topic(queues=1)
    for number, tag in enumerate(["A", "B", "C", None, "A", "C", "D"]):
        producer.send(topic, b"%d" % number, tag=tag)

    with java.client("push", server, tags={topic: "A || C"}) as consumer:
        producer.send(topic, b"7", tag="B")
        producer.send(topic, b"8", tag="C")
        assert sorted_bodies(consumer.wait_for(5)) == [b"0", b"2", b"4", b"5", b"8"]


def test_a_tag_with_the_same_hash_is_not_the_same_tag(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic = server.make_topic(queues=1)
    wanted, other = TAGS_WITH_ONE_HASH
    for number in range(6):
        producer.send(topic, b"%d" % number, tag=(wanted, other)[number % 2])

    with java.client("push", server, tags={topic: wanted}) as consumer:
        assert sorted_bodies(consumer.wait_for(3)) == [b"0", b"2", b"4"]


def test_sql_chooses_by_properties(java: Program, server: ServerUnderTest, producer: Client) -> None:
    topic = server.make_topic(queues=1)
    for number in range(10):
        producer.send(
            topic, b"%d" % number, tag=f"T{number % 2}", properties={"a": str(number), "region": "eu" if number < 8 else "us"}
        )  # fmt: skip

    expression = "a BETWEEN 3 AND 9 AND region = 'eu' AND TAGS IN ('T1')"
    with java.client("push", server, sql={topic: expression}) as consumer:
        assert sorted_bodies(consumer.wait_for(3)) == [b"3", b"5", b"7"]
        producer.send(topic, b"10", tag="T1", properties={"a": "2", "region": "eu"})
        producer.send(topic, b"11", tag="T1", properties={"a": "4", "region": "eu"})
        assert sorted_bodies(consumer.wait_for(4)) == [b"3", b"5", b"7", b"11"]


def test_sql_that_nobody_understands_is_refused_at_the_start(java: Program, server: ServerUnderTest) -> None:
    topic = server.make_topic(queues=1)
    with pytest.raises(StockError) as refused:
        java.client("push", server, sql={topic: "a > 'text"})
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# --- push: where it begins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", ["FIRST_OFFSET", "LAST_OFFSET", "TIMESTAMP"])
def test_a_new_group_on_a_young_topic_begins_at_its_beginning(
    java: Program, server: ServerUnderTest, producer: Client, begin: str
) -> None:
    topic = server.make_topic(queues=1)
    producer.send_all(topic, numbers(6))
    with java.client("push", server, tags={topic: "*"}, **{"from": begin}) as consumer:
        assert sorted_bodies(consumer.wait_for(6)) == numbers(6)


def test_a_new_group_on_an_old_topic_begins_where_it_says(
    java: Program, server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    if not server.can_call_logs_old:
        pytest.skip(f"{server.version} asks the kernel what is in memory; nobody can make it call a log old")
    topic = server.make_topic(queues=1)
    producer.send_all(topic, numbers(4))
    time.sleep(2.5)  # timestamps count in whole seconds
    producer.send_all(topic, [b"4", b"5"])
    between_s = (
        min(message.stored_ms for message in reader.read_when(topic, 6) if int(message.body) >= 4) // 1_000
    )
    between = time.strftime("%Y%m%d%H%M%S", time.localtime(between_s))

    with (
        server.old_logs(),
        java.client("push", server, tags={topic: "*"}, **{"from": "FIRST_OFFSET"}) as first,
        java.client("push", server, tags={topic: "*"}, **{"from": "LAST_OFFSET"}) as last,
        java.client("push", server, tags={topic: "*"}, timestamp=between, **{"from": "TIMESTAMP"}) as by_time,
    ):
        assert sorted_bodies(first.wait_for(6)) == numbers(6)
        assert sorted_bodies(by_time.wait_for(2))[-2:] == [b"4", b"5"]
        eventually(lambda: len(last.holds(topic)) == 2, "the last one has its queues")
        producer.send_all(topic, [b"6", b"7"])
        assert sorted_bodies(last.wait_for(2)) == [b"6", b"7"]
        assert sorted_bodies(by_time.wait_for(4)) == [b"4", b"5", b"6", b"7"]


# --- push: again, and never again ---------------------------------------------------------------------------------


def test_a_failed_message_comes_again_after_its_delay(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic = server.make_topic(queues=1)
    receipt = producer.send(topic, b"x", tag="t", key="k", properties={"p": "q"})

    with java.client("push", server, tags={topic: "*"}, failures=2, delay_level=1) as consumer:
        tries = consumer.wait_for(3, nudged=True)
        group = consumer.group

    assert [message.times for message in tries] == [0, 1, 2]
    assert {(message.topic, message.body, message.id) for message in tries} == {(topic, b"x", receipt.id)}
    assert {message.properties["p"] for message in tries} == {"q"}
    assert {message.properties["KEYS"] for message in tries} == {"k"}
    for earlier, later in pairwise(tries):
        assert later.stored_ms - earlier.stored_ms >= 1_000
        assert later.from_ is not None
        assert later.from_.topic == f"%RETRY%{group}"
        assert later.properties["RETRY_TOPIC"] == topic
        assert later.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_id


def test_a_message_that_fails_too_often_is_a_dead_letter(
    java: Program, server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    receipt = producer.send(topic, b"x", tag="t")

    with java.client("push", server, tags={topic: "*"}, failures=99, delay_level=1, tries_max=1) as consumer:
        consumer.wait_for(2, nudged=True)
        dead = f"%DLQ%{consumer.group}"
        eventually(lambda: server.route(dead), f"a route of {dead}")
        (letter,) = reader.read_when(dead, 1)

        assert (letter.body, letter.id, letter.topic) == (b"x", receipt.id, dead)
        assert letter.properties["RETRY_TOPIC"] == topic
        assert letter.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_id
        assert letter.times == 2
        assert [message.times for message in consumer.received()] == [0, 1]


def test_a_message_can_be_given_up_at_once(
    java: Program, server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    receipt = producer.send(topic, b"x")

    with java.client("push", server, tags={topic: "*"}, failures=99, delay_level=-1) as consumer:
        consumer.wait_for(1)
        dead = f"%DLQ%{consumer.group}"
        eventually(lambda: server.route(dead), f"a route of {dead}")
        (letter,) = reader.read_when(dead, 1)

    assert (letter.body, letter.id) == (b"x", receipt.id)


# --- push: ordered ------------------------------------------------------------------------------------------------


def test_ordered_consumers_see_each_queue_in_order(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic, group = server.make_topic(), unique("group")
    for number in range(40):
        producer.send(topic, b"%d" % number, shard=f"s{number % 7}")

    with (
        java.client("push", server, group=group, tags={topic: "*"}, ordered=True) as one,
        java.client("push", server, group=group, tags={topic: "*"}, ordered=True) as two,
    ):

        def both() -> list[Message]:
            for consumer in (one, two):
                consumer.do("rebalance")
            return one.received() + two.received()

        eventually(lambda: len({message.id for message in both()}) == 40, "40 messages between two")
        eventually(lambda: shared_evenly([one, two], topic), "four queues each")
        for number in range(40, 56):
            producer.send(topic, b"%d" % number, shard=f"s{number % 7}")
        eventually(lambda: len({message.id for message in both()}) == 56, "56 messages between two")

        for consumer in (one, two):
            for messages in by_queue(consumer.received()).values():
                offsets = [message.offset for message in messages]
                assert offsets == sorted(offsets)
        assert sorted_bodies(list({message.id: message for message in both()}.values())) == numbers(56)


def shared_evenly(consumers: list[Client], topic: str) -> bool:
    """Each queue of the topic has exactly one owner, and nobody has more than one queue more than another."""
    for consumer in consumers:
        consumer.do("rebalance")
    held = [consumer.holds(topic) for consumer in consumers]
    all_held = [queue for queues in held for queue in queues]
    sizes = sorted(len(queues) for queues in held)
    return len(all_held) == len(set(all_held)) == 8 and sizes[-1] - sizes[0] <= 1


def test_an_ordered_message_that_fails_holds_back_those_behind_it(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic = server.make_topic(queues=1)
    queue = producer.queues(topic)[0]
    for number in range(3):
        producer.send(topic, b"%d" % number, queue=plain(queue))

    with java.client("push", server, tags={topic: "*"}, ordered=True, failures=2) as consumer:
        messages = consumer.wait_for(9)

    assert [(int(message.body), message.times) for message in messages] == [
        (number, times) for number in range(3) for times in range(3)
    ]


# --- push: broadcasting -------------------------------------------------------------------------------------------


def test_broadcasting_gives_everything_to_everyone(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic, group = server.make_topic(), unique("group")
    producer.send_all(topic, numbers(10))
    options = {"group": group, "tags": {topic: "*"}, "broadcasting": True}
    with java.client("push", server, **options) as one, java.client("push", server, **options) as two:
        for consumer in (one, two):
            assert sorted_bodies(consumer.wait_for(10)) == numbers(10)
            assert len(consumer.holds(topic)) == 8
        queues = one.holds(topic)
    assert {offset_stored(server, group, queue) or 0 for queue in queues} == {0}, (
        "kept by the consumers alone"
    )


# --- lite pull ----------------------------------------------------------------------------------------------------


def require_lite_pull(java: Program, server: ServerUnderTest) -> None:
    if java.version.startswith("5.") and not server.speaks_5x:
        pytest.skip(
            f"the lite pull of the {java.version} client asks with a code that {server.version} does not know"
        )


def test_lite_pull_subscribes_polls_and_commits(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    require_lite_pull(java, server)
    topic, group = server.make_topic(queues=1), unique("group")
    producer.send_all(topic, numbers(20))
    with java.client("lite", server, group=group, tags={topic: "*"}) as consumer:
        assert sorted_bodies(consumer.poll(20)) == numbers(20)
        consumer.do("commit")
        queues = consumer.queues(topic)
        assert [consumer.do("committed", queue=plain(queue)) for queue in queues] == [10, 10]
    eventually(lambda: [offset_stored(server, group, queue) for queue in queues] == [10, 10], "they stay")

    producer.send_all(topic, [b"20", b"21"])
    with java.client("lite", server, group=group, tags={topic: "*"}) as consumer:
        assert sorted_bodies(consumer.poll(2)) == [b"20", b"21"]


def test_lite_pull_filters(java: Program, server: ServerUnderTest, producer: Client) -> None:
    require_lite_pull(java, server)
    topic = server.make_topic(queues=1)
    for number in range(8):
        producer.send(topic, b"%d" % number, tag="AB"[number % 2], properties={"a": str(number)})
    with (
        java.client("lite", server, tags={topic: "B"}) as by_tag,
        java.client("lite", server, sql={topic: "a > 4"}) as by_sql,
    ):
        assert sorted_bodies(by_tag.poll(4)) == [b"1", b"3", b"5", b"7"]
        assert sorted_bodies(by_sql.poll(3)) == [b"5", b"6", b"7"]


def test_lite_pull_assigns_and_seeks(
    java: Program, server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    require_lite_pull(java, server)
    topic = server.make_topic(queues=1)
    queue, other = producer.queues(topic)
    for number in range(10):
        producer.send(topic, b"%d" % number, queue=plain(queue))
        time.sleep(0.01)  # each is stored in a millisecond of its own
    producer.send(topic, b"99", queue=plain(other))
    stored = {message.body: message.stored_ms for message in reader.read_when(topic, 11)}

    with java.client("lite", server) as consumer:
        assert consumer.queues(topic) == [queue, other]
        consumer.do("assign", queues=[plain(queue)])
        assert [message.body for message in consumer.poll(10)] == numbers(10)
        consumer.do("seek", queue=plain(queue), offset=7)
        assert [message.offset for message in consumer.poll(3)] == [7, 8, 9]
        consumer.do("seek_begin", queue=plain(queue))
        assert [message.offset for message in consumer.poll(10)] == list(range(10))
        consumer.do("seek_end", queue=plain(queue))
        producer.send(topic, b"10", queue=plain(queue))
        assert [message.offset for message in consumer.poll(1)] == [10]
        assert consumer.do("offset_at", queue=plain(queue), at_ms=stored[b"4"]) == 4
        consumer.do("commit")
        eventually(lambda: consumer.do("committed", queue=plain(queue)) == 11, "committed")
        with pytest.raises(StockError, match="offset"):
            consumer.do("seek", queue=plain(queue), offset=1_000)


# --- pull ---------------------------------------------------------------------------------------------------------


def test_pull_answers_say_where_the_queue_begins_ends_and_goes_on(
    server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    queue = reader.queues(topic)[0]
    for number in range(10):
        producer.send(topic, b"%d" % number, queue=plain(queue), tag="AB"[number % 2])

    reader.read_when(topic, 10)

    found = reader.pull(queue, 2, most=4)
    assert (found.status, found.first, found.end, found.next) == ("FOUND", 0, 10, 6)
    assert [message.offset for message in found.messages] == [2, 3, 4, 5]
    chosen = reader.pull(queue, 0, tags="B")
    assert (chosen.status, chosen.next) == ("FOUND", 10)
    assert [message.offset for message in chosen.messages] == [1, 3, 5, 7, 9]
    by_sql = eventually(lambda: pulled_by_sql(reader, queue), "the client knows the broker's version")
    assert [message.offset for message in by_sql.messages] == [0, 2, 4, 6, 8]
    nothing = reader.pull(queue, 10)
    assert (nothing.status, nothing.next, nothing.messages) == ("NO_NEW_MSG", 10, [])
    unmatched = reader.pull(queue, 0, tags="C")
    assert (unmatched.status, unmatched.next) == ("NO_MATCHED_MSG", 10)
    beyond = reader.pull(queue, 50)
    assert beyond.status == "OFFSET_ILLEGAL"
    strays_begin_anew = (
        not server.is_own and server.version == "4.9.3"
    )  # later ones, and ours, send them to the end
    assert beyond.next == (0 if strays_begin_anew else 10)


def pulled_by_sql(reader: Client, queue: Queue) -> Pulled | None:
    """None before the first heartbeat was answered: the client reads from the answer whether the broker knows SQL."""
    try:
        return reader.pull(queue, 0, sql="TAGS = 'A'")
    except StockError:
        return None


def test_a_held_pull_is_answered_by_the_message_it_waits_for(
    server: ServerUnderTest, producer: Client, reader: Client
) -> None:
    topic = server.make_topic(queues=1)
    queue = reader.queues(topic)[0]
    before = len(reader.events("pulled"))

    reader.do("wait", queue=plain(queue), offset=0, tags="B")
    producer.send(topic, b"0", queue=plain(queue), tag="A")
    producer.send(topic, b"1", queue=plain(queue), tag="B")
    eventually(lambda: len(reader.events("pulled")) > before, "the held pull is answered")

    found = pulled_of(reader.events("pulled")[-1])
    assert found.status == "FOUND"
    assert [message.body for message in found.messages] == [b"1"]


def test_pull_commits_by_hand_and_sends_back(
    java: Program, server: ServerUnderTest, producer: Client
) -> None:
    topic = server.make_topic(queues=1)
    queue = producer.queues(topic)[0]
    producer.send(topic, b"0", queue=plain(queue))
    with java.client("pull", server) as consumer:
        eventually(lambda: commits(consumer, queue, 1), "the group is known and its offset taken")
        eventually(lambda: offset_stored(server, consumer.group, queue) == 1, "committed")
        assert consumer.do("committed", queue=plain(queue)) == 1

        consumer.do("send_back", queue=plain(queue), offset=0, delay_level=1)
        retry = f"%RETRY%{consumer.group}"
        eventually(lambda: server.route(retry), f"a route of {retry}")
        (again,) = consumer.read_when(retry, 1)
        assert (again.body, again.times) == (b"0", 1)


def commits(consumer: Client, queue: Queue, offset: int) -> bool:
    """False while a 5.x broker has not heard of the group."""
    try:
        consumer.do("commit", queue=plain(queue), offset=offset)
    except StockError:
        return False
    return True
