"""Sends: what is stored, what is refused, and when a sender hears of it."""

import msgspec
import pytest

from tests.unit.broker.driver import Driver, HeldExecutor
from trimtab.broker.settings import BrokerSettings
from trimtab.wire.batch import BatchEntry, encode_batch
from trimtab.wire.bodies import TopicConfig
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.send import SendMessage, SendMessageResponse
from trimtab.wire.properties import encode_properties


def test_a_message_is_stored_as_it_was_sent_with_the_cluster_added_and_wait_removed() -> None:
    client = Driver().connect()
    receipt = client.send(
        "T", b"body", queue_id=2, TAGS="eu", KEYS="a b", UNIQ_KEY="U1", WAIT="true", user="Grüße"
    )
    (found,) = client.pull("T", queue_id=2)
    assert found.properties == {
        "TAGS": "eu", "KEYS": "a b", "UNIQ_KEY": "U1", "user": "Grüße", "CLUSTER": "DefaultCluster",
    }  # fmt: skip
    assert (found.body, found.flag, found.queue_offset, found.queue_id) == (b"body", 7, 0, 2)
    assert found.offset_message_id == receipt.msg_id
    assert (receipt.queue_id, receipt.queue_offset, receipt.region, receipt.trace_on) == (
        2,
        0,
        "DefaultRegion",
        "true",
    )


@pytest.mark.parametrize("wait_at", [0, 1, 2])
def test_wait_is_removed_wherever_it_stands_and_nothing_else(wait_at: int) -> None:
    client = Driver().connect()
    pairs = ["A\x01WAIT", "XWAIT\x01true"]
    pairs.insert(wait_at, "WAIT\x01true")
    header = client.send_header("T")
    for text in ("\x02".join(pairs), "\x02".join(pairs) + "\x02"):
        raw = type(header)(**{f: getattr(header, f) for f in header.__struct_fields__} | {"properties": text})
        assert client.ask(RequestCode.SEND_MESSAGE_V2, raw, b"x").code == ResponseCode.SUCCESS
    for found in client.pull("T"):
        assert found.properties == {"A": "WAIT", "XWAIT": "true", "CLUSTER": "DefaultCluster"}


def test_the_long_names_do_the_same() -> None:
    client = Driver().connect()
    header = SendMessage(
        producer_group="pg", topic="T", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1, sys_flag=0,
        born_timestamp=1, flag=3, properties="TAGS\x01a",
    )  # fmt: skip
    assert client.ask(RequestCode.SEND_MESSAGE, header, b"x").code == ResponseCode.SUCCESS
    (found,) = client.pull("T", queue_id=1)
    assert (found.body, found.tag, found.flag, found.born_timestamp) == (b"x", "a", 3, 1)


def test_a_batch_becomes_single_messages_one_after_the_other() -> None:
    client = Driver().connect()
    entries = [BatchEntry(b"b%d" % n, encode_properties({"WAIT": "true", "n": str(n)}), n) for n in range(3)]
    header = client.send_header("T", WAIT="true", common="yes")
    answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(entries))
    receipt = decode_ext(SendMessageResponse, answer.ext)
    found = client.pull("T")
    assert [(m.body, m.properties["n"], m.flag) for m in found] == [
        (b"b0", "0", 0),
        (b"b1", "1", 1),
        (b"b2", "2", 2),
    ]
    assert {m.properties["common"] for m in found} == {"yes"}
    assert "WAIT" not in found[0].properties
    assert receipt.msg_id == ",".join(m.offset_message_id for m in found)
    assert receipt.queue_offset == 0


@pytest.mark.parametrize("body", [b"", b"\0" * 20, bytes.fromhex("0000002a 00000000")])
def test_a_broken_batch_is_refused_and_nothing_of_it_is_stored(body: bytes) -> None:
    client = Driver().connect()
    client.send("T", b"first")
    opaque = client.request(RequestCode.SEND_BATCH_MESSAGE, client.send_header("T"), body)
    assert client.is_closed or client.answers[opaque].code == ResponseCode.MESSAGE_ILLEGAL


def test_a_batch_is_stored_as_a_whole_or_not_at_all() -> None:
    broker = Driver(settings=BrokerSettings(message_bytes_max=100))
    client = broker.connect()
    good = BatchEntry(b"good", b"")
    bad = [BatchEntry(bytes(101), b""), BatchEntry(b"x", b"a\x01" + b"v" * 32_765)]
    for entry in bad:
        body = encode_batch([good, entry, good])
        answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, client.send_header("T"), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert client.bodies("T") == []
    assert broker.core.stats.totals().put_messages == 0


def test_what_a_batch_says_of_all_its_messages_does_not_multiply_without_bounds() -> None:
    client = Driver().connect()
    body = encode_batch([BatchEntry(b"", b"")] * 1_000)
    answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, client.send_header("T", common="v" * 20_000), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "at most" in str(answer.remark)


def test_a_one_way_send_is_stored_and_not_answered() -> None:
    client = Driver().connect()
    opaque = client.request(RequestCode.SEND_MESSAGE_V2, client.send_header("T"), b"x", is_oneway=True)
    assert opaque not in client.answers
    assert client.bodies("T") == [b"x"]


def test_sending_to_a_topic_that_does_not_exist_makes_it_with_the_queues_asked_for() -> None:
    broker = Driver()
    broker.connect().send("new")
    topic = broker.core.topics.get("new")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)


def test_without_leave_to_make_topics_there_is_no_such_topic() -> None:
    client = Driver(settings=BrokerSettings(auto_create_topics=False)).connect()
    assert (
        client.ask(RequestCode.SEND_MESSAGE_V2, client.send_header("new"), b"x").code
        == ResponseCode.TOPIC_NOT_EXIST
    )


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("../../../../topic2020", ResponseCode.SYSTEM_ERROR),
        ("a b", ResponseCode.SYSTEM_ERROR),
        ("x" * 128, ResponseCode.SYSTEM_ERROR),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
        ("TRANS_CHECK_MAX_TIME_TOPIC", ResponseCode.NO_PERMISSION),
    ],
)
def test_bad_and_forbidden_topics_are_refused(topic: str, code: ResponseCode) -> None:
    client = Driver().connect()
    assert client.ask(RequestCode.SEND_MESSAGE_V2, client.send_header(topic), b"x").code == code


def test_a_queue_that_does_not_exist_is_refused_and_minus_one_means_any() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T")
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, client.send_header("T", queue_id=4), b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    for _ in range(20):
        assert 0 <= client.send("T", queue_id=-1).queue_id < 4


def test_a_topic_without_queues_to_write_takes_nothing_that_nobody_could_read() -> None:
    broker = Driver()
    client = broker.connect()
    broker.core.topics.put(TopicConfig(topic_name="T", read_queue_nums=0, write_queue_nums=0), broker.now)
    header = client.send_header("T", queue_id=-1)
    assert client.ask(RequestCode.SEND_MESSAGE_V2, header, b"x").code == ResponseCode.SYSTEM_ERROR
    assert broker.core.store.max_offset("T", 0) == 0


@pytest.mark.parametrize("queues", [0, -1])
def test_a_topic_made_by_sending_has_a_queue_at_least(queues: int) -> None:
    broker = Driver()
    client = broker.connect()
    header = msgspec.structs.replace(client.send_header("T", queue_id=0), default_topic_queue_nums=queues)
    assert client.ask(RequestCode.SEND_MESSAGE_V2, header, b"x").code == ResponseCode.SUCCESS
    topic = broker.core.topics.get("T")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums) == (1, 1)
    assert [found.body for found in client.pull("T")] == [b"x"]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("DELAY", "1", ResponseCode.MESSAGE_ILLEGAL),
        ("TIMER_DELAY_SEC", "10", ResponseCode.MESSAGE_ILLEGAL),
        ("TIMER_DELAY_MS", "10", ResponseCode.MESSAGE_ILLEGAL),
        ("TIMER_DELIVER_MS", "10", ResponseCode.MESSAGE_ILLEGAL),
        ("DELAY", "0", ResponseCode.SUCCESS),
        ("MY_DELAY", "1", ResponseCode.SUCCESS),
    ],
)
def test_a_batch_is_not_delivered_before_the_time_that_it_asks_for(
    name: str, value: str, code: ResponseCode
) -> None:
    client = Driver().connect()
    properties = encode_properties({name: value}).decode()
    header = msgspec.structs.replace(client.send_header("T"), properties=properties)
    body = encode_batch([BatchEntry(b"x", b"", 0)])
    assert client.ask(RequestCode.SEND_BATCH_MESSAGE, header, body).code == code


def test_a_body_over_the_limit_is_refused() -> None:
    client = Driver(settings=BrokerSettings(message_bytes_max=100)).connect()
    client.send("T", bytes(100))
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, client.send_header("T"), bytes(101))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_the_number_of_topics_is_bounded() -> None:
    client = Driver(settings=BrokerSettings(topics_max=20)).connect()
    codes = [
        client.ask(RequestCode.SEND_MESSAGE_V2, client.send_header(f"t{n}"), b"x").code for n in range(30)
    ]
    assert codes[0] == ResponseCode.SUCCESS
    assert codes[-1] == ResponseCode.SYSTEM_ERROR


def test_g1_a_sender_hears_only_when_the_message_is_durable_and_nobody_reads_it_before() -> None:
    disk = HeldExecutor()
    broker = Driver(sync_executor=disk)
    sender, reader = broker.connect(), broker.connect()
    opaque = sender.request(RequestCode.SEND_MESSAGE_V2, sender.send_header("T"), b"x")
    assert opaque not in sender.answers
    assert reader.bodies("T") == []
    disk.run()
    assert sender.answers[opaque].code == ResponseCode.SUCCESS
    assert reader.bodies("T") == [b"x"]


def test_a_topic_whose_saving_a_crash_prevented_is_known_again_from_its_messages() -> None:
    broker = Driver()
    broker.connect().send("T", b"kept", queue_id=3)
    broker.core.store.save_state("topics", b"{}")
    broker.restart(crash=True)
    topic = broker.core.topics.get("T")
    assert topic is not None
    assert topic.read_queue_nums == 4
    assert broker.connect().bodies("T", queue_id=3) == [b"kept"]
