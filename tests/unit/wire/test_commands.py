import pytest

from trimtab.errors import ProtocolError
from trimtab.wire.codes import LanguageCode
from trimtab.wire.commands import EXT_FIELDS_MAX, Command, decode_command, encode_command
from trimtab.wire.frames import BINARY_HEADER, Frame, FrameDecoder


def decoded(raw: bytes) -> Command:
    (frame,) = FrameDecoder().feed(raw)
    return decode_command(frame)


def json_command(header: bytes) -> Command:
    return decode_command(Frame(0, header, b""))


def test_java_request_header_reads_and_writes_the_same_bytes() -> None:
    header = (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":399}'
    )
    command = json_command(header)
    assert command == Command(code=105, opaque=0, ext={"topic": "T"}, language=LanguageCode.JAVA, version=399)
    assert encode_command(command)[8:] == header


def test_java_response_header_reads_and_writes_the_same_bytes() -> None:
    header = (
        b'{"code":17,"flag":1,"language":"JAVA","opaque":3,"remark":"no topic",'
        b'"serializeTypeCurrentRPC":"JSON","version":399}'
    )
    command = json_command(header)
    assert command.is_response
    assert not command.is_oneway
    assert (command.code, command.opaque, command.remark, dict(command.ext)) == (17, 3, "no topic", {})
    assert encode_command(command)[8:] == header


def test_java_binary_header_reads_and_writes_the_same_bytes() -> None:
    raw = bytes.fromhex(
        "00000034 0100002f 001e 00 018f 00000007 00000000 00000000 0000001a"
        "0007 71756575654964 00000001 33 0005 746f706963 00000001 54 09"
    )
    command = decoded(raw)
    assert command == Command(
        code=30,
        opaque=7,
        ext={"queueId": "3", "topic": "T"},
        body=b"\t",
        language=LanguageCode.JAVA,
        version=399,
        serializer=BINARY_HEADER,
    )
    assert encode_command(command) == raw


def test_a_code_beyond_16_bits_travels_as_json() -> None:
    command = decoded(encode_command(Command(code=200050, opaque=1, serializer=BINARY_HEADER)))
    assert (command.code, command.serializer) == (200050, 0)


def test_fields_that_are_not_strings_are_read_as_java_reads_them() -> None:
    header = b'{"code":1,"opaque":2,"extFields":{"i":7,"f":1.50,"b":true,"n":null,"s":"x"}}'
    assert dict(json_command(header).ext) == {"i": "7", "f": "1.50", "b": "true", "s": "x"}


def test_missing_keys_have_javas_defaults() -> None:
    assert json_command(b"{}") == Command(code=0, opaque=0, language=LanguageCode.JAVA, version=0)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b'"GO"', LanguageCode.GO),
        (b"9", LanguageCode.GO),
        (b'"COBOL"', LanguageCode.OTHER),
        (b"99", LanguageCode.OTHER),
        (b"null", LanguageCode.OTHER),
    ],
)
def test_language_by_name_by_number_or_unknown(written: bytes, read: LanguageCode) -> None:
    assert json_command(b'{"language":%b}' % written).language is read


def test_numbers_written_as_strings_are_accepted() -> None:
    assert json_command(b'{"code":"105","opaque":"3"}').code == 105


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"code":1}x',
        b'{"code":2147483648}',
        b'{"code":1.5}',
        b'{"code":' + b"9" * 5000 + b"}",
        b'{"opaque":' + b"[" * 30_000,
        b'{"extFields":{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}}",
        b'{"extFields":{"a":' + b'{"a":' * 10_000,
        b'{"extFields":[1,2]}',
        b'{"extFields":{"a":"\xff"}}',
        b'{"remark":{}}',
        b'{"code":NaN}',
        b"{0:1}",
    ],
)
def test_an_unreadable_json_header_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        json_command(header)


def test_too_many_fields_are_refused_in_both_encodings() -> None:
    ext = {f"k{i}": "v" for i in range(EXT_FIELDS_MAX + 1)}
    for serializer in (0, 1):
        with pytest.raises(ProtocolError, match="header fields"):
            decoded(encode_command(Command(code=1, opaque=1, ext=ext, serializer=serializer)))


def test_a_binary_header_cut_anywhere_is_a_protocol_error() -> None:
    raw = encode_command(
        Command(code=1, opaque=1, remark="why", ext={"key": "value"}, serializer=BINARY_HEADER)
    )
    for end in range(8, len(raw)):
        with pytest.raises(ProtocolError):
            decode_command(Frame(1, raw[8:end], b""))


def test_a_binary_field_may_not_reach_beyond_the_fields() -> None:
    raw = bytearray(
        encode_command(Command(code=1, opaque=1, ext={"key": "value"}, serializer=BINARY_HEADER))[8:]
    )
    fields_length_at = 13 + 4
    raw[fields_length_at + 3] -= 1
    with pytest.raises(ProtocolError):
        decode_command(Frame(1, bytes(raw), b""))


def test_an_unknown_serializer_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="serializer 2"):
        decode_command(Frame(2, b"{}", b""))
