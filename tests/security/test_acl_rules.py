"""S9, the rules themselves: who is known, what is granted, and that everything else is denied."""

from dataclasses import replace

import pytest

from tests.security.accounts import ADMIN, BILLING, FORGER, ORDERS, READER, STRANGER, WRITER, sample_acl
from trimtab.broker.acl import Account, Acl, AclError, Permission, Rules, permission_named
from trimtab.broker.acl_addresses import is_loopback, parse_pattern
from trimtab.broker.requests import Access, NoHeader, Peer, Refused
from trimtab.wire.codes import RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import Header, decode_ext
from trimtab.wire.headers.consume import PullMessage, UnregisterClient
from trimtab.wire.headers.send import SendMessageV2
from trimtab.wire.signing import Credentials

LOOPBACK = Peer(1, "127.0.0.1:4711", b"")
ELSEWHERE = Peer(2, "10.1.2.3:4711", b"")
ELSEWHERE_BY_TLS = Peer(3, "10.1.2.3:4711", b"", is_secure=True)

# Signed by the stock 4.9.3 jars: see tests/unit/wire/test_signing.py.
GOLDEN_EXT = {
    "a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "p", "j": "0",
    "k": "false", "m": "false", "AccessKey": "AKAKAKAK", "Signature": "+VqkXaT7MIFjSM1/uQQHjZOFz5o=",
}  # fmt: skip
GOLDEN = Command(code=RequestCode.SEND_MESSAGE_V2, opaque=1, ext=GOLDEN_EXT, body=b"body")
GOLDEN_ACL = Acl(
    Rules({"AKAKAKAK": Account(access_key="AKAKAKAK", secret_key="SKSKSKSK", topics={"T": Permission.PUB})})
)
PUBLISH = Access(publish_topic="topic")


def judged(
    acl: Acl, command: Command, access: Access, header_type: type[Header], peer: Peer = LOOPBACK
) -> None:
    acl.judge(command, access, decode_ext(header_type, command.ext), peer)


def signed(
    who: Credentials, ext: dict[str, str], *, code: int = 310, body: bytes = b"", version: int = 399
) -> Command:
    return Command(
        code=code, opaque=1, ext=who.signed(ext, body, version=version), body=body, version=version
    )


def sending_to(topic: str, who: Credentials) -> Command:
    return signed(
        who, {"a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    )


def pulling(topic: str, group: str, who: Credentials) -> Command:
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
    }  # fmt: skip
    return signed(who, fields, code=RequestCode.PULL_MESSAGE)


PULL = Access(consume_topic="topic", consume_group="consumer_group")

# --- who is it


def test_a_signature_made_by_java_is_accepted() -> None:
    judged(GOLDEN_ACL, GOLDEN, PUBLISH, SendMessageV2)


@pytest.mark.parametrize("field", sorted(set(GOLDEN_EXT) - {"Signature", "AccessKey"}))
def test_a_changed_field_is_refused(field: str) -> None:
    ext = {**GOLDEN_EXT, field: GOLDEN_EXT[field] + "1"}
    with pytest.raises(Refused, match="AclException"):
        GOLDEN_ACL.authenticate(Command(code=310, opaque=1, ext=ext, body=b"body"), LOOPBACK)


@pytest.mark.parametrize("field", ["AccessKey", "Signature", "b"])
def test_a_missing_field_is_refused(field: str) -> None:
    ext = {name: value for name, value in GOLDEN_EXT.items() if name != field}
    with pytest.raises(Refused, match="AclException"):
        GOLDEN_ACL.authenticate(Command(code=310, opaque=1, ext=ext, body=b"body"), LOOPBACK)


def test_every_flipped_bit_of_signature_or_body_is_refused() -> None:
    for name, raw in (("Signature", GOLDEN_EXT["Signature"].encode()), ("body", b"body")):
        for bit in range(8 * len(raw)):
            flipped = bytearray(raw)
            flipped[bit // 8] ^= 1 << bit % 8
            ext, body = GOLDEN_EXT, bytes(flipped)
            if name == "Signature":
                ext, body = {**GOLDEN_EXT, "Signature": flipped.decode("latin-1")}, b"body"
            with pytest.raises(Refused):
                GOLDEN_ACL.authenticate(Command(code=310, opaque=1, ext=ext, body=body), LOOPBACK)


def test_a_wrong_secret_and_an_unknown_key_get_the_same_words() -> None:
    acl, remarks = sample_acl(), []
    for who in (FORGER, Credentials("nobody-knows-me", "whatever-it-is")):
        with pytest.raises(Refused) as refused:
            acl.authenticate(sending_to(ORDERS, who), LOOPBACK)
        remarks.append(refused.value.remark.replace(who.access_key, "KEY"))
    assert remarks[0] == remarks[1]


def test_nobody_is_no_account() -> None:
    with pytest.raises(Refused):
        sample_acl().authenticate(
            sending_to(ORDERS, Credentials("nobody at all", "no secret at all")), LOOPBACK
        )


def test_an_old_signature_counts_on_loopback_and_over_tls_alone() -> None:
    acl = sample_acl()
    command = sending_to(ORDERS, WRITER)
    for peer in (LOOPBACK, ELSEWHERE_BY_TLS, Peer(4, "[::1]:80", b""), Peer(5, "[::ffff:127.0.0.1]:80", b"")):
        assert acl.authenticate(command, peer).access_key == WRITER.access_key
    with pytest.raises(Refused, match=r"TLS.*acl_allow_v1_in_clear"):
        acl.authenticate(command, ELSEWHERE)


def test_an_old_signature_counts_everywhere_if_the_operator_says_so() -> None:
    acl = Acl(sample_acl().rules, allow_v1_in_clear=True)
    assert acl.authenticate(sending_to(ORDERS, WRITER), ELSEWHERE).access_key == WRITER.access_key


def test_shifted_fields_and_a_relabelled_code_pass_the_old_signature_and_so_it_must_not_be_seen() -> None:
    """What version 1 cannot tell apart; the reason for TLS."""
    acl = sample_acl()
    command = signed(WRITER, {"x": "ab", "y": "c"})
    shifted = {**command.ext, "x": "a", "y": "bc"}
    relabelled = Command(code=RequestCode.UPDATE_AND_CREATE_TOPIC, opaque=9, ext=shifted)
    assert acl.authenticate(relabelled, LOOPBACK).access_key == WRITER.access_key
    with pytest.raises(Refused, match="TLS"):
        acl.authenticate(relabelled, ELSEWHERE)


def test_a_white_listed_address_spares_no_signature() -> None:
    rules = replace(sample_acl().rules, white_addresses=(parse_pattern("127.0.0.*"),))
    unsigned = Command(code=310, opaque=1, ext={"b": ORDERS})
    with pytest.raises(Refused, match="white-listed address spares no signature"):
        Acl(rules).authenticate(unsigned, LOOPBACK)
    only_named = Command(code=310, opaque=1, ext={"b": ORDERS, "AccessKey": ADMIN.access_key})
    with pytest.raises(Refused):
        Acl(rules).authenticate(only_named, LOOPBACK)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (Version.V4_9_3, ResponseCode.SYSTEM_ERROR),
        (Version.V4_9_8, ResponseCode.SYSTEM_ERROR),
        (Version.V5_0_0, ResponseCode.NO_PERMISSION),
        (Version.V5_3_3, ResponseCode.NO_PERMISSION),
    ],
)
def test_each_generation_of_clients_is_refused_in_its_own_way(version: int, code: int) -> None:
    with pytest.raises(Refused, match="AclException: ") as refused:
        sample_acl().authenticate(Command(code=10, opaque=1, version=version), LOOPBACK)
    assert refused.value.code == code


# --- what may it do


def test_a_writer_may_publish_where_that_is_granted_and_nowhere_else() -> None:
    acl = sample_acl()
    judged(acl, sending_to(ORDERS, WRITER), PUBLISH, SendMessageV2)
    for topic in ("secrets", f"%RETRY%{BILLING}", "orders2", "Orders", ""):
        with pytest.raises(Refused, match="has no PUB permission"):
            judged(acl, sending_to(topic, WRITER), PUBLISH, SendMessageV2)


def test_a_reader_needs_the_topic_and_the_group() -> None:
    acl = sample_acl()
    judged(acl, pulling(ORDERS, BILLING, READER), PULL, PullMessage)
    for topic, group in ((ORDERS, "other"), ("other", BILLING)):
        with pytest.raises(Refused, match="has no SUB permission"):
            judged(acl, pulling(topic, group, READER), PULL, PullMessage)


def test_a_retry_topic_goes_with_its_group() -> None:
    acl = sample_acl()
    judged(acl, pulling(f"%RETRY%{BILLING}", BILLING, READER), PULL, PullMessage)
    with pytest.raises(Refused, match="for topic '%RETRY%other'"):
        judged(acl, pulling("%RETRY%other", BILLING, READER), PULL, PullMessage)


def test_a_stranger_may_do_nothing_but_what_is_for_anyone() -> None:
    acl = sample_acl()
    command = signed(STRANGER, {})
    acl.judge(command, Access(anyone=True), NoHeader(), LOOPBACK)
    for access in (Access(admin=True), Access()):
        with pytest.raises(Refused):
            acl.judge(command, access, NoHeader(), LOOPBACK)


def test_a_request_that_names_nothing_is_denied() -> None:
    header = UnregisterClient(client_id="c")
    with pytest.raises(Refused, match="names nothing"):
        sample_acl().judge(signed(READER, {}), Access(consume_group="consumer_group"), header, LOOPBACK)


def test_a_default_permission_does_not_open_the_inner_topics() -> None:
    account = Account(access_key="everything", secret_key="x" * 16, default_topic=Permission.BOTH)
    assert account.topic_permission("any") is Permission.BOTH
    for inner in (
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "rmq_sys_wheel_timer",
    ):
        assert account.topic_permission(inner) is Permission.NONE
    assert account.group_permission("any") is Permission.NONE


def test_deny_wins_over_the_default() -> None:
    account = Account(
        access_key="nearly-all",
        secret_key="x" * 16,
        default_topic=Permission.BOTH,
        default_group=Permission.SUB,
        topics={"secrets": Permission.NONE},
        groups={"theirs": Permission.NONE},
    )
    assert account.topic_permission("secrets") is Permission.NONE
    assert account.topic_permission("%RETRY%theirs") is Permission.NONE
    assert account.topic_permission("%RETRY%mine") is Permission.SUB


def test_an_admin_with_lists_is_held_to_them() -> None:
    listed = Account(
        access_key=ADMIN.access_key, secret_key=ADMIN.secret_key, admin=True, topics={ORDERS: Permission.PUB}
    )
    acl = Acl(Rules({listed.access_key: listed}))
    judged(acl, sending_to(ORDERS, ADMIN), PUBLISH, SendMessageV2)
    acl.judge(signed(ADMIN, {}), Access(admin=True), NoHeader(), LOOPBACK)
    with pytest.raises(Refused):
        judged(acl, sending_to("other", ADMIN), PUBLISH, SendMessageV2)


def test_what_a_handler_judges_is_held_to_the_account_that_signed() -> None:
    acl, command = sample_acl(), signed(READER, {})
    acl.permit(command, consume=[ORDERS, f"%RETRY%{BILLING}"], groups=[BILLING])
    for wrong in ({"publish": [ORDERS]}, {"consume": [ORDERS, "other"]}, {"groups": ["other"]}):
        with pytest.raises(Refused):
            acl.permit(command, **wrong)


@pytest.mark.parametrize("text", ["ANY", "pub", "PUB,SUB", "", "PUBSUB", "DENY|PUB"])
def test_an_unknown_permission_is_an_error_and_not_a_guess(text: str) -> None:
    with pytest.raises(AclError, match=r"write PUB, SUB, PUB\|SUB or DENY"):
        permission_named(text)


@pytest.mark.parametrize(("key", "secret"), [("short", "x" * 16), ("long-enough", "short")])
def test_keys_must_be_as_long_as_apache_wants_them(key: str, secret: str) -> None:
    with pytest.raises(AclError, match="at least 7"):
        Account(access_key=key, secret_key=secret)


def test_the_last_admin_cannot_be_removed() -> None:
    rules = sample_acl().rules
    with pytest.raises(AclError, match="no admin account would be left"):
        rules.without_account(ADMIN.access_key, 1)
    assert READER.access_key not in rules.without_account(READER.access_key, 1).accounts


# --- addresses


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
        ("10.1.2.*", "10.1.2.255", "10.1.3.1"),
        ("10.1.2-9.*", "10.1.9.1", "10.1.10.1"),
        ("10.1.2.{3,4}", "10.1.2.4", "10.1.2.5"),
        ("10.1.2.3,10.1.2.9", "10.1.2.9", "10.1.2.4"),
        ("*", "1.2.3.4", "no address"),
        ("*.*.*.*", "::1", ""),
        ("2001:db8::1", "2001:0db8:0:0::1", "2001:db8::2"),
        ("2001:db8::ac5:78:1-200:*", "2001:db8:0:0:ac5:78:1ff:7", "2001:db8:0:0:ac5:78:201:7"),
        ("2001:db8::{1,f}", "2001:db8::f", "2001:db8::2"),
        ("10.1.2.3", "::ffff:10.1.2.3", "::10.1.2.3"),
    ],
)
def test_an_address_pattern_means(pattern: str, inside: str, outside: str) -> None:
    assert parse_pattern(pattern).matches(inside)
    assert not parse_pattern(pattern).matches(outside)


@pytest.mark.parametrize(
    "pattern",
    ["", "10.1.2", "10.1.2.256", "10.1.2.9-1", "10.1.2.-1", "10.1.2.1-", "10.1.2{3,4}", "{1}", "a.b.c.d", "1.2.3.4.5",
     "10.1.2.+3", "10.1.2.1_0", "::1::2", "1:2:3", "10.1.2.3;10.1.2.4", "10.1.2.3,", "10.1.*.**", "/etc/passwd"],
)  # fmt: skip
def test_what_is_no_address_pattern_is_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_pattern(pattern)


def test_loopback_is_known_in_every_spelling_and_nothing_else_is() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1", "::1%lo")))
    assert not any(
        map(
            is_loopback, ("10.0.0.1", "0.0.0.0", "::", "", "localhost", "127.0.0.1.evil.example", "128.0.0.1")
        )
    )
