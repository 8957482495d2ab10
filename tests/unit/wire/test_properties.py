"""The properties string."""

import pytest

from trimtab.errors import InvalidMessageError
from trimtab.wire import properties
from trimtab.wire.properties import (
    PROPERTIES_BYTES_MAX,
    RESERVED,
    decode_properties,
    decode_text,
    encode_properties,
    find_property,
    join_properties,
    split_keys,
)


def test_properties_are_written_without_a_last_separator() -> None:
    assert encode_properties({"WAIT": "true", "TAGS": "tag"}) == b"WAIT\x01true\x02TAGS\x01tag"
    assert encode_properties({}) == b""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"\x02", {}),
        (b"\x01", {}),
        (b"a", {}),
        (b"a\x01", {}),
        (b"\x01b", {}),
        (b"a\x01\x02b\x01c", {"b": "c"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"\x02\x02a\x01b\x02\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01b\x01c", {"a": "b\x01c"}),
        (b"a\x01\x01", {"a": "\x01"}),
        (b"a\x01b\x02c\x02d\x01e", {"a": "b", "d": "e"}),
        (b"a\x011\x02b\x012\x02a\x013", {"a": "3", "b": "2"}),
        (b"a\x011\x02a\x01", {"a": "1"}),
    ],
)
def test_reading_is_as_forgiving_as_javas(data: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0\x41", "\ufffdA"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xf0\x9f\x98\x41", "\ufffdA"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        ("é标😀".encode(), "é标😀"),
    ],
)
def test_text_that_is_not_utf8_is_mended_as_java_does(data: bytes, expected: str) -> None:
    assert decode_text(data) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"": "v"},
        {"n": ""},
        {"n\x01": "v"},
        {"n\x02": "v"},
        {"n": "v\x02"},
        {"n": "v", "m": "\x02"},
        {"n": "\ud800"},
    ],
)
def test_what_a_reader_would_not_get_back_is_not_written(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidMessageError):
        encode_properties(wrong)


def test_a_value_may_hold_the_separator_between_name_and_value() -> None:
    assert decode_properties(encode_properties({"n": "a\x01b"})) == {"n": "a\x01b"}


def test_properties_have_an_end() -> None:
    fits = {"n": "v" * (PROPERTIES_BYTES_MAX - 2)}
    assert len(encode_properties(fits)) == PROPERTIES_BYTES_MAX
    with pytest.raises(InvalidMessageError, match="32767"):
        encode_properties({"n": fits["n"] + "v"})


def test_one_property_is_found_by_its_whole_name_only() -> None:
    data = b"XTAGS\x01x\x02TAGS\x01a\x01TAGS\x01b\x02TAGS2\x01c"
    assert find_property(data, b"TAGS") == b"a\x01TAGS\x01b"
    assert find_property(data, b"TAG") is None


def test_of_two_properties_with_one_name_the_last_with_a_value_is_found() -> None:
    assert find_property(b"a\x011\x02a\x012\x02a\x01", b"a") == b"2"


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        (b"", b"", b""),
        (b"a\x01b", b"", b"a\x01b"),
        (b"", b"c\x01d", b"c\x01d"),
        (b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02", b"c\x01d", b"a\x01b\x02c\x01d"),
    ],
)
def test_properties_are_joined_with_one_separator(first: bytes, second: bytes, joined: bytes) -> None:
    assert join_properties(first, second) == joined


def test_keys_are_separated_by_spaces_and_by_nothing_else() -> None:
    assert split_keys(" a  b\tc ") == ("a", "b\tc")
    assert split_keys(None) == ()
    assert split_keys("  ") == ()


def test_every_name_with_a_constant_is_reserved() -> None:
    constants = {
        value
        for name, value in vars(properties).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    }
    assert constants - RESERVED == {properties.TRANSIENT_PREFIX}
    assert {"BUYER_ID", "1ST_POP_TIME", "__BORNHOST", "TIMER_DELIVER_MS"} <= RESERVED
