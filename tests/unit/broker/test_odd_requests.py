"""Odd requests are answered as Apache's broker answers them, and the connection lives on."""

from typing import Any

import msgspec
import pytest

from tests.unit.broker.driver import Driver
from trimtab.wire.batch import BatchEntry, encode_batch
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset
from trimtab.wire.headers.send import SendMessageResponse


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.CHECK_CLIENT_CONFIG,
    ],
)
@pytest.mark.parametrize("body", [b"", b"{nope", b"[]", b"\xff" * 9])
def test_a_body_that_cannot_be_read_costs_only_its_own_request(code: RequestCode, body: bytes) -> None:
    client = Driver().connect()
    assert client.ask(code, body=body).code == ResponseCode.SYSTEM_ERROR
    client.send("T")


@pytest.mark.parametrize("body", [b"", b"\0\0\0\5ab", b"\0\0\0\x17" + bytes(40), b"\xff" * 30])
def test_a_batch_that_cannot_be_read_costs_only_its_own_request(body: bytes) -> None:
    client = Driver().connect()
    header = msgspec.structs.replace(client.send_header("T"), batch=True)
    assert client.ask(RequestCode.SEND_BATCH_MESSAGE, header, body).code == ResponseCode.MESSAGE_ILLEGAL
    client.send("T")


def test_a_send_that_calls_itself_a_batch_is_one() -> None:
    client = Driver().connect()
    header = msgspec.structs.replace(client.send_header("T"), batch=True)
    body = encode_batch([BatchEntry(b"1", b""), BatchEntry(b"2", b"")])
    answer = client.ask(RequestCode.SEND_MESSAGE_V2, header, body)
    assert len(decode_ext(SendMessageResponse, answer.ext).msg_id.split(",")) == 2
    assert [message.body for message in client.pull("T")] == [b"1", b"2"]


def test_a_batch_cannot_be_delayed() -> None:
    client = Driver().connect()
    header = msgspec.structs.replace(client.send_header("T", DELAY="2"), batch=True)
    answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch([BatchEntry(b"1", b"")]))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("||", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("||||", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (" || a", ResponseCode.PULL_RETRY_IMMEDIATELY),
        ("a||", ResponseCode.PULL_RETRY_IMMEDIATELY),
    ],
)
def test_a_list_of_no_tags_is_no_subscription(expression: str, code: ResponseCode) -> None:
    client = Driver().connect()
    client.send("T", TAGS="b")
    header = client.pull_header("T", subscription=expression)
    assert client.ask(RequestCode.PULL_MESSAGE, header).code == code


def test_a_commit_below_zero_counts_as_none() -> None:
    client = Driver().connect()
    client.send("T")
    place: dict[str, Any] = {"consumer_group": "g", "topic": "T", "queue_id": 0}
    client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset(**place, commit_offset=-1))
    answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffset(**place))
    assert decode_ext(OffsetResponse, answer.ext).offset == 0
