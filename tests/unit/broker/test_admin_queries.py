"""Looking messages up."""

import pytest

from tests.unit.broker.admin_core import Bench
from trimtab.broker.acl import Account, Acl, Permission, Rules
from trimtab.wire.bodies import QueryConsumeQueueResponseBody, QueryConsumeTimeSpanBody
from trimtab.wire.codes import RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command
from trimtab.wire.hashing import java_hash
from trimtab.wire.headers.admin import QueryConsumeQueue, TopicAndGroup
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.headers.consume import QueryMessage, QueueOnly, SearchOffset, ViewMessage
from trimtab.wire.ids import decode_offset_message_id
from trimtab.wire.messages import StoredMessage, decode_messages
from trimtab.wire.signing import Credentials

EVER = (1 << 63) - 1
V5 = int(Version.V5_0_0)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.make_topic("orders")
    return bench


def query(
    bench: Bench, key: str, topic: str = "orders", most: int = 64, *, unique: bool = False, since: int = 0
) -> Command:
    header = QueryMessage(
        topic=topic, key=key, max_num=most, begin_timestamp=since, end_timestamp=EVER, unique_key_query=unique
    )
    return bench.ask(RequestCode.QUERY_MESSAGE, header)


def found(answer: Command) -> list[bytes]:
    messages: list[StoredMessage] = list(decode_messages(answer.body))
    return [message.body for message in messages]


def test_a_message_is_viewed_at_its_place(bench: Bench) -> None:
    place = decode_offset_message_id(bench.send("orders", b"here")).physical_offset
    assert found(bench.good(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=place))) == [b"here"]


@pytest.mark.parametrize("offset", [-1, 0, 41, 1 << 62])
def test_there_is_no_message_elsewhere(bench: Bench, offset: int) -> None:
    bench.send("orders")
    assert (
        bench.refusal(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=offset))[0]
        == ResponseCode.SYSTEM_ERROR
    )


def test_a_message_is_viewed_by_those_who_may_consume_its_topic(bench: Bench) -> None:
    def account(name: str, permission: Permission) -> Account:
        return Account(access_key=name, secret_key="a long secret key", topics={"orders": permission})

    place = decode_offset_message_id(bench.send("orders")).physical_offset
    readers = {
        name: account(name, what)
        for name, what in (("reader-1", Permission.SUB), ("writer-1", Permission.PUB))
    }
    bench.core.acl = Acl(Rules(accounts=readers))
    for name, allowed in (("reader-1", True), ("writer-1", False)):
        ext = Credentials(name, "a long secret key").signed(encode_ext(ViewMessage(offset=place)), b"")
        answer = bench.ask(RequestCode.VIEW_MESSAGE_BY_ID, ext=dict(ext))
        assert (answer.code == ResponseCode.SUCCESS) is allowed, answer


def test_messages_are_found_by_key_in_the_order_they_were_stored(bench: Bench) -> None:
    for number in range(3):
        bench.send("orders", b"%d" % number, properties={"KEYS": "a b", "UNIQ_KEY": f"U{number}"})
    bench.send("orders", b"other", properties={"KEYS": "c"})
    assert found(query(bench, "a")) == [b"0", b"1", b"2"]
    assert found(query(bench, "b", most=2)) == [b"1", b"2"]
    assert found(query(bench, "U1", unique=True)) == [b"1"]


def test_at_most_64_messages_are_found_and_32_by_unique_key(bench: Bench) -> None:
    for _ in range(70):
        bench.send("orders", properties={"KEYS": "same", "UNIQ_KEY": "U"})
    assert len(found(query(bench, "same", most=1_000))) == 64
    assert len(found(query(bench, "U", most=64, unique=True))) == 32


def test_what_is_found_fits_a_frame(bench: Bench) -> None:
    for _ in range(8):
        bench.send("orders", b"x" * (3 << 20), properties={"KEYS": "big"})
    assert 1 <= len(found(query(bench, "big"))) <= 4


def test_nothing_found_is_said_so(bench: Bench) -> None:
    bench.send("orders", properties={"KEYS": "a"})
    assert query(bench, "b").code == ResponseCode.QUERY_NOT_FOUND
    assert query(bench, "a", topic="elsewhere").code == ResponseCode.QUERY_NOT_FOUND
    assert query(bench, "a", since=bench.now.wall_ms + 1).code == ResponseCode.QUERY_NOT_FOUND


def test_silly_queries_are_refused(bench: Bench) -> None:
    assert query(bench, "x" * 2_000).code == ResponseCode.SYSTEM_ERROR
    assert query(bench, "x", most=0).code == ResponseCode.QUERY_NOT_FOUND


def queue(bench: Bench, index: int, count: int, group: str | None = None) -> QueryConsumeQueueResponseBody:
    header = QueryConsumeQueue(topic="orders", queue_id=0, index=index, count=count, consumer_group=group)
    return bench.body(QueryConsumeQueueResponseBody, RequestCode.QUERY_CONSUME_QUEUE, header)


def test_the_entries_of_a_queue_are_shown(bench: Bench) -> None:
    ids = [bench.send("orders", properties={"TAGS": "eu"}) for _ in range(3)]
    shown = queue(bench, 1, 10)
    assert (shown.min_queue_index, shown.max_queue_index) == (0, 3)
    assert shown.queue_data is not None
    places = [decode_offset_message_id(text).physical_offset for text in ids]
    assert [entry.physic_offset for entry in shown.queue_data] == places[1:]
    assert {entry.tags_code for entry in shown.queue_data} == {java_hash("eu")}
    assert queue(bench, 0, -5).queue_data == ()
    assert queue(bench, 99, 5).queue_data == ()
    assert queue(bench, -99, 5).queue_data == ()


def test_a_queue_is_shown_with_the_subscription_of_a_group(bench: Bench) -> None:
    bench.send("orders")
    assert queue(bench, 0, 1, "billing").filter_data == "billing@orders is not online!"
    bench.join("billing", "orders")
    shown = queue(bench, 0, 1, "billing")
    assert shown.subscription_data is not None
    assert shown.filter_data is None


def test_a_queue_that_never_was_is_refused(bench: Bench) -> None:
    header = QueryConsumeQueue(topic="orders", queue_id=5, index=0, count=1)
    assert bench.refusal(RequestCode.QUERY_CONSUME_QUEUE, header)[0] == ResponseCode.SYSTEM_ERROR


def test_time_spans_of_a_group(bench: Bench) -> None:
    first_ms = bench.now.wall_ms
    bench.send("orders")
    bench.pass_time(1_000)
    bench.send("orders")
    bench.pass_time(1_000)
    bench.commit("orders", "billing", 0, 1)
    header = TopicAndGroup(topic="orders", group="billing")
    spans = bench.body(
        QueryConsumeTimeSpanBody, RequestCode.QUERY_CONSUME_TIME_SPAN, header
    ).consume_time_span_set
    filled, empty = spans
    assert filled.message_queue is not None
    assert filled.message_queue.queue_id == 0
    assert (filled.min_time_stamp, filled.max_time_stamp) == (first_ms, first_ms + 1_000)
    assert (filled.consume_time_stamp, filled.delay_time) == (first_ms, 1_000)
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)
    unknown = TopicAndGroup(topic="x", group="billing")
    assert bench.refusal(RequestCode.QUERY_CONSUME_TIME_SPAN, unknown)[0] == ResponseCode.TOPIC_NOT_EXIST


def at_time(bench: Bench, time_ms: int, *, version: int = 399, side: str | None = None) -> int:
    header = SearchOffset(topic="orders", queue_id=0, timestamp=time_ms, boundary_type=side)
    return int(bench.good(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, version=version).ext["offset"])


def test_a_time_between_two_messages_means_another_one_to_each_kind_of_client(bench: Bench) -> None:
    first_ms = bench.now.wall_ms
    bench.send("orders", b"first")
    bench.pass_time(10_000)
    bench.send("orders", b"second")
    soon_after = first_ms + 3_000
    assert at_time(bench, soon_after) == 0  # 4.9: the nearer one
    assert at_time(bench, soon_after, version=V5) == 1  # 5.x: the first that is not older
    assert at_time(bench, soon_after, side="UPPER") == 0
    assert at_time(bench, soon_after, side="LOWER") == 1
    assert at_time(bench, first_ms + 60_000) == 1
    assert at_time(bench, first_ms + 60_000, version=V5) == 2


def test_the_oldest_message_says_when_it_was_stored_and_an_empty_queue_says_minus_one(bench: Bench) -> None:
    stored_ms = bench.now.wall_ms
    bench.send("orders")

    def earliest(queue_id: int) -> int:
        header = QueueOnly(topic="orders", queue_id=queue_id)
        return int(bench.good(RequestCode.GET_EARLIEST_MSG_STORETIME, header).ext["timestamp"])

    assert (earliest(0), earliest(1)) == (stored_ms, -1)
