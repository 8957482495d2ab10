"""Sends that come in one read: however many are taken together, each is stored and answered as if it had come alone."""

from typing import Any, NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.driver import Client, Driver
from trimtab.broker.prepared import PreparedTogether, Preparer
from trimtab.broker.settings import BrokerSettings
from trimtab.wire.batch import BatchEntry, encode_batch
from trimtab.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.headers.base import encode_ext
from trimtab.wire.messages import StoredMessage
from trimtab.wire.properties import REAL_TOPIC

TOPICS = ("T", "U", "new", "SCHEDULE_TOPIC_XXXX", "bad topic")
QUEUES = range(4)
BODY_BYTES_MAX = 100


class Sent(NamedTuple):
    """One message on the wire."""

    topic: str
    queue_id: int
    body: bytes
    properties: str | None
    flag: int
    sys_flag: int
    is_oneway: bool
    is_batch: bool


ordinary = st.builds(
    lambda unique, tag: f"UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02TAGS\x01{tag}",
    st.sampled_from(["7F0001", "7F0002", "7F00021"]),
    st.sampled_from(["red", "blue"]),
)
properties = st.one_of(
    ordinary,
    st.sampled_from(
        [None, "", "a\x01b\x02", "DELAY\x011", "TRAN_MSG\x01true\x02PGROUP\x01g", "v\x01" + "v" * 32_766]
    ),
)
usual = st.builds(
    Sent, st.sampled_from("TU"), st.sampled_from(QUEUES), st.binary(max_size=9), ordinary, st.just(0), st.just(0),
    st.just(False), st.just(False),
)  # fmt: skip
odd = st.builds(
    Sent, st.sampled_from(TOPICS), st.sampled_from([0, 1, 3, 4, 99]), st.binary(max_size=9) | st.just(bytes(BODY_BYTES_MAX + 1)),
    properties, st.integers(-1, 1), st.sampled_from([0, 1, 0x10]), st.booleans(), st.booleans(),
)  # fmt: skip


@given(st.lists(st.one_of(usual, usual, odd), max_size=12))
def test_one_read_gives_what_as_many_reads_as_messages_give(sent: list[Sent]) -> None:
    assert _outcome(sent, at_once=True) == _outcome(sent, at_once=False)


def _outcome(sent: list[Sent], *, at_once: bool) -> tuple[Any, ...]:
    """Answers by request, and the messages of every queue; without places in the log, of which the order is free.

    So is the order of topics, and with it that of their messages among each other where several wait in one queue.
    """
    broker = Driver(BrokerSettings(message_bytes_max=BODY_BYTES_MAX))
    client = broker.connect()
    client.send("T")
    client.send("U", queue_id=1)
    frames = [_frame(client, number, one) for number, one in enumerate(sent, 1_000)]
    for read in [b"".join(frames)] if at_once else frames:
        broker.feed(client, read)
    answers = {
        opaque: (
            answer.code,
            answer.remark,
            answer.ext.get("queueId"),
            *_offset(answer, sent[opaque - 1_000]),
        )
        for opaque, answer in client.answers.items()
        if opaque >= 1_000
    }
    stored: dict[tuple[str, int, str], list[tuple[Any, ...]]] = {}
    for topic in broker.core.store.topics():
        for queue_id in broker.core.store.queue_ids(topic):
            for message in client.pull(topic, queue_id):
                real_topic = message.properties.get(REAL_TOPIC, "")
                place = () if real_topic else (message.queue_offset,)
                stored.setdefault((topic, queue_id, real_topic), []).append((*place, *_content(message)))
    found = [
        sorted(m.queue_offset for m in broker.core.store.query_by_key(topic, "7F0001", 32)) for topic in "TU"
    ]
    return answers, stored, found


def _offset(answer: Command, sent: Sent) -> tuple[str | None, ...]:
    waits = any(hold in (sent.properties or "") for hold in ("DELAY\x01", "TRAN_MSG\x01"))
    return () if waits else (answer.ext.get("queueOffset"),)


def _content(message: StoredMessage) -> tuple[Any, ...]:
    return (
        message.stored_body,
        message.properties_bytes,
        message.flag,
        message.sys_flag,
        message.body_crc,
        message.born_host_bytes,
    )


def _frame(client: Client, opaque: int, sent: Sent) -> bytes:
    header = msgspec.structs.replace(
        client.send_header(sent.topic, queue_id=sent.queue_id),
        properties=sent.properties,
        flag=sent.flag,
        sys_flag=sent.sys_flag,
        batch=sent.is_batch,
    )
    body = encode_batch([BatchEntry(sent.body, b"")] * 2) if sent.is_batch else sent.body
    command = Command(
        code=RequestCode.SEND_MESSAGE_V2,
        opaque=opaque,
        flag=ONEWAY_FLAG if sent.is_oneway else 0,
        ext=encode_ext(header),
        body=body,
    )
    return encode_command(command)


def test_messages_of_one_queue_that_come_in_one_read_lie_side_by_side() -> None:
    broker = Driver()
    client = broker.connect()
    client.send("T")
    sends = [Sent("T", number % 2, b"%d" % number, "a\x01b", 0, 0, False, False) for number in range(8)]
    broker.feed(client, b"".join(_frame(client, number, one) for number, one in enumerate(sends, 1_000)))
    for queue_id, expected in ((0, [b"0", b"2", b"4", b"6"]), (1, [b"1", b"3", b"5", b"7"])):
        messages = [message for message in client.pull("T", queue_id) if message.body != b"body"]
        assert [message.body for message in messages] == expected
        ends = [message.physical_offset + message.stored_size for message in messages]
        assert [message.physical_offset for message in messages[1:]] == ends[:-1]


class Defective(Preparer):
    """Fails the second time that it is asked for several."""

    calls = 0

    def prepare_together(self, properties: list[bytes], suffix: bytes) -> PreparedTogether:
        self.calls += 1
        if self.calls == 2:
            raise ZeroDivisionError("a defect of ours")
        return super().prepare_together(properties, suffix)


def test_a_defect_in_the_midst_of_a_read_answers_nobody_twice() -> None:
    """Messages of one topic are stored and their answers promised; then a defect shows with those of another."""
    broker = Driver()
    client = broker.connect()
    for topic in "TUV":
        client.send(topic)
    preparer = broker.core.preparer = Defective()
    sends = [Sent("TUV"[number % 3], 0, b"%d" % number, "a\x01b", 0, 0, False, False) for number in range(9)]
    client.answers.clear()
    broker.feed(client, b"".join(_frame(client, number, one) for number, one in enumerate(sends, 1_000)))
    assert preparer.calls == 3
    failed = {1_000 + number: ResponseCode.SYSTEM_ERROR if number % 3 == 1 else 0 for number in range(9)}
    assert {opaque: answer.code for opaque, answer in client.answers.items()} == failed
    assert [len(client.pull(topic)) for topic in "TUV"] == [4, 1, 4]
    assert [type(error) for _, error in broker.core.incidents] == [ZeroDivisionError]
