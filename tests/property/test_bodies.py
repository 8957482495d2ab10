"""JSON bodies: there and back in every form, and any damage ends in ProtocolError."""

from __future__ import annotations

import contextlib
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from trimtab.errors import ProtocolError
from trimtab.wire import bodies
from trimtab.wire.bodies import (
    Form,
    RegisterBrokerBody,
    decode_body,
    decode_register_body,
    encode_body,
    encode_register_body,
)
from trimtab.wire.java_properties import decode_properties, encode_properties

BODIES: list[type[msgspec.Struct]] = sorted(
    (
        each
        for each in vars(bodies).values()
        if isinstance(each, type) and issubclass(each, bodies.Body) and each is not bodies.Body
    ),
    key=lambda cls: cls.__name__,
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["%RETRY%g", '{"a":1}', "{1:2}", ",5:", "$ref", "\u2028", "\x7f", "😀", '\\"', "$.a[0]"]
)

SCALARS: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.NoneType: st.none(),
    inspect.StrType: TEXTS,
    inspect.BoolType: st.booleans(),
    inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
}


def values(info: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of any type that bodies are made of."""
    match info:
        case inspect.UnionType():
            return st.one_of([values(each) for each in info.types])
        case inspect.EnumType():
            return st.sampled_from(info.cls)
        case inspect.IntType():
            low, high = (-(2**31), 2**31 - 1) if info.ge is None or info.le is None else (info.ge, info.le)
            return st.integers(int(low), int(high))
        case inspect.VarTupleType():
            return st.lists(values(info.item_type), max_size=3).map(tuple)
        case inspect.DictType():
            keys = values(info.key_type).filter(
                lambda key: key != "$ref"
            )  # fastjson cannot have it in a map either
            return st.dictionaries(keys, values(info.value_type), max_size=3)
        case inspect.StructType():
            return st.builds(info.cls, **{field.name: field_values(field) for field in info.fields})
        case _:
            return SCALARS[type(info)]


def field_values(field: inspect.Field) -> st.SearchStrategy[Any]:
    """None is left out on the wire, so it comes back only where it is the default."""
    return (
        values(field.type)
        if field.default is None
        else values(field.type).filter(lambda value: value is not None)
    )


ANY_BODY = st.sampled_from(BODIES).flatmap(lambda cls: values(inspect.type_info(cls)))
PIECES = st.sampled_from(
    (
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b":",
            b",",
            b'"',
            b"\\",
            b"\\u",
            b"0",
            b"-1",
            b"9" * 20,
            b"1.5",
            b"null",
            b"true",
        ),
        *(
            b'"$ref"',
            b'"$"',
            b'"$.offsetTable"',
            b'{"a":1}',
            b'"offsetTable"',
            b'"table"',
            b'"topic"',
            b"\xff",
            b" ",
        ),
        *(
            b'{"brokerName":"b","queueId":0,"topic":"T"}:',
            b"0:",
            b'"consumeStatsList"',
            b'"brokerDatas"',
            b"'",
            b"/*",
        ),
        *(b"\xe4\xb8", b"NaN", b"\n"),
    )
)


@given(body=ANY_BODY, form=st.sampled_from(Form))
def test_what_was_written_is_read(body: msgspec.Struct, form: Form) -> None:
    assert decode_body(type(body), encode_body(body, form)) == body


@given(body=ANY_BODY)
def test_standard_forms_are_standard_json(body: msgspec.Struct) -> None:
    for form in (Form.STANDARD, Form.BROWSER):
        text = encode_body(body, form)
        msgspec.json.decode(text)
    assert text.isascii()


@given(body=ANY_BODY, cut=st.floats(0, 1), junk=st.lists(PIECES, max_size=4))
def test_damage_ends_as_a_value_or_a_protocol_error(
    body: msgspec.Struct, cut: float, junk: list[bytes]
) -> None:
    text = encode_body(body)
    at = int(cut * len(text))
    for damaged in (text[:at], text[:at] + b"".join(junk) + text[at:], text[:at] + b"".join(junk)):
        with contextlib.suppress(ProtocolError):
            decode_body(type(body), damaged)


@given(cls=st.sampled_from(BODIES), pieces=st.lists(PIECES, max_size=40))
def test_any_mixture_of_pieces_ends_as_a_value_or_a_protocol_error(
    cls: type[msgspec.Struct], pieces: list[bytes]
) -> None:
    for text in (b"".join(pieces), b"{" + b"".join(pieces) + b"}"):
        with contextlib.suppress(ProtocolError):
            decode_body(cls, text)


@given(cls=st.sampled_from(BODIES), data=st.binary(max_size=200))
def test_any_bytes_end_as_a_value_or_a_protocol_error(cls: type[msgspec.Struct], data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_body(cls, data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            TEXTS | st.sampled_from(["offsetTable", "table", "topic", "$ref"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(cls=st.sampled_from(BODIES), value=JSON)
def test_any_json_ends_as_a_value_or_a_protocol_error(cls: type[msgspec.Struct], value: Any) -> None:
    field_names = [field.encode_name for field in inspect.type_info(cls).fields]  # type: ignore[attr-defined]
    for wrapped in (value, dict.fromkeys(field_names, value)):
        with contextlib.suppress(ProtocolError):
            decode_body(cls, msgspec.json.encode(wrapped))


@given(body=values(inspect.type_info(RegisterBrokerBody)), version=st.sampled_from([399, 413]))
def test_dense_registrations_are_read_or_refused_but_never_misread(
    body: RegisterBrokerBody, version: int
) -> None:
    stream = encode_register_body(body, compressed=True, version=version)
    try:
        read = decode_register_body(stream, compressed=True, version=version)
    except ProtocolError:
        return  # names with blanks, or a name that stands twice
    names = [topic.topic_name for topic in body.topic_config_serialize_wrapper.topic_config_table.values()]
    assert list(read.topic_config_serialize_wrapper.topic_config_table) == names
    assert read.filter_server_list == body.filter_server_list
    assert (
        read.topic_config_serialize_wrapper.data_version == body.topic_config_serialize_wrapper.data_version
    )


@given(data=st.binary(max_size=200), version=st.sampled_from([399, 413]))
def test_any_stream_ends_as_a_value_or_a_protocol_error(data: bytes, version: int) -> None:
    for stream in (data, zlib.compress(data), zlib.compress(b"\0\0\0\2{}" + data)):
        with contextlib.suppress(ProtocolError):
            decode_register_body(stream, compressed=True, version=version)


@given(st.dictionaries(TEXTS, TEXTS))
def test_properties_are_read_as_they_were_written(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(st.text(st.sampled_from("ab\\u0041=:#! \t\f\r\n中\x00")) | st.text())
def test_any_properties_end_as_a_value_or_a_protocol_error(text: str) -> None:
    with contextlib.suppress(ProtocolError):
        decode_properties(text.encode("utf-8", "replace"))


def test_all_bodies_take_part() -> None:
    assert len(BODIES) >= 50
    with pytest.raises(ProtocolError):
        decode_body(BODIES[0], b"")
