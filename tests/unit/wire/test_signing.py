"""Signatures of requests."""

import pytest

from trimtab.wire.codes import Version
from trimtab.wire.signing import sign, signed_content, verify

# Signed by the stock 4.9.3 jars.
EXT = {
    "a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "p", "j": "0",
    "k": "false", "m": "false", "AccessKey": "AKAKAKAK",
}  # fmt: skip
SECRET = "SKSKSKSK"
SIGNATURE = "+VqkXaT7MIFjSM1/uQQHjZOFz5o="


def test_the_content_is_the_values_in_the_order_of_the_names_and_the_body() -> None:
    assert signed_content(EXT, b"body") == b"AKAKAKAKpgTTBW10240010p0falsefalsebody"
    assert signed_content(dict(reversed(EXT.items())), b"body") == signed_content(EXT, b"body")


def test_a_request_is_signed_as_java_signs_it() -> None:
    assert sign(EXT, b"body", secret_key=SECRET) == SIGNATURE


def test_a_signature_is_not_signed() -> None:
    assert sign(EXT | {"Signature": "x"}, b"body", secret_key=SECRET) == SIGNATURE


def test_a_security_token_is_signed() -> None:
    assert signed_content({"AccessKey": "A", "SecurityToken": "S", "Z": "z", "a": "1"}) == b"ASz1"


def test_a_right_signature_is_accepted() -> None:
    assert verify(EXT | {"Signature": SIGNATURE}, b"body", secret_key=SECRET, version=Version.V4_9_3)


@pytest.mark.parametrize("signature", ["", SIGNATURE[:-1], SIGNATURE.lower(), "é", "\ud800", SIGNATURE + "="])
def test_a_wrong_signature_is_refused(signature: str) -> None:
    assert not verify(EXT | {"Signature": signature}, b"body", secret_key=SECRET, version=Version.V4_9_3)


def test_a_request_without_a_signature_is_refused() -> None:
    assert not verify(EXT, b"body", secret_key=SECRET, version=Version.V4_9_3)


def test_another_body_field_or_secret_is_refused() -> None:
    signed = EXT | {"Signature": SIGNATURE}
    assert not verify(signed, b"bodY", secret_key=SECRET, version=Version.V4_9_3)
    assert not verify(signed | {"b": "U"}, b"body", secret_key=SECRET, version=Version.V4_9_3)
    assert not verify(signed | {"z": "U"}, b"body", secret_key=SECRET, version=Version.V4_9_3)
    assert not verify(signed, b"body", secret_key=SECRET + "x", version=Version.V4_9_3)


def test_clients_up_to_4_9_3_do_not_sign_the_mark_of_a_unique_key_query() -> None:
    asked = EXT | {"_UNIQUE_KEY_QUERY": "true"}
    old = sign(asked, b"body", secret_key=SECRET, version=Version.V4_9_3)
    new = sign(asked, b"body", secret_key=SECRET, version=Version.V4_9_4)
    assert old == SIGNATURE
    assert new != SIGNATURE
    assert signed_content(asked, version=Version.V4_9_4).startswith(b"AKAKAKAKtruepg")
    for signature, version, expected in (
        (old, 399, True),
        (old, 401, False),
        (new, 399, False),
        (new, 401, True),
    ):
        assert (
            verify(asked | {"Signature": signature}, b"body", secret_key=SECRET, version=version) is expected
        )


def test_names_are_ordered_as_java_orders_them() -> None:
    # U+FF01 comes before U+1F600 by code point and after it by UTF-16 unit.
    assert signed_content({"\uff01": "2", "\U0001f600": "1"}) == b"12"


def test_half_a_surrogate_pair_is_signed_as_a_question_mark() -> None:
    assert signed_content({"a": "x\ud800y"}) == b"x?y"
