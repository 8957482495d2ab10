"""Trace records are written as Java's client writes them, gather, and never stand in the way."""

import asyncio

from trimtab.client.producer_properties import properties_of
from trimtab.client.tracing import (
    RECORDS_MAX,
    RECORDS_TOGETHER_MAX,
    Record,
    Tracer,
    end_transaction,
    messages_of,
    pub,
    sub_after,
    sub_before,
)
from trimtab.io.clock import SystemClock
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.wire.properties import PROPERTIES_BYTES_MAX

MESSAGE = Message("T", b"12345", tag="eu", keys=["k1", "k2"])
RECEIPT = Receipt("SEND_OK", "UID", "OID", MessageQueue("T", "b", 0), 7)


def fields(*texts: str) -> str:
    return "\x01".join(texts) + "\x02"


def test_pub() -> None:
    record = pub(
        now_ms=1, region="R", group="g", message=MESSAGE, receipt=RECEIPT, address="h:1", cost_ms=3, kind=0
    )
    assert record.text == fields(
        "Pub", "1", "R", "g", "T", "UID", "eu", "k1 k2", "h:1", "5", "3", "0", "OID", "true"
    )
    assert record.keys == ("UID", "k1", "k2")


def test_what_is_not_there_is_the_word_null() -> None:
    bare = pub(
        now_ms=1, region="R", group="g", message=Message("T", b"x"), receipt=RECEIPT, address="h:1", cost_ms=3, kind=0
    )  # fmt: skip
    assert bare.text.split("\x01")[6:8] == ["null", "null"]


def test_end_of_a_transaction() -> None:
    record = end_transaction(
        now_ms=1, region="R", group="g", message=MESSAGE, message_id="UID", address="h:1", resolution="UNKNOWN", from_check=True
    )  # fmt: skip
    assert record.text == fields(
        "EndTransaction", "1", "R", "g", "T", "UID", "eu", "k1 k2", "h:1", "2", "UID", "UNKNOW", "true"
    )


def test_a_consumer_s_records() -> None:
    before = sub_before(
        now_ms=1, region="R", group="g", request_id="Q", message_id="UID", retry_times=2, keys=("k",)
    )
    after = sub_after(
        now_ms=9, group="g", request_id="Q", message_id="UID", cost_ms=4, is_success=False, keys=(), context_code=2
    )  # fmt: skip
    assert before.text == fields("SubBefore", "1", "R", "g", "Q", "UID", "2", "k")
    assert after.text == fields("SubAfter", "Q", "UID", "4", "false", "null", "2", "9", "g")


def test_records_leave_in_messages_of_bounded_size_with_all_keys() -> None:
    records = [Record(f"r{number}\x02", (f"k{number}", "same")) for number in range(RECORDS_TOGETHER_MAX + 1)]
    first, second = messages_of(records)
    assert first.body.count(b"\x02") == RECORDS_TOGETHER_MAX
    assert first.keys[:3] == ("k0", "same", "k1")
    assert second.body == f"r{RECORDS_TOGETHER_MAX}\x02".encode()
    assert len(messages_of([Record("x" * 100_000, ())] * 3)) == 3


def test_keys_that_are_long_make_more_messages_and_none_that_cannot_be_sent() -> None:
    many = [
        Record(f"{n}\x02", (f"ID{n}", *(f"{n:03d}-{k}-{'ä' * 15}" for k in range(12)))) for n in range(200)
    ]
    endless = Record("200\x02", ("ID200", "x" * 31_000, "short"))
    messages = messages_of([*many, endless])
    assert b"".join(message.body for message in messages) == b"".join(b"%d\x02" % n for n in range(201))
    assert {key for message in messages for key in message.keys if key.startswith("ID")} == {
        f"ID{n}" for n in range(201)
    }
    assert "short" in messages[-1].keys
    for message in messages:
        assert len(properties_of(message, "0" * 32)) < PROPERTIES_BYTES_MAX


def test_too_many_records_are_dropped_and_counted_and_a_failing_send_fails_nothing() -> None:
    async def run() -> Tracer:
        async def send(_message: Message) -> None:
            raise OSError("nobody is there")

        tracer = Tracer(send, SystemClock(), "g", "id")
        for _ in range(RECORDS_MAX + 5):
            tracer.tell(Record("r\x02", ()))
        await tracer.close()
        return tracer

    assert asyncio.run(run()).dropped == 5
