"""A key goes to the queue that clients in other languages would take for it."""

import pytest

from trimtab.client.selectors import chosen_by, fnv1a, index_by, siphash24
from trimtab.errors import InvalidMessageError, SettingsError
from trimtab.model import Message, MessageQueue

QUEUES = tuple(MessageQueue("T", "b", number) for number in range(4))


@pytest.mark.parametrize(
    ("key", "count", "index"),
    [
        ("", 7, 0),
        ("hello", 8, 99162322 % 8),
        ("Hello World", 7, 862545276 % 7),  # its hash is negative
        ("polygenelubricants", 7, 2**31 % 7),  # the smallest of Java's integers, which has no positive twin
        ("\U0001f600", 5, 1772899 % 5),  # two UTF-16 units
    ],
)
def test_java(key: str, count: int, index: int) -> None:
    assert index_by("java", key, count) == index


@pytest.mark.parametrize(("data", "number"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_fnv1a_by_its_published_vectors(data: bytes, number: int) -> None:
    assert fnv1a(data) == number
    assert index_by("fnv1a", data.decode(), 11) == number % 11


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b"", 0x726FDB47DD0E0E31),
        (b"\x00", 0x74F839C593DC67FD),
        (bytes(range(8)), 0x93F5F5799A932462),
        (bytes(range(15)), 0xA129CA6149BE45E5),
    ],
)
def test_siphash_by_its_published_vectors(data: bytes, number: int) -> None:
    assert siphash24(data) == number


def test_siphash_is_read_as_a_signed_number_and_its_remainder_is_not_negative() -> None:
    number = siphash24(bytes(range(8)))
    assert number >> 63
    assert index_by("siphash", bytes(range(8)).decode(), 7) == (number - 2**64) % 7


def test_an_unknown_selector_names_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="java, fnv1a, siphash"):
        index_by("md5", "k", 4)


def test_a_selector_must_give_one_of_the_queues() -> None:
    message = Message("T", b"x")
    assert chosen_by(lambda queues, _message, arg: queues[int(str(arg))], QUEUES, message, 2) == QUEUES[2]
    with pytest.raises(InvalidMessageError, match="none of the 4 queues"):
        chosen_by(lambda _queues, _message, _arg: MessageQueue("T", "b", 9), QUEUES, message, None)
