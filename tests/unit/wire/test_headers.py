import pytest

from trimtab.errors import BadHeaderError
from trimtab.wire.headers.admin import ResetOffset
from trimtab.wire.headers.base import decode_ext, encode_ext
from trimtab.wire.headers.consume import PullMessage, QueryMessage, UnregisterClient
from trimtab.wire.headers.send import SendMessageV2

SEND = {
    "a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
    "i": "p", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


def test_fields_carry_javas_names() -> None:
    header = PullMessage(
        consumer_group="g", topic="T", queue_id=1, queue_offset=2, max_msg_nums=32, sys_flag=3,
        commit_offset=4, suspend_timeout_millis=15000, sub_version=5,
    )  # fmt: skip
    assert encode_ext(header) == {
        "consumerGroup": "g", "topic": "T", "queueId": "1", "queueOffset": "2", "maxMsgNums": "32", "sysFlag": "3",
        "commitOffset": "4", "suspendTimeoutMillis": "15000", "subVersion": "5",
    }  # fmt: skip
    assert decode_ext(PullMessage, encode_ext(header)) == header


def test_irregular_names_are_kept() -> None:
    assert encode_ext(UnregisterClient(client_id="c")) == {"clientID": "c"}
    query = QueryMessage(
        topic="T", key="k", max_num=1, begin_timestamp=0, end_timestamp=1, unique_key_query=True
    )
    assert encode_ext(query)["_UNIQUE_KEY_QUERY"] == "true"
    assert encode_ext(ResetOffset(topic="T", group="g", timestamp=1, is_force=True))["isForce"] == "true"


def test_one_letter_names_of_a_send() -> None:
    header = decode_ext(SendMessageV2, SEND)
    assert (header.producer_group, header.topic, header.properties, header.batch) == ("pg", "T", "p", False)
    assert encode_ext(header) == SEND


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("false", False), ("1", False), ("", False), ("yes", False)],
)
def test_a_boolean_is_true_in_any_case_or_false(text: str, value: bool) -> None:
    assert decode_ext(SendMessageV2, {**SEND, "m": text}).batch is value


def test_unknown_fields_are_ignored() -> None:
    assert decode_ext(SendMessageV2, {**SEND, "nsd": "true", "bname": "b"}).topic == "T"


@pytest.mark.parametrize(
    "change",
    [
        {"e": "x"}, {"e": ""}, {"e": "2147483648"}, {"g": str(2**63)}, {"e": "1.5"}, {"e": "9" * 5000}, {"e": " 1"}, {"d": "0x4"},
    ],
)  # fmt: skip
def test_a_bad_number_is_a_bad_header(change: dict[str, str]) -> None:
    with pytest.raises(BadHeaderError, match="SendMessageV2"):
        decode_ext(SendMessageV2, {**SEND, **change})


def test_a_missing_required_field_is_named() -> None:
    with pytest.raises(BadHeaderError, match="`b`"):
        decode_ext(SendMessageV2, {name: value for name, value in SEND.items() if name != "b"})
