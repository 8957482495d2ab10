"""The dense form of REGISTER_BROKER, with streams that stock 4.9.3 and 5.5.0 wrote."""

import zlib

import pytest

from trimtab.errors import ProtocolError
from trimtab.wire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicFilterType,
    TopicQueueMappingInfo,
    decode_register_body,
    encode_register_body,
)
from trimtab.wire.bodies.registration import INFLATED_BYTES_MAX

STREAM_4_9_3 = bytes.fromhex(
    "78da63606050af564ace2fcd2b492d52b232d6512ac9cc4d2d2e49cc2d50b23234b734b1303233b7b4343732a8656060600262a1100513050b053385604f3f771f"
    "d7f8104777a0a8d8931dbb5f2e9aa1600884460abea13e219e5019f668a5342b43a55800a7d81acb"
)
STREAM_5_5_0 = bytes.fromhex(
    "78da4d8ecd6ac3301084d55efa007d0131c7208aed9ad8d6ad872618fa43a9d34b09465694c4605b46920fc1f8ddbbc9a92c03c3301f3b8cb17c86b6d3108c837c"
    "16f04105f3639c6fed00190984b63714f623649c15699eacb3a2c89268618cdd9356154f79ced7fcbbfcd8bebdd6d5cb96cf20c6ab93790a97d14062536e3e7125"
    "1e773ca64bfeb7297ef8c551c6d893bd239d673483eaaf6403013d39571ede154d9823192f0287d6850be45175de0898d1ea336446ebb5bdfdabeb53671bd5d535"
    "e1c18eada6b0baf9a0baafc94cc643a6cb1f345346c4"
)
BODY_4_9_3 = RegisterBrokerBody(
    filter_server_list=("f:1",),
    topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
        data_version=DataVersion(timestamp=1794826799720, counter=3),
        topic_config_table={
            "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8, perm=6),
            "主题": TopicConfig(
                topic_name="主题",
                read_queue_nums=1,
                write_queue_nums=1,
                perm=2,
                topic_filter_type=TopicFilterType.MULTI_TAG,
            ),
        },
    ),
)
BODY_5_5_0 = RegisterBrokerBody(
    filter_server_list=("f:1",),
    topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
        data_version=DataVersion(timestamp=1794826799720, counter=3, state_version=0),
        topic_config_table={
            "T": TopicConfig(
                topic_name="T",
                read_queue_nums=4,
                write_queue_nums=8,
                perm=6,
                attributes={"message.type": "FIFO"},
            ),
            "U": TopicConfig(topic_name="U", read_queue_nums=1, write_queue_nums=1, perm=2),
        },
        topic_queue_mapping_info_map={
            "T": TopicQueueMappingInfo(topic="T", total_queues=4, bname="b", epoch=7, curr_id_map={0: 1})
        },
    ),
)


def sized(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return len(data).to_bytes(4, "big") + data


def stream(*topics: str, version: str = '{"counter":0,"timestamp":1}', tail: bytes = sized("[]")) -> bytes:
    return zlib.compress(
        sized(version) + len(topics).to_bytes(4, "big") + b"".join(map(sized, topics)) + tail, 9
    )


def topics_of(data: bytes, version: int = 399) -> list[TopicConfig]:
    body = decode_register_body(data, compressed=True, version=version)
    return list(body.topic_config_serialize_wrapper.topic_config_table.values())


def test_the_stream_of_4_9_3_is_read_and_written_alike() -> None:
    assert decode_register_body(STREAM_4_9_3, compressed=True, version=399) == BODY_4_9_3
    assert zlib.decompress(encode_register_body(BODY_4_9_3, compressed=True, version=399)) == zlib.decompress(
        STREAM_4_9_3
    )


def test_our_stream_starts_as_javas() -> None:
    assert encode_register_body(BODY_4_9_3, compressed=True, version=399)[:2] == b"\x78\xda"


def test_the_stream_of_5_5_0_is_read() -> None:
    assert decode_register_body(STREAM_5_5_0, compressed=True, version=479) == BODY_5_5_0


def test_mappings_are_written_and_read_from_5_0_on() -> None:
    again = encode_register_body(BODY_5_5_0, compressed=True, version=413)
    assert decode_register_body(again, compressed=True, version=413) == BODY_5_5_0
    older = decode_register_body(again, compressed=True, version=409)
    assert older.topic_config_serialize_wrapper.topic_queue_mapping_info_map is None


def test_a_topic_without_attributes_has_the_five_words_that_4_9_asks_for() -> None:
    inflated = zlib.decompress(encode_register_body(BODY_4_9_3, compressed=True, version=399))
    assert sized("T 4 8 6 SINGLE_TAG") in inflated


def test_plain_bodies_are_json() -> None:
    plain = encode_register_body(BODY_5_5_0, compressed=False, version=399)
    assert plain.startswith(b'{"filterServerList":["f:1"],')
    assert decode_register_body(plain, compressed=False, version=399) == BODY_5_5_0


@pytest.mark.parametrize(
    ("line", "attributes"),
    [
        ("T 4 4 6 SINGLE_TAG", None),
        ("T 4 4 6 SINGLE_TAG ", None),
        ("T 4 4 6 SINGLE_TAG {}", {}),
        ('T 4 4 6 SINGLE_TAG {"a":"b"}', {"a": "b"}),
        ('T 4 4 6 SINGLE_TAG {"a":"b c"}', {}),
    ],
)
def test_the_sixth_word_is_attributes(line: str, attributes: dict[str, str] | None) -> None:
    (topic,) = topics_of(stream(line))
    assert topic == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, attributes=attributes)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "T",
        "T 4 4 6",
        "T 4 4 6 NO_TAG",
        "T x 4 6 SINGLE_TAG",
        "T 4 4 2147483648 SINGLE_TAG",
        "T 4 ٤ 6 SINGLE_TAG",
        "T  4 4 6 SINGLE_TAG",
        f"T {'9' * 5000} 4 6 SINGLE_TAG",
    ],
)
def test_a_line_that_is_no_topic_is_refused(line: str) -> None:
    with pytest.raises(ProtocolError):
        topics_of(stream(line))


def test_a_topic_that_stands_twice_is_refused() -> None:
    with pytest.raises(ProtocolError, match="twice"):
        topics_of(stream("T 4 4 6 SINGLE_TAG", "T 1 1 6 SINGLE_TAG"))


HOSTILE = {
    "nothing": b"",
    "no zlib": b"\0" * 100,
    "cut short": STREAM_4_9_3[:40],
    "only a head": b"\x78\xda",
    "a length beyond the end": zlib.compress(b"\x7f\xff\xff\xff{}"),
    "a negative length": zlib.compress(b"\xff\xff\xff\xff{}"),
    "many topics in few bytes": zlib.compress(sized("{}") + b"\x7f\xff\xff\xff"),
    "minus one topic": zlib.compress(sized("{}") + b"\xff\xff\xff\xff" + sized("[]")),
    "a version that is no JSON": stream(version="{"),
    "a version of another type": stream(version='{"counter":"x"}'),
    "a topic that is not utf-8": zlib.compress(sized("{}") + b"\0\0\0\1" + sized(b"\xff 4 4 6 SINGLE_TAG")),
    "filter servers that are no list": stream(tail=sized("{}")),
    "no filter servers": stream(tail=b""),
    "a bomb": zlib.compress(b"\0" * (INFLATED_BYTES_MAX + 1), 9),
    "topics without names": zlib.compress(sized("{}") + (1 << 20).to_bytes(4, "big") + b"\0" * (8 << 20), 9),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_streams_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError):
        decode_register_body(HOSTILE[name], compressed=True, version=399)


def test_mappings_must_be_whole() -> None:
    with pytest.raises(ProtocolError):
        topics_of(stream(), version=413)
    with pytest.raises(ProtocolError):
        topics_of(stream(tail=sized("[]") + b"\0\0\0\1" + sized("[]")), version=413)


def test_what_follows_the_last_part_is_ignored_as_in_java() -> None:
    assert topics_of(stream("T 4 4 6 SINGLE_TAG", tail=sized("[]") + b"later")) != []
