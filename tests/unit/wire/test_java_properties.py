"""Configuration as `key=value` lines. The odd ones were read by `java.util.Properties` of JDK 17."""

import pytest

from trimtab.errors import ProtocolError
from trimtab.wire.java_properties import PROPERTY_LINES_MAX, decode_properties, encode_properties


def test_ordinary_texts_are_written_as_java_writes_them() -> None:
    config = {"brokerPermission": "6", "storePathRootDir": "/root/store", "empty": "", "a": "b=c:d #e"}
    text = b"brokerPermission=6\nstorePathRootDir=/root/store\nempty=\na=b=c:d #e\n"
    assert encode_properties(config) == text
    assert decode_properties(text) == config


def test_odd_texts_are_escaped_so_that_java_reads_them() -> None:
    config = {"a b=c:d\\": " x\ty\nz\\ ", "#": "主😀", "!k": "\x00"}
    text = rb"a\ b\=c\:d\\=\ x\ty\nz\\ " + b"\n" + rb"\#=\u4E3B\uD83D\uDE00" + b"\n" + rb"\!k=\u0000" + b"\n"
    assert encode_properties(config) == text
    assert decode_properties(text) == config


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (b"", {}),
        (b"\n\r\n \t\n", {}),
        (b"# comment\\\n! another\na=1", {"a": "1"}),
        (b"  a  =  b  \n", {"a": "b  "}),
        (b"a:b\r\nc d\re=\n", {"a": "b", "c": "d", "e": ""}),
        (b"a == b", {"a": "= b"}),
        (b"key", {"key": ""}),
        (b"=v", {"": "v"}),
        (b"a=b\\\n   c\\\r\n d", {"a": "bcd"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a=b\\", {"a": "b"}),
        (b"a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        (b"a=\\t\\n\\r\\f\\q\\u0041", {"a": "\t\n\r\fqA"}),
        (b"a=1\na=2", {"a": "2"}),
        ("a=主".encode(), {"a": "主"}),
        (b"\\\n#comment\na=1", {"a": "1"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: bytes, config: dict[str, str]) -> None:
    assert decode_properties(text) == config


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\\uxyzw", b"a=\xff", b"\\u=1"])
def test_broken_texts_are_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_properties(text)


def test_there_is_an_end_to_lines_and_bytes() -> None:
    assert (
        len(decode_properties(b"".join(b"%d=\n" % line for line in range(PROPERTY_LINES_MAX - 1)))) == 16383
    )
    with pytest.raises(ProtocolError, match="lines"):
        decode_properties(b"#\n" * (PROPERTY_LINES_MAX + 1))
    with pytest.raises(ProtocolError, match="longer"):
        decode_properties(b"a" * ((16 << 20) + 1))
