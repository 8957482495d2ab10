"""The body of SEND_BATCH_MESSAGE."""

import pytest

from trimtab.errors import InvalidMessageError, ProtocolError
from trimtab.wire.batch import BatchEntry, decode_batch, encode_batch

# Written by the stock 4.9.3 jars.
JAVA = bytes.fromhex(
    "0000002a 00000000 00000000 00000000 00000002 6231 0012 574149540174727565 02 544147530174616700"
)[:-1]
ENTRY = BatchEntry(b"b1", b"WAIT\x01true\x02TAGS\x01tag")


def test_a_batch_is_written_as_java_writes_it() -> None:
    assert encode_batch([ENTRY]) == JAVA
    assert encode_batch([ENTRY, ENTRY]) == JAVA * 2


def test_a_batch_of_java_is_read() -> None:
    assert decode_batch(JAVA) == [ENTRY]
    assert decode_batch(memoryview(JAVA * 3)) == [ENTRY] * 3
    (entry,) = decode_batch(memoryview(JAVA))
    assert isinstance(entry.body, bytes)
    assert isinstance(entry.properties, bytes)


def test_nothing_is_an_empty_batch() -> None:
    assert encode_batch([]) == b""
    assert decode_batch(b"") == []


def test_flags_come_back() -> None:
    entries = [BatchEntry(b"", b"", -1), BatchEntry(b"x", b"", 1 << 30)]
    assert decode_batch(encode_batch(entries)) == entries


def test_magic_and_checksum_are_nobodys_business() -> None:
    assert decode_batch(JAVA[:4] + b"\xff" * 8 + JAVA[12:]) == [ENTRY]


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (0, "00000029"), (0, "0000002b"), (0, "00000000"), (0, "ffffffff"), (0, "7fffffff"),
        (16, "00000003"), (16, "00000001"), (16, "ffffffff"), (16, "7fffffff"), (16, "0000ffff"),
        (22, "0011"), (22, "0013"), (22, "8012"), (22, "ffff"),
    ],
)  # fmt: skip
def test_lengths_that_do_not_fit_are_refused(at: int, wrong: str) -> None:
    data = JAVA[:at] + bytes.fromhex(wrong) + JAVA[at + len(wrong) // 2 :]
    for batch in (data, JAVA + data, data + JAVA):
        with pytest.raises(ProtocolError):
            decode_batch(batch)


def test_a_batch_has_an_end() -> None:
    assert len(encode_batch([ENTRY], batch_bytes_max=42)) == 42
    with pytest.raises(InvalidMessageError, match="42 bytes, at most 41"):
        encode_batch([ENTRY], batch_bytes_max=41)
    with pytest.raises(InvalidMessageError, match="32768"):
        encode_batch([BatchEntry(b"", b"x" * 32_768)])
