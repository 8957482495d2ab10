"""fastjson's dialect: what is read, what is written, and what is refused."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from trimtab.errors import ProtocolError
from trimtab.model import MessageQueue
from trimtab.wire import fastjson
from trimtab.wire.bodies import (
    Connection,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerOffsets,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeType,
    Form,
    GetConsumerStatusBody,
    KVTable,
    MessageModel,
    OffsetWrapper,
    ProducerConnection,
    ResetOffsetBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
    decode_body,
    encode_body,
)
from trimtab.wire.codes import LanguageCode
from trimtab.wire.fastjson_writer import encode_as, java_double

if TYPE_CHECKING:
    import msgspec

QUEUE = MessageQueue("T", "b", 0)
QUEUE_JSON = '{"brokerName":"b","queueId":0,"topic":"T"}'
MEBIBYTE = 1 << 20


def read_table(text: str) -> dict[MessageQueue, int]:
    return decode_body(ResetOffsetBody, text.encode()).offset_table


# Reading the dialect


def test_integer_keys_may_be_bare_or_quoted() -> None:
    bare = decode_body(ConsumerOffsets, b'{"offsetTable":{"T@g":{0:5,-1:6, 2 : 7}}}')
    quoted = decode_body(ConsumerOffsets, b'{"offsetTable":{"T@g":{"0":5,"-1":6,"2":7}}}')
    assert bare == quoted == ConsumerOffsets(offset_table={"T@g": {0: 5, -1: 6, 2: 7}})


def test_objects_may_be_keys() -> None:
    other = '{"brokerName":"b","queueId":1,"topic":"T"}'
    assert read_table(f'{{"offsetTable":{{{QUEUE_JSON}:5,{other}:6}}}}') == {
        QUEUE: 5,
        MessageQueue("T", "b", 1): 6,
    }


def test_a_string_that_holds_an_objects_json_is_as_good() -> None:
    escaped = QUEUE_JSON.replace('"', '\\"')
    assert read_table(f'{{"offsetTable":{{"{escaped}":5}}}}') == {QUEUE: 5}


def test_keys_may_be_spread_over_lines() -> None:
    text = '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:5,{\n"topic":"U","brokerName":"b","queueId":1} : 6\n\t}\n}'
    assert read_table(text) == {QUEUE: 5, MessageQueue("U", "b", 1): 6}


@pytest.mark.parametrize("name", ["{0:1}", ',{"a":1}:', '\\"{1:', "{{", "中,5:", "a\\\\"])
def test_what_looks_like_a_key_inside_a_string_is_left_alone(name: str) -> None:
    text = name.replace("\\", "\\\\").replace('"', '\\"')
    queue = MessageQueue(name, name, 3)
    key = f'{{"brokerName":"{text}","queueId":3,"topic":"{text}"}}'
    assert read_table(f'{{"x":"{text}","offsetTable":{{{key}:5}},"y":"{text}"}}') == {queue: 5}


def test_arrays_of_numbers_and_objects_are_not_keys() -> None:
    stats = '{"consumeStatsList":[{"g":[{"x":[1,2,{"a":1},{"b":2}],"offsetTable":{%s:{"brokerOffset":9}}}]}]}'
    read = decode_body(ConsumeStatsList, (stats % QUEUE_JSON).encode())
    assert read.consume_stats_list == (
        {"g": (ConsumeStats(offset_table={QUEUE: OffsetWrapper(broker_offset=9)}),)},
    )


def test_null_stands_for_not_given() -> None:
    assert decode_body(ConsumeStats, b'{"offsetTable":null,"consumeTps":null}') == ConsumeStats()
    assert decode_body(TopicOffset, b'{"minOffset":null,"maxOffset":3}') == TopicOffset(max_offset=3)
    assert decode_body(KVTable, b'{"table":{"a":null,"b":"c"}}') == KVTable(table={"b": "c"})


def test_an_enum_name_nobody_knows_becomes_none() -> None:
    text = b'{"consumeType":"NOPE","messageModel":"CLUSTERING"}'
    assert decode_body(ConsumerConnection, text) == ConsumerConnection(message_model=MessageModel.CLUSTERING)


def test_enums_may_come_as_ordinals() -> None:
    read = decode_body(ConsumerConnection, b'{"consumeType":1,"messageModel":0,"consumeFromWhere":4}')
    assert read.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert read.message_model is MessageModel.BROADCASTING
    assert read.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def test_a_language_travels_by_name() -> None:
    body = ProducerConnection(
        connection_set=(Connection(client_id="c", language=LanguageCode.GO, version=399),)
    )
    text = b'{"connectionSet":[{"clientId":"c","language":"GO","version":399}]}'
    assert encode_body(body) == text
    assert decode_body(ProducerConnection, text) == body
    assert decode_body(ProducerConnection, text.replace(b'"GO"', b"9")) == body


def test_numbers_may_come_as_strings_and_strings_as_numbers() -> None:
    cpp = b'{"topic":5,"subVersion":"7","codeSet":["1","2"],"classFilterMode":"false","subString":true}'
    assert decode_body(SubscriptionData, cpp) == SubscriptionData(
        topic="5", sub_version=7, code_set=(1, 2), sub_string="true"
    )


def test_of_equal_keys_the_last_counts() -> None:
    assert decode_body(TopicList, b'{"topicList":[],"topicList":["b"]}').topic_list == ("b",)


# References


def test_references_are_replaced_by_what_they_point_at() -> None:
    text = f'{{"consumerTable":{{"cid":{{{QUEUE_JSON}:5}}}},"messageQueueTable":{{"$ref":"$.consumerTable.cid"}}}}'
    read = decode_body(GetConsumerStatusBody, text.encode())
    assert read == GetConsumerStatusBody(consumer_table={"cid": {QUEUE: 5}}, message_queue_table={QUEUE: 5})


def test_a_reference_reaches_into_arrays_and_integer_keys() -> None:
    text = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"x"},"brokerName":"b","cluster":"C"},'
        b'{"brokerAddrs":{"$ref":"$.brokerDatas[0].brokerAddrs"},"brokerName":"c","cluster":"C"}]}'
    )
    assert decode_body(TopicRouteData, text).broker_datas[1].broker_addrs == {0: "x"}


def test_a_reference_escapes_odd_characters_in_names() -> None:
    path = r"$.consumerTable.1\\.1\\.1\\.1\\@x"
    text = f'{{"consumerTable":{{"1.1.1.1@x":{{{QUEUE_JSON}:1}}}},"messageQueueTable":{{"$ref":"{path}"}}}}'
    assert decode_body(GetConsumerStatusBody, text.encode()).message_queue_table == {QUEUE: 1}


def test_a_reference_names_a_queue_as_java_prints_it() -> None:
    other = '{"brokerName":"b","queueId":1,"topic":"%RETRY%g"}'
    path = r"$.offsetTable.MessageQueue\\ \\[topic\\=T\\,\\ brokerName\\=b\\,\\ queueId\\=0\\]"
    text = f'{{"offsetTable":{{{QUEUE_JSON}:{{"brokerOffset":3}},{other}:{{"$ref":"{path}"}}}}}}'
    table = decode_body(ConsumeStats, text.encode()).offset_table
    assert list(table.values()) == [OffsetWrapper(broker_offset=3)] * 2


def test_a_reference_may_point_forward_and_at_another_reference() -> None:
    text = b'{"topicConfigTable":{"a":{"$ref":"$.topicConfigTable.b"},"b":{"$ref":"$.topicConfigTable.c"},"c":{"topicName":"c"}}}'
    read = decode_body(TopicConfigSerializeWrapper, text)
    assert set(read.topic_config_table.values()) == {TopicConfig(topic_name="c")}


def test_a_reference_to_nowhere_stays_what_it_is() -> None:
    for path in ("$.nope", "$x", "a", "$.table[0]", "$.table.", "$."):
        text = b'{"table":{"$ref":"%b"}}' % path.encode()
        assert decode_body(KVTable, text).table == {"$ref": path}
    assert decode_body(KVTable, b'{"table":{"$ref":"$","a":"b"}}').table == {"$ref": "$", "a": "b"}


@pytest.mark.parametrize("path", ["$", "..", "@", "$.topicConfigTable", "$.topicConfigTable.a"])
def test_a_reference_to_what_holds_it_is_refused(path: str) -> None:
    text = b'{"topicConfigTable":{"a":{"$ref":"%b"}}}' % path.encode()
    with pytest.raises(ProtocolError, match="holds it"):
        decode_body(TopicConfigSerializeWrapper, text)


def test_references_in_a_ring_are_refused() -> None:
    text = b'{"topicConfigTable":{"a":{"$ref":"$.topicConfigTable.b"},"b":{"$ref":"$.topicConfigTable.a"}}}'
    with pytest.raises(ProtocolError, match="holds it"):
        decode_body(TopicConfigSerializeWrapper, text)


# Writing


def test_strings_are_escaped_as_fastjson_does() -> None:
    odd = "".join(map(chr, range(0x20))) + '"\\/\x7f\x80\x9f\xa0\u2027\u2028\u2029\u202a\ufeff\uffff中😀'
    expected = (
        r"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000B\f\r\u000E\u000F"
        r"\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001A\u001B\u001C\u001D\u001E\u001F"
        r"\"\\/\u007F\u0080\u009F" + "\xa0\u2027" + r"\u2028\u2029" + "\u202a\ufeff\uffff中😀"
    )
    assert encode_as(str, odd).decode() == f'"{expected}"'
    assert encode_as(dict[str, str], {odd: odd}).decode() == f'{{"{expected}":"{expected}"}}'
    assert decode_body(KVTable, encode_body(KVTable(table={odd: odd}))) == KVTable(table={odd: odd})


def test_the_browser_form_is_ascii_with_escaped_slashes() -> None:
    assert (
        encode_as(str, "a/b\x7f\x80中😀\u2028", Form.BROWSER)
        == rb'"a\/b\u007F\u0080\u4E2D\uD83D\uDE00\u2028"'
    )


def test_half_a_surrogate_pair_becomes_a_question_mark_as_in_java() -> None:
    assert encode_as(str, "a\ud83dz\ude00") == b'"a?z?"'
    assert encode_as(str, "a\ud83dz", Form.BROWSER) == rb'"a\uD83Dz"'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1, "1.0"),
        (100.0, "100.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"),
        (123456789.123, "1.23456789123E8"),
        (-1e10, "-1.0E10"),
        (1e16, "1.0E16"),
        (1e22, "1.0E22"),
        (0.001, "0.001"),
        (9.99e-4, "9.99E-4"),
        (1e-4, "1.0E-4"),
        (1.5e-7, "1.5E-7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (float("nan"), "null"),
        (float("inf"), "null"),
    ],
)
def test_doubles_look_as_java_prints_them(value: float, text: str) -> None:
    assert java_double(value) == text


def test_an_int_in_a_doubles_place_gets_its_fraction() -> None:
    assert encode_body(ConsumeStats(consume_tps=2)) == b'{"consumeTps":2.0,"offsetTable":{}}'


def test_nan_is_written_as_null_and_read_as_not_given() -> None:
    text = encode_body(ConsumeStats(consume_tps=float("nan")))
    assert text == b'{"consumeTps":null,"offsetTable":{}}'
    assert decode_body(ConsumeStats, text) == ConsumeStats()


def test_the_standard_form_is_standard_json() -> None:
    offsets = ConsumerOffsets(offset_table={"T@g": {0: 5}})
    assert encode_body(offsets, Form.STANDARD) == b'{"offsetTable":{"T@g":{"0":5}}}'
    reset = ResetOffsetBody(offset_table={QUEUE: 5})
    assert encode_body(reset, Form.STANDARD) == (
        b'{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":5}}'
    )
    for form in Form:
        assert decode_body(ResetOffsetBody, encode_body(reset, form)) == reset
        assert decode_body(ConsumerOffsets, encode_body(offsets, form)) == offsets


# Hostile input


def flat(open_bytes: int) -> bytes:
    return b'{"x":' + b"[" * open_bytes + b"]" * open_bytes + b"}"


BOMB_LEVELS = b'{"consumeStatsList":[%b,{"g":[%b]}]}' % (
    b'{"g":[%b]}' % b",".join([b'{"consumeTps":1.0}'] * 2000),
    b",".join([b'{"$ref":"$.consumeStatsList[0]"}'] * 2000),
)
DOUBLING = b'{"a0":["x","x"],%b,"table":{"$ref":"$.a40"}}' % b",".join(
    b'"a%d":[{"$ref":"$.a%d"},{"$ref":"$.a%d"}]' % (level, level - 1, level - 1) for level in range(1, 41)
)

HOSTILE = {
    "nothing": b"",
    "null": b"null",
    "a number": b"5",
    "an array": b"[]",
    "a string": b'"{}"',
    "two values": b"{}{}",
    "cut short": b'{"table":{"a":"b"',
    "cut inside a bare key": b'{"table":{1',
    "cut inside an object key": b'{"table":{{"a":1',
    "not utf-8": b'{"table":{"a":"\xff"},"topicList":["\xff"],"brokerDatas":[{"brokerName":"\xff"}],"connectionSet":[{"clientId":"\xff"}],"offsetTable":{{"topic":"\xff"}:1}}',
    "NaN": b'{"consumeTps":NaN,"table":NaN}',
    "Infinity": b'{"consumeTps":Infinity,"x":Infinity}',
    "half a pair": b'{"table":{"a":"\\ud83d"}}',
    "open braces": b"{" * (16 * MEBIBYTE),
    "open brackets": b"[" * (16 * MEBIBYTE),
    "a deep object": b'{"a":' * 100_000,
    "a deep object with bare keys": b"{1:" * 100_000,
    "deep object keys": b'{{"a":' * 100_000,
    "deep in a field nobody knows": flat(100_000),
    "closing brackets": b'{"x":' + b"]" * 100_000,
    "commas": b"{" + b"," * (16 * MEBIBYTE - 2),
    "a wrong type for every field": b'{"table":[],"topicList":{},"offsetTable":[1],"brokerDatas":{},"connectionSet":7}',
    "a long number": b'{"consumeTps":%b,"offsetTable":{"x":%b},"table":%b,"topicList":%b,"queueDatas":%b,"consumeType":%b}'
    % ((b"9" * 5000,) * 6),
    "a long bare key": b'{"table":{%b:5},"offsetTable":{%b:5},"brokerDatas":[{"brokerName":"b","brokerAddrs":{%b:"x"}}],"topicList":{%b:1},"connectionSet":{%b:1}}'
    % ((b"9" * 5000,) * 5),
    "an unclosed string of escaped quotes": b'{1:"' + b'\\"' * 500_000,
    "many unclosed objects": b"{{" + b',{"a":1' * 20_000,
    "endless blanks": (b"{" + b" " * 1000) * 300,
    "a doubling of references": DOUBLING,
    "a product of references": BOMB_LEVELS,
    "a ring": b'{"table":{"$ref":"$"},"topicList":{"$ref":"$"},"offsetTable":{"$ref":"$"}}',
    "too long": b" " * (16 * MEBIBYTE) + b"{}",
}
"""Each is refused by at least one of the types below; by the others it may be read, but never end in another way."""


@pytest.mark.parametrize(
    "cls", [KVTable, TopicList, ConsumeStats, ConsumeStatsList, TopicRouteData, ConsumerConnection]
)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies_end_as_a_value_or_a_protocol_error(name: str, cls: type[msgspec.Struct]) -> None:
    try:
        decode_body(cls, HOSTILE[name])
    except ProtocolError as error:
        assert len(str(error)) < 1000  # noqa: PT017


@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_body_is_taken_by_all_types(name: str) -> None:
    refusals = 0
    for cls in (KVTable, TopicList, ConsumeStats, ConsumeStatsList, TopicRouteData, ConsumerConnection):
        try:
            decode_body(cls, HOSTILE[name])
        except ProtocolError:
            refusals += 1
    assert refusals


@pytest.mark.parametrize(
    "text",
    [
        b'{"minOffset":9223372036854775808}',
        b'{"minOffset":-9223372036854775809}',
        b'{"minOffset":1e30}',
        b'{"minOffset":"9223372036854775808"}',
        b'{"minOffset":1.5}',
        b'{"minOffset":[]}',
        b'{"minOffset":"x"}',
    ],
)
def test_a_long_must_be_one(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="TopicOffset body of"):
        decode_body(TopicOffset, text)


def test_the_ends_of_java_longs_are_read() -> None:
    for number in (2**63 - 1, -(2**63)):
        assert decode_body(TopicOffset, b'{"minOffset":%d}' % number).min_offset == number


def test_an_int_must_fit_32_bits() -> None:
    for number in (2**31, -(2**31) - 1):
        with pytest.raises(ProtocolError):
            decode_body(TopicConfig, b'{"topicName":"T","perm":%d}' % number)
        with pytest.raises(ProtocolError):
            decode_body(ConsumerOffsets, b'{"offsetTable":{"T@g":{%d:1}}}' % number)


def test_an_ordinal_that_no_enum_has_is_refused_as_in_java() -> None:
    with pytest.raises(ProtocolError):
        decode_body(ConsumerConnection, b'{"consumeFromWhere":9}')


def test_the_limit_on_bytes_is_the_callers() -> None:
    text = encode_body(KVTable(table={"a": "b"}))
    assert decode_body(KVTable, text, body_bytes_max=len(text)) == KVTable(table={"a": "b"})
    with pytest.raises(ProtocolError, match=f"longer than {len(text) - 1}"):
        decode_body(KVTable, text, body_bytes_max=len(text) - 1)


def test_the_limit_on_values_stops_what_is_short_in_bytes_and_large_in_memory() -> None:
    with pytest.raises(ProtocolError, match="more than"):
        decode_body(TopicList, b'{"topicList":[%b""]}' % (b'"",' * fastjson.VALUES_MAX))


def test_time_grows_with_length_and_not_with_its_square() -> None:
    def seconds(text: bytes) -> float:
        began = time.process_time()
        with pytest.raises(ProtocolError):
            decode_body(ConsumeStats, text)
        return time.process_time() - began

    shapes = (b'\\"', b',{"a":1', b"{ ", b',{"', b"1", b",1 ", b'"', b"\\", b"{", b',{"a":1}', b"{{}:")
    for shape in shapes:
        short, long = (b'{1:"' + shape * times for times in (1_000, 64_000))
        fastest_short, fastest_long = (min(seconds(text) for _ in range(3)) for text in (short, long))
        assert fastest_long < 64 * 8 * fastest_short + 0.05, shape


def test_topic_stats_read_what_they_wrote() -> None:
    stats = TopicStatsTable(offset_table={QUEUE: TopicOffset(max_offset=5)}, topic_put_tps=0.5)
    assert decode_body(TopicStatsTable, encode_body(stats)) == stats
