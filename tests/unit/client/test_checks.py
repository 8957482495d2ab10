"""Mistakes are named before anything is sent."""

import pytest

from trimtab.client.checks import check_body, check_group, check_topic
from trimtab.client.producer_properties import properties_of
from trimtab.errors import InvalidMessageError
from trimtab.model import Message
from trimtab.wire.properties import decode_properties


@pytest.mark.parametrize(
    ("topic", "rule"),
    [
        ("", "no name"), ("a" * 128, "128 characters"), ("a b", "letters, digits"), ("a/b", "letters, digits"),
        ("ä", "letters, digits"), ("SCHEDULE_TOPIC_XXXX", "belongs to the broker"),
    ],
)  # fmt: skip
def test_a_bad_topic_names_the_rule(topic: str, rule: str) -> None:
    with pytest.raises(InvalidMessageError, match=rule):
        check_topic(topic)


@pytest.mark.parametrize("group", ["", "a" * 256, "a.b", "DEFAULT_PRODUCER"])
def test_a_bad_group_is_refused(group: str) -> None:
    with pytest.raises(InvalidMessageError):
        check_group(group)


def test_good_names_pass() -> None:
    check_topic("orders-eu_1|%")
    check_group("g" * 255)


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        (Message("T", b"x", tag=" "), "tag is blank"),
        (Message("T", b"x", tag="a\x01b"), "control character"),
        (Message("T", b"x", keys=["a b"]), "has a space"),
        (Message("T", b"x", keys=[""]), "key is blank"),
        (Message("T", b"x", properties={"TAGS": "x"}), "reserved"),
        (Message("T", b"x", properties={"a": ""}), "property 'a' is blank"),
        (Message("T", b"x", properties={"": "v"}), "property name is blank"),
        (Message("T", b"x", properties={"a": "v\x02"}), "control character"),
        (Message("T", b"x", properties={"a": "v" * 40_000}), "at most 32767"),
    ],
)
def test_a_bad_property_names_the_rule(message: Message, rule: str) -> None:
    with pytest.raises(InvalidMessageError, match=rule):
        properties_of(message, "ID")


def test_properties_travel_as_java_writes_them() -> None:
    message = Message("T", b"x", tag="eu", keys=["k1", "k2"], properties={"p": "v"}, delay_level=3)
    assert decode_properties(properties_of(message, "ID")) == {
        "UNIQ_KEY": "ID", "WAIT": "true", "TAGS": "eu", "KEYS": "k1 k2", "DELAY": "3", "p": "v",
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"", b"x" * 101])
def test_a_body_must_be_there_and_not_too_long(body: bytes) -> None:
    with pytest.raises(InvalidMessageError, match="body"):
        check_body(Message("T", body), bytes_max=100)
