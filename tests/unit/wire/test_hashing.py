"""Java's hashes. The expected numbers come from a JVM."""

import zlib

import pytest

from trimtab.wire.hashing import body_crc, crc32, index_key_hash, java_hash, tags_code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("标签", 857175),
        ("é", 233),
        ("😀", 1772899),
        ("\ud83d", 55357),
        ("x" * 1000, -1715418112),
    ],
)
def test_a_hash_equals_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def reference(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return number - (number >> 31 << 32)


@pytest.mark.parametrize("length", [63, 64, 65, 255, 256, 257, 511, 512, 513, 3000])
@pytest.mark.parametrize("piece", ["ab~", "aé标", "😀x"])
def test_long_texts_are_hashed_in_pieces_that_fit_together(length: int, piece: str) -> None:
    text = (piece * length)[:length]
    assert java_hash(text) == reference(text)


def test_a_message_without_a_tag_has_tags_code_zero() -> None:
    assert tags_code(None) == 0
    assert tags_code("") == 0


def test_a_tags_code_keeps_the_sign() -> None:
    assert tags_code("polygenelubricants") == -2147483648


def test_a_crc_has_no_top_bit() -> None:
    assert body_crc(b"hi") == 1486039724
    assert body_crc(b"") == 0
    assert all(body_crc(bytes((byte,))) < 1 << 31 for byte in range(256))


@pytest.mark.parametrize("length", [0, 1, 15, 64, 255, 256, 257, 1_024, 70_000])
def test_checksums_are_those_of_zlib(length: int) -> None:
    data = bytes(at * 7 % 251 for at in range(length))
    assert crc32(data) == zlib.crc32(data)
    assert crc32(memoryview(data)[1:], 0xFFFFFFFF) == zlib.crc32(data[1:], 0xFFFFFFFF)


def test_an_index_key_hash_is_never_negative() -> None:
    assert index_key_hash("T", "k") == java_hash("T#k")
    assert index_key_hash("orders", "o-1") == abs(java_hash("orders#o-1"))


def test_the_smallest_hash_is_kept_as_zero() -> None:
    # The text before "#" is chosen so that the whole hash is Integer.MIN_VALUE.
    topic, key = smallest_hash()
    assert java_hash(f"{topic}#{key}") == -(1 << 31)
    assert index_key_hash(topic, key) == 0


def smallest_hash() -> tuple[str, str]:
    """Solves hash("T#" + key) = -2**31 digit by digit in base 31, with units that all can be characters."""
    left = (-(1 << 31) - java_hash("T#") * pow(31, 7)) % (1 << 32)
    units = []
    for power in range(6, 0, -1):
        unit = min(left // pow(31, power), 0xD000)
        units.append(unit)
        left -= unit * pow(31, power)
    return "T", "".join(map(chr, [*units, left]))
