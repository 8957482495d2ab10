"""Thousands of random bodies, read and written by the stock classes and by ours.

What we write, Java reads and writes again; what Java writes, we read and write again, and Java reads that. The two must
tell the same. Only the order inside Java's hash maps and hash sets is left out of account, and everything else is compared
to the byte: with one element per collection the texts are equal, with more they have the same characters.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.interop.random_bodies import BodyMaker, comparable, has_object_keys, java_name, nullable_fields
from tests.interop.seeds import seed
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apache.fixtures import OracleFactory
    from tests.apache.oracle import JavaOracle

MANY = 2_000
SOME = 400
VERSION_HEADERS = {"4.9.3": 399, "4.9.7": 407, "5.5.0": 479}

COUNTS: dict[type[msgspec.Struct], int] = {
    bodies.TopicRouteData: MANY,
    bodies.ClusterInfo: MANY,
    bodies.HeartbeatData: MANY,
    bodies.LockBatchRequestBody: MANY,
    bodies.LockBatchResponseBody: MANY,
    bodies.UnlockBatchRequestBody: MANY,
    bodies.ConsumeStats: MANY,
    bodies.TopicStatsTable: MANY,
    bodies.ConsumerConnection: MANY,
    bodies.ConsumerRunningInfo: MANY,
    bodies.SubscriptionGroupConfig: MANY,
    bodies.SubscriptionGroupWrapper: MANY,
    bodies.RegisterBrokerBody: MANY,
    bodies.ResetOffsetBody: MANY,
    bodies.ConsumeStatsList: SOME,
    bodies.GetConsumerStatusBody: SOME,
    bodies.ProducerConnection: SOME,
    bodies.ProducerTableInfo: SOME,
    bodies.TopicConfigSerializeWrapper: SOME,
    bodies.TopicConfigAndMapping: SOME,
    bodies.DataVersion: SOME,
    bodies.TopicList: SOME,
    bodies.GroupList: SOME,
    bodies.ConsumerIdList: SOME,
    bodies.KVTable: SOME,
    bodies.CheckClientRequestBody: SOME,
    bodies.QuerySubscriptionResponseBody: SOME,
    bodies.ConsumeMessageDirectlyResult: SOME,
    bodies.QueryConsumeQueueResponseBody: SOME,
    bodies.QueryConsumeTimeSpanBody: SOME,
    bodies.QueryCorrectionOffsetBody: SOME,
    bodies.BrokerStatsData: SOME,
    bodies.ConsumerOffsets: SOME,
    bodies.DelayOffsets: SOME,
    bodies.LocalOffsets: SOME,
    bodies.AclConfig: SOME,
    bodies.ClusterAclVersionInfo: SOME,
    bodies.OffsetMovedEvent: SOME,
    bodies.ResetOffsetBodyForC: SOME,
}
"""Each with the number of random values that go each way."""

LACKING = {
    "4.9.3": {"ProducerTableInfo", "QuerySubscriptionResponseBody", "TopicConfigAndQueueMapping"},
    "4.9.7": {"QuerySubscriptionResponseBody", "TopicConfigAndQueueMapping"},
    "5.5.0": {"AclConfig", "ClusterAclVersionInfo"},
}
"""Classes that a version lacks (the last two were removed in 5.x)."""


@pytest.fixture(scope="module")
def oracle(java_oracle: OracleFactory, apache_version: str) -> JavaOracle:
    return java_oracle(apache_version, "BodyOracle")


@pytest.fixture(scope="module")
def present(oracle: JavaOracle) -> list[type[msgspec.Struct]]:
    """The classes that this version has."""
    answers = oracle.run([f"known {java_name(cls)}" for cls in COUNTS])
    missing = {java_name(cls) for cls, answer in zip(COUNTS, answers, strict=True) if answer == "no"}
    assert missing == LACKING[oracle.version]
    return [cls for cls in COUNTS if java_name(cls) not in missing]


def each_with_its_number(classes: list[type[msgspec.Struct]]) -> Iterator[tuple[type[msgspec.Struct], int]]:
    for cls in classes:
        for number in range(COUNTS[cls]):
            yield cls, number


def told_alike(cls: type[msgspec.Struct], ours: bytes, java: bytes) -> bool:
    """Whether two texts are the same but for the order inside maps and sets."""
    java = java.replace(b":null", b":0.0")  # not a number: whoever reads it keeps the default
    if "TimeSpan" not in cls.__name__ and sorted(ours) != sorted(java):
        return False
    return bool(comparable(decode_body(cls, ours)) == comparable(decode_body(cls, java)))


def test_java_reads_what_we_write(oracle: JavaOracle, present: list[type[msgspec.Struct]]) -> None:
    rng = random.Random(seed())
    later = oracle.version.startswith("5.")
    made = [
        (cls, number, BodyMaker(rng, size=1 if number % 2 else 4, later=later).make(cls))
        for cls, number in each_with_its_number(present)
    ]
    texts = [encode_body(body) for _, _, body in made]
    answers = oracle.run(
        [f"reread {java_name(cls)} {text.hex()}" for (cls, _, _), text in zip(made, texts, strict=True)]
    )
    for (cls, number, body), ours, answer in zip(made, texts, answers, strict=True):
        where = f"TRIMTAB_SEED={seed()} {oracle.version} {cls.__name__} #{number}:\nours {ours!r}\njava "
        assert not answer.startswith("!"), where + answer
        java = bytes.fromhex(answer)
        assert comparable(decode_body(cls, java)) == comparable(body), where + repr(java)
        if later:
            continue  # 5.x escapes other characters, and writes some fields that we do not have
        assert told_alike(cls, ours, java), where + repr(java)
        if number % 2 and "TimeSpan" not in cls.__name__:
            assert java == ours, where + repr(java)


@pytest.mark.parametrize("form", [Form.STANDARD, Form.BROWSER])
def test_java_reads_the_other_forms(
    oracle: JavaOracle, present: list[type[msgspec.Struct]], form: Form
) -> None:
    later = oracle.version.startswith("5.")
    maker = BodyMaker(random.Random(seed()), size=3, later=later)
    # fastjson2 of 5.5.0 refuses an object's JSON in a string as a key.
    classes = [cls for cls in present if not (later and has_object_keys(cls))]
    made = [(cls, maker.make(cls)) for cls in classes for _ in range(60)]
    answers = oracle.run([f"reread {java_name(cls)} {encode_body(body, form).hex()}" for cls, body in made])
    for (cls, body), answer in zip(made, answers, strict=True):
        where = (
            f"TRIMTAB_SEED={seed()} {oracle.version} {cls.__name__}:\n{encode_body(body, form)!r}\n{answer}"
        )
        assert not answer.startswith("!"), where
        assert comparable(decode_body(cls, bytes.fromhex(answer))) == comparable(body), where


def test_we_read_what_java_writes_and_java_reads_it_back(
    oracle: JavaOracle, present: list[type[msgspec.Struct]]
) -> None:
    first = seed() << 20
    nulls = {cls: ",".join(sorted(nullable_fields(cls))) or "-" for cls in present}
    cases = list(each_with_its_number(present))
    written = oracle.run(
        [
            f"random {java_name(cls)} {first + at} {1 if number % 2 else 4} {nulls[cls]}"
            for at, (cls, number) in enumerate(cases)
        ]
    )
    for (cls, number), answer in zip(cases, written, strict=True):
        assert not answer.startswith("!"), f"TRIMTAB_SEED={seed()} {cls.__name__} #{number}: {answer}"
    originals = [bytes.fromhex(answer) for answer in written]
    texts = [encode_body(decode_body(cls, text)) for (cls, _), text in zip(cases, originals, strict=True)]
    again = oracle.run(
        [f"reread {java_name(cls)} {text.hex()}" for (cls, _), text in zip(cases, texts, strict=True)]
    )
    for (cls, number), original, ours, answer in zip(cases, originals, texts, again, strict=True):
        where = f"TRIMTAB_SEED={seed()} {oracle.version} {cls.__name__} #{number}:\njava {original!r}\nours {ours!r}\nback {answer}"
        assert not answer.startswith("!"), where
        assert told_alike(cls, bytes.fromhex(answer), original), where


# The dense form of registrations


def dense(body: RegisterBrokerBody, *, later: bool) -> RegisterBrokerBody:
    """What is left of a body in the dense form, with names that it can carry."""
    wrapper = body.topic_config_serialize_wrapper
    topics = [
        msgspec.structs.replace(
            topic,
            topic_name=topic.topic_name.replace(" ", "").replace("😀", ""),
            attributes=_without_spaces(topic.attributes) if later else None,
            topic_filter_type=topic.topic_filter_type or bodies.TopicFilterType.SINGLE_TAG,
            topic_sys_flag=0,
            order=False,
        )
        for topic in wrapper.topic_config_table.values()
    ]
    mappings = wrapper.topic_queue_mapping_info_map or {}
    wrapper = msgspec.structs.replace(
        wrapper,
        topic_config_table={topic.topic_name: topic for topic in topics},
        topic_queue_mapping_info_map={
            name: msgspec.structs.replace(mapping, topic=name) for name, mapping in mappings.items()
        }
        if later
        else None,
        topic_queue_mapping_detail_map=None,
        mapping_data_version=None,
    )
    return msgspec.structs.replace(body, topic_config_serialize_wrapper=wrapper)


def _without_spaces(attributes: dict[str, str] | None) -> dict[str, str]:
    return {key.replace(" ", ""): value.replace(" ", "") for key, value in (attributes or {}).items()}


def registrations(oracle: JavaOracle) -> list[RegisterBrokerBody]:
    later = oracle.version.startswith("5.")
    maker = BodyMaker(random.Random(seed()), size=4, later=later)
    return [dense(maker.make(RegisterBrokerBody), later=later) for _ in range(MANY)]


def comparable_dense(body: RegisterBrokerBody, *, later: bool) -> Any:
    return comparable(dense(body, later=later))


def test_java_inflates_what_we_compress(oracle: JavaOracle) -> None:
    later = oracle.version.startswith("5.")
    version = VERSION_HEADERS[oracle.version]
    made = registrations(oracle)
    streams = [encode_register_body(body, compressed=True, version=version) for body in made]
    answers = oracle.run([f"inflate {stream.hex()} {version}" for stream in streams])
    for body, answer in zip(made, answers, strict=True):
        where = f"TRIMTAB_SEED={seed()} {oracle.version}:\n{body}\n{answer}"
        assert not answer.startswith("!"), where
        java = decode_body(RegisterBrokerBody, bytes.fromhex(answer))
        assert comparable_dense(java, later=later) == comparable(body), where


def test_we_inflate_what_java_compresses(oracle: JavaOracle) -> None:
    later = oracle.version.startswith("5.")
    version = VERSION_HEADERS[oracle.version]
    made = registrations(oracle)
    answers = oracle.run([f"deflate {encode_body(body).hex()}" for body in made])
    for body, answer in zip(made, answers, strict=True):
        where = f"TRIMTAB_SEED={seed()} {oracle.version}:\n{body}\n{answer}"
        assert not answer.startswith("!"), where
        ours = decode_register_body(bytes.fromhex(answer), compressed=True, version=version)
        assert comparable_dense(ours, later=later) == comparable(body), where


def test_java_writes_the_same_stream_for_one_topic(oracle: JavaOracle) -> None:
    later = oracle.version.startswith("5.")
    maker = BodyMaker(random.Random(seed()), size=1, later=later)
    made = [dense(maker.make(RegisterBrokerBody), later=later) for _ in range(SOME)]
    answers = oracle.run([f"deflate {encode_body(body).hex()}" for body in made])
    version = VERSION_HEADERS[oracle.version]
    for body, answer in zip(made, answers, strict=True):
        if later:
            continue  # its JSON escapes other characters
        where = f"TRIMTAB_SEED={seed()} {oracle.version}:\n{body}\n{answer}"
        assert encode_register_body(body, compressed=True, version=version).hex() == answer, where


# Configuration texts


def read_by_java(oracle: JavaOracle, texts: list[bytes]) -> list[dict[str, str] | None]:
    def properties(answer: str) -> dict[str, str]:
        pairs = (pair.split("=") for pair in answer.split(",") if pair)
        return {
            bytes.fromhex(key).decode("utf-16-be"): bytes.fromhex(value).decode("utf-16-be")
            for key, value in pairs
        }

    answers = oracle.run([f"properties {text.hex()}" for text in texts])
    return [None if answer.startswith("!") else properties(answer) for answer in answers]


def test_java_reads_our_properties(oracle: JavaOracle) -> None:
    rng = random.Random(seed())
    alphabet = "ab\\=:#! \t\n\r\f\x00é中😀"

    def text() -> str:
        return "".join(rng.choices(alphabet, k=rng.randrange(6)))

    made = [{text(): text() for _ in range(3)} for _ in range(MANY)]
    for properties, java in zip(
        made, read_by_java(oracle, [encode_properties(each) for each in made]), strict=True
    ):
        assert java == properties, f"TRIMTAB_SEED={seed()}"


def test_we_read_properties_as_java_does(oracle: JavaOracle) -> None:
    rng = random.Random(seed())
    pieces = [*"ab\\\\\\=:#! \t\f\n\r\n\x0b\x7f", "\\u0041", "\\u", "\\\n", "\\\r\n", "0041"]
    made = ["".join(rng.choices(pieces, k=rng.randrange(14))).encode() for _ in range(MANY)]
    # Java finds a nameless property in a last line that holds nothing but a line break taken back; we do not.
    made = [text.rstrip(b"\\\r\n \t\f") for text in made]
    for text, java in zip(made, read_by_java(oracle, made), strict=True):
        try:
            ours: dict[str, str] | None = decode_properties(text)
        except ProtocolError:
            ours = None
        assert ours == java, f"TRIMTAB_SEED={seed()} {text!r}"


# Where Java forgives, and where it refuses


FORGIVEN: list[tuple[type[msgspec.Struct], str]] = [
    (bodies.TopicOffset, '{"maxOffset":"5","minOffset":null,"lastUpdateTimestamp":1.0}'),
    (bodies.ConsumerConnection, '{"consumeType":"NOPE","messageModel":1,"consumeFromWhere":null}'),
    (bodies.ConsumerConnection, '{"connectionSet":[{"language":9,"version":"3"}]}'),
    (bodies.TopicConfig, '{"topicName":5,"order":"true","perm":"6"}'),
    (bodies.TopicConfig, '{"topicName":true,"order":1,"perm":6.0}'),
    (bodies.KVTable, '{"table":{"a":1,"b":true,"d":null}}'),
    (bodies.ConsumerOffsets, '{"offsetTable":{"T@g":{0:"5",1:6, 2 : 7}}}'),
    (bodies.TopicList, '{"topicList":[],"topicList":["b"]}'),
    (bodies.ConsumeStats, '{"offsetTable":{{"topic":"T","brokerName":"b","queueId":"3"}:{}},"consumeTps":null}'),
    (bodies.SubscriptionData, '{"topic":"T","codeSet":["1","2"],"subVersion":"7","later":[{}]}'),
]  # fmt: skip
REFUSED: list[tuple[type[msgspec.Struct], str]] = [
    (bodies.ConsumerConnection, '{"consumeFromWhere":9}'),
    (bodies.QueueData, '{"brokerName":"b","perm":99999999999}'),
    (bodies.QueueData, '{"brokerName":"b","perm":"99999999999"}'),
    (bodies.TopicList, '{"topicList":"a"}'),
    (bodies.TopicList, '{"topicList":["a"'),
    (bodies.TopicConfig, '{"topicName":"T","order":"x"}'),
]


def test_java_forgives_what_we_forgive(oracle: JavaOracle) -> None:
    answers = oracle.run([f"reread {java_name(cls)} {text.encode().hex()}" for cls, text in FORGIVEN])
    for (cls, text), answer in zip(FORGIVEN, answers, strict=True):
        if oracle.version.startswith("5.") and answer.startswith("!"):
            continue  # fastjson2 is stricter
        java = decode_body(cls, bytes.fromhex(answer))
        ours = decode_body(cls, text.encode())
        if not oracle.version.startswith("5."):  # which adds fields of its own
            assert comparable(java) == comparable(ours), (text, bytes.fromhex(answer))


def test_java_refuses_what_we_refuse(oracle: JavaOracle) -> None:
    answers = oracle.run([f"reread {java_name(cls)} {text.encode().hex()}" for cls, text in REFUSED])
    for (cls, text), answer in zip(REFUSED, answers, strict=True):
        with pytest.raises(ProtocolError):
            decode_body(cls, text.encode())
        assert answer.startswith("!") or oracle.version.startswith("5."), (text, answer)
