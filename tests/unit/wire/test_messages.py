"""Stored messages."""

from itertools import product

import msgspec
import pytest

from trimtab.errors import InvalidMessageError, ProtocolError
from trimtab.wire.compression import Compression, compress
from trimtab.wire.hosts import host_bytes, host_text
from trimtab.wire.messages import MAGIC_FILLER, MAGIC_V2, Storable, decode_messages, encode_stored

# Written by the stock 4.9.3 jars.
JAVA = bytes.fromhex(
    "00000068 daa320a7 58932aac 00000001 00000002 0000000000000003 0000000000000004 00000000 0000000000000005"
    "01020304 00000050 0000000000000006 0a000001 00002a9f 00000007 0000000000000008 00000002 6869 01 54 000a"
    "544147530141024b0176"
)
STORABLE = Storable(
    topic=b"T",
    body=b"hi",
    properties=b"TAGS\x01A\x02K\x01v",
    queue_id=1,
    born_timestamp=5,
    born_host=host_bytes("1.2.3.4:80"),
    flag=2,
    reconsume_times=7,
    prepared_transaction_offset=8,
)
STORE_HOST = host_bytes("10.0.0.1:10911")


def encoded(**changes: object) -> bytes:
    return encode_stored(msgspec.structs.replace(STORABLE, **changes), 3, 4, 6, STORE_HOST)


def test_a_message_is_stored_as_java_stores_it() -> None:
    assert encoded() == JAVA


def test_a_message_of_java_is_read() -> None:
    (message,) = decode_messages(JAVA)
    assert (message.queue_id, message.flag, message.queue_offset, message.physical_offset) == (1, 2, 3, 4)
    assert (message.born_timestamp, message.store_timestamp) == (5, 6)
    assert (message.born_host, message.store_host) == ("1.2.3.4:80", "10.0.0.1:10911")
    assert (message.reconsume_times, message.prepared_transaction_offset, message.sys_flag) == (7, 8, 0)
    assert (message.body, message.stored_body, message.topic) == (b"hi", b"hi", "T")
    assert message.properties == {"TAGS": "A", "K": "v"}
    assert message.properties_bytes == STORABLE.properties
    assert (message.tag, message.keys, message.unique_id) == ("A", (), None)
    assert message.offset_message_id == "0A00000100002A9F0000000000000004"
    assert message.message_id == message.offset_message_id
    assert (message.body_crc, message.crc_matches) == (1486039724, True)
    assert (message.stored_size, message.stored_bytes) == (104, JAVA)
    assert repr(message) == "<StoredMessage T:1 offset=3 id=0A00000100002A9F0000000000000004 body=2 B>"


def test_the_producers_id_comes_before_the_brokers() -> None:
    (message,) = decode_messages(encoded(properties=b"UNIQ_KEY\x01ABC\x02KEYS\x01k1 k2"))
    assert (message.message_id, message.unique_id) == ("ABC", "ABC")
    assert message.keys == ("k1", "k2")
    assert message.tag is None


def test_nothing_is_decoded_before_it_is_asked_for_and_then_only_once() -> None:
    (message,) = decode_messages(memoryview(JAVA))
    assert message.properties is message.properties
    assert message.topic is message.topic
    assert message.body is message.body
    assert isinstance(message.body, bytes)


def test_a_message_cannot_be_changed() -> None:
    (message,) = decode_messages(JAVA)
    with pytest.raises(AttributeError):
        message.queue_id = 5  # type: ignore[misc]


def test_an_empty_body_of_messages_is_no_message() -> None:
    assert decode_messages(b"") == []


@pytest.mark.parametrize(("born", "store"), list(product(["1.2.3.4:80", "[2001:db8::1]:80"], repeat=2)))
def test_each_host_may_be_of_either_kind(born: str, store: str) -> None:
    storable = msgspec.structs.replace(STORABLE, born_host=host_bytes(born))
    data = encode_stored(storable, 3, 4, 6, host_bytes(store))
    (message,) = decode_messages(data)
    assert (message.born_host, message.store_host) == (born, store)
    assert message.sys_flag == (0x10 if "[" in born else 0) | (0x20 if "[" in store else 0)
    assert (message.body, message.topic, message.tag, message.store_timestamp) == (b"hi", "T", "A", 6)
    assert len(message.offset_message_id) == (56 if "[" in store else 32)


def test_flags_for_hosts_follow_the_hosts() -> None:
    (message,) = decode_messages(encoded(sys_flag=0x3F & ~1))
    assert message.sys_flag == 0xE


def test_a_long_topic_takes_the_second_layout() -> None:
    for length, magic in ((127, -626843481), (128, MAGIC_V2), (32_767, MAGIC_V2)):
        (message,) = decode_messages(encoded(topic=b"t" * length))
        assert (message.magic, message.topic) == (magic, "t" * length)
        assert message.tag == "A"


@pytest.mark.parametrize("compression", Compression)
def test_a_compressed_body_is_inflated(compression: Compression) -> None:
    packed = compress(b"x" * 1000, compression)
    (message,) = decode_messages(encoded(body=packed, sys_flag=compression.sys_flag))
    assert message.body == b"x" * 1000
    assert message.stored_body == packed
    assert message.crc_matches, "the checksum is that of the stored bytes"


def test_a_body_inflates_within_the_limit_of_the_reader() -> None:
    data = encoded(body=compress(b"x" * 1000), sys_flag=0x301)
    (message,) = decode_messages(data, inflated_bytes_max=999)
    with pytest.raises(ProtocolError, match="999"):
        _ = message.body
    assert decode_messages(data, inflated_bytes_max=1000)[0].body == b"x" * 1000


def test_an_empty_body_is_not_inflated() -> None:
    (message,) = decode_messages(encoded(body=b"", sys_flag=1))
    assert message.body == b""


def test_a_wrong_checksum_is_seen() -> None:
    (message,) = decode_messages(JAVA.replace(b"hi", b"ho"))
    assert not message.crc_matches


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (0, "00000067"),
        (0, "00000069"),
        (0, "00000000"),
        (0, "ffffffff"),
        (0, "7fffffff"),
        (4, "daa320a8"),
        (4, "daa320ab"),
        (36, "00000010"),
        (36, "00000030"),
        (84, "ffffffff"),
        (84, "00000003"),
        (84, "7fffffff"),
        (90, "80"),
        (90, "ff"),
        (90, "02"),
        (92, "800a"),
        (92, "000b"),
        (92, "0009"),
        (92, "ffff"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(at: int, wrong: str) -> None:
    data = JAVA[:at] + bytes.fromhex(wrong) + JAVA[at + len(wrong) // 2 :]
    for body in (data, JAVA + data, data + JAVA):
        with pytest.raises(ProtocolError):
            decode_messages(body)


def test_the_filler_of_a_log_file_is_named() -> None:
    filler = (200).to_bytes(4, "big") + MAGIC_FILLER.to_bytes(4, "big", signed=True) + bytes(192)
    with pytest.raises(ProtocolError, match="byte 104 of 304 is the filler"):
        decode_messages(JAVA + filler)


@pytest.mark.parametrize(
    "changes",
    [
        {"properties": b"x" * 32_768},
        {"topic": b"t" * 32_768},
        {"born_host": b"1234567"},
        {"queue_id": 1 << 31},
        {"born_timestamp": 1 << 63},
    ],
)
def test_what_does_not_fit_is_not_stored(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidMessageError):
        encoded(**changes)


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("10.0.0.1:10911", "0a00000100002a9f"),
        ("255.255.255.255:65535", "ffffffff0000ffff"),
        ("[2001:db8::1]:80", "20010db800000000000000000000000100000050"),
        ("[::1]:0", "000000000000000000000000000000010000" + "0000"),
    ],
)
def test_hosts_are_shown_and_read(text: str, raw: str) -> None:
    assert host_text(bytes.fromhex(raw)) == text
    assert host_bytes(text) == bytes.fromhex(raw)


def test_a_short_address_in_a_long_one_is_shown_short() -> None:
    assert host_text(bytes(10) + b"\xff\xff\x0a\x00\x00\x01" + bytes(4)) == "10.0.0.1:0"


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:²", "localhost:80", "[::1:80", "::1:80", "[10.0.0.1]:80"]
)  # fmt: skip
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessageError):
        host_bytes(text)
