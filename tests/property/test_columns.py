"""Columns must say what the objects say, on every input."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_messages import stored_messages
from trimtab.errors import ProtocolError
from trimtab.wire.columns import COLUMNS, SCHEMA, decode_columns
from trimtab.wire.messages import Storable, StoredMessage, decode_messages, encode_stored

TIMES = {"born_timestamp", "store_timestamp"}
bodies = st.lists(stored_messages(), max_size=6)


def expected(messages: list[StoredMessage], name: str) -> list[Any]:
    values = [getattr(message, name) for message in messages]
    if name == "properties":
        return [list(value.items()) for value in values]
    return [list(value) for value in values] if name == "keys" else values


def column(batch: pa.RecordBatch, name: str) -> list[Any]:
    values = batch.column(name)
    # Python's datetime ends in the year 9999, Arrow's does not.
    return (values.cast(pa.int64()) if name in TIMES else values).to_pylist()


def assert_same(batch: pa.RecordBatch, messages: list[StoredMessage]) -> None:
    batch.validate(full=True)
    assert batch.num_rows == len(messages)
    for name in batch.schema.names:
        assert column(batch, name) == expected(messages, name), name


@given(bodies)
def test_columns_equal_objects(messages: list[bytes]) -> None:
    body = b"".join(messages)
    batch = decode_columns(body)
    assert batch.schema == SCHEMA
    assert_same(batch, decode_messages(body))


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    """Messages whose properties have the same names in the same places; now and then one has not."""
    property_names = draw(
        st.lists(st.sampled_from([b"UNIQ_KEY", b"TAGS", b"KEYS", b"n", b"m", b""]), max_size=4)
    )
    values = st.sampled_from([b"ab", b"a ", b"\x01b", b"\x02b", b"\xc3\xa9", b"\xff\xff", b"  "])
    rows = draw(st.lists(st.lists(values, min_size=4, max_size=4), min_size=1, max_size=5))
    properties = [b"\x02".join(map(b"\x01".join, zip(property_names, row, strict=False))) for row in rows]
    has_stranger = draw(st.booleans())
    if has_stranger:
        properties[-1] = properties[-1].replace(
            b"n\x01", draw(st.sampled_from([b"m\x01", b"\x01n", b"n\x02"]))
        )
    return [
        encode_stored(
            Storable(
                topic=b"t", body=b"b" * at, properties=one, queue_id=0, born_timestamp=0, born_host=bytes(8)
            ),
            at,
            at,
            0,
            bytes(8),
        )
        for at, one in enumerate(properties)
    ]


@given(alike())
def test_columns_of_messages_that_look_alike_equal_objects(messages: list[bytes]) -> None:
    body = b"".join(messages)
    assert_same(decode_columns(body), decode_messages(body))


@given(st.lists(bodies, max_size=4))
def test_several_bodies_are_one_batch(several: list[list[bytes]]) -> None:
    parts = [b"".join(messages) for messages in several]
    assert_same(decode_columns(parts), decode_messages(b"".join(parts)))
    assert_same(decode_columns([memoryview(part) for part in parts]), decode_messages(b"".join(parts)))


@given(bodies, st.permutations(COLUMNS), st.integers(0, len(COLUMNS)))
def test_only_the_columns_asked_for_come_in_the_order_asked_for(
    messages: list[bytes], order: list[str], count: int
) -> None:
    names = order[:count]
    batch = decode_columns(b"".join(messages), names)
    assert batch.schema.names == names
    if names:
        assert_same(batch, decode_messages(b"".join(messages)))


@given(bodies, st.frozensets(st.sampled_from(["a", "TAGS", "é", "\ufffd", ""]), max_size=3))
def test_the_tag_filter_keeps_exactly_these_tags(messages: list[bytes], tags: frozenset[str]) -> None:
    body = b"".join(messages)
    assert_same(
        decode_columns(body, tags=tags), [message for message in decode_messages(body) if message.tag in tags]
    )


@given(bodies, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 1 << 63))
def test_the_offset_filter_keeps_a_half_open_range(messages: list[bytes], start: int, length: int) -> None:
    body = b"".join(messages)
    offsets = range(start, min(start + length, (1 << 63) - 1))
    kept = [message for message in decode_messages(body) if message.queue_offset in offsets]
    assert_same(decode_columns(body, offsets=offsets), kept)


def outcome(body: bytes) -> object:
    """Every value of every message, or that it was refused; inflating counts."""
    try:
        return [[getattr(message, name) for name in COLUMNS] for message in decode_messages(body)]
    except ProtocolError:
        return ProtocolError


@given(st.lists(stored_messages(), min_size=1, max_size=3), st.data())
def test_damage_is_judged_like_objects_judge_it(messages: list[bytes], data: st.DataObject) -> None:
    damaged = bytearray(b"".join(messages))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    body = bytes(damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged)
    if outcome(body) is ProtocolError:
        with pytest.raises(ProtocolError):
            decode_columns(body)
    else:
        assert_same(decode_columns(body), decode_messages(body))


@given(st.binary(max_size=300))
def test_bytes_from_nowhere_are_judged_like_objects_judge_them(body: bytes) -> None:
    if outcome(body) is ProtocolError:
        with pytest.raises(ProtocolError):
            decode_columns(body)
    else:
        assert_same(decode_columns(body), decode_messages(body))


@given(bodies, bodies, st.integers(1, 90))
def test_a_message_must_not_reach_from_one_body_into_the_next(
    first: list[bytes], second: list[bytes], moved: int
) -> None:
    whole = b"".join(first), b"".join(second)
    if not whole[1]:
        return
    with pytest.raises(ProtocolError):
        decode_columns([whole[0] + whole[1][:moved], whole[1][moved:]])


def test_times_are_instants() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert pa.scalar(1_700_000_000_123, SCHEMA.field("born_timestamp").type).as_py() == epoch + timedelta(
        milliseconds=1_700_000_000_123
    )
