"""Byte streams that mean harm, for live servers. `tests/hostile.py` has the same kinds for the functions of the wire layer."""

import functools
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.frames import BINARY_HEADER, encode_frame
from trimtab.wire.headers.base import Header

MIB: Final = 1 << 20

Attack = Callable[[], bytes]

BROKER_BODIES: Final = (
    RequestCode.HEART_BEAT,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_BROKER_CONFIG,
)
NAMES_BODIES: Final = (
    RequestCode.REGISTER_BROKER,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.UPDATE_NAMESRV_CONFIG,
)
REGISTRATION: Final = {
    "brokerName": "evil", "brokerAddr": "evil:1", "clusterName": "evil", "haServerAddr": "", "brokerId": "0", "topic": "t",
}  # fmt: skip
SEND: Final = {"a": "g", "b": "Attacked", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}

# --- lengths that lie (S4, N3)

OVERSIZED: Final[dict[str, bytes]] = {
    "2 GiB": b"\x7f\xff\xff\xff",
    "4 GiB less one": b"\xff\xff\xff\xff",
    "16 MiB and one": (16 * MIB + 1 - 4).to_bytes(4, "big"),
    "zero": b"\0\0\0\0",
    "three": b"\0\0\0\x03",
    "a header longer than its frame": bytes.fromhex("00000008 00ffffff"),
    "a header of 16 MiB": (15 * MIB).to_bytes(4, "big") + bytes.fromhex("00e00000"),
    "a header of 256 KiB and one": (MIB).to_bytes(4, "big") + bytes.fromhex("00040001"),
}

# --- headers and bodies that are bombs (S6, S7)


def headers() -> dict[str, bytes]:
    """Whole frames whose header is the attack."""
    wide = b"{" + b",".join(b'"k%d":"v"' % number for number in range(4_000)) + b"}"
    raw = {
        "brackets": b"[" * 65_000,
        "nested fields": b'{"extFields":' * 5_000,
        "a field that is a depth bomb": b'{"code":34,"extFields":{"a":' + b"[" * 60_000 + b"}}",
        "a giant integer": b'{"code":' + b"9" * 60_000 + b"}",
        "a giant opaque": b'{"code":34,"opaque":' + b"9" * 6_000 + b"}",
        "thousands of fields": b'{"code":34,"extFields":' + wide + b"}",
        "wrong types": b'{"code":{},"opaque":[],"flag":"x"}',
        "not a number": b'{"code":NaN,"opaque":Infinity}',
        "not UTF-8": b'{"code":34,"remark":"\xff\xfe"}',
        "nothing": b"",
        "an array": b"[34]",
        "doubled keys": b'{"code":34,"code":10,"opaque":1,"opaque":2}',
        "half a surrogate pair": b'{"code":34,"extFields":{"topic":"\\ud800"}}',
    }
    found = {f"a header of {name}": encode_frame(header) for name, header in raw.items()}
    binary = {
        "cut off": b"\0\x22",
        "endless text": b"\0\x22\0\1\x8f" + bytes(8) + b"\x7f\xff\xff\xff",
        "endless fields": b"\0\x22\0\1\x8f" + bytes(8) + bytes(4) + b"\xff\xff\xff\xff",
        "a field longer than the rest": b"\0\x22\0\1\x8f"
        + bytes(8)
        + bytes(4)
        + b"\0\0\0\x08\x7f\xff"
        + bytes(6),
    }
    found |= {
        f"a binary header with {name}": encode_frame(header, serializer=BINARY_HEADER)
        for name, header in binary.items()
    }
    found["a header of no known kind"] = encode_frame(b"{}", serializer=7)
    return found


def _references(count: int) -> bytes:
    entries = ['"a0":{"x":1}']
    entries += [f'"a{n}":[{{"$ref":"$.a{n - 1}"}},{{"$ref":"$.a{n - 1}"}}]' for n in range(1, count)]
    return ("{" + ",".join(entries) + "}").encode()


@functools.cache
def bodies() -> dict[str, bytes]:
    """Bodies that are the attack, for every code that reads one."""
    return {
        "brackets": b"[" * 4 * MIB,
        "braces": b"{" * 4 * MIB,
        "braces and keys": b'{"a":' * MIB,
        "object keys": b'{"offsetTable":' + b'{{"a":1}:' * (MIB // 4),
        "a giant integer": b'{"clientID":"c","heartbeatFingerprint":' + b"9" * MIB + b"}",
        "an endless string": b'{"a":"' + b"\\\\" * 4 * MIB,
        "a bomb of references": _references(400),
        "a reference to itself": b'{"consumerDataSet":[{"$ref":"$"}],"mqSet":{"$ref":".."},"topicConfigTable":{"$ref":"@"}}',
        "no UTF-8": b'{"clientID":"\xff\xfe"}' + b"\xff" * MIB,
        "a zip bomb": zlib.compress(bytes(64 * MIB)),
        "zeros": bytes(4 * MIB),
        "nothing": b"",
        "null": b"null",
        "a list": b"[1,2,3]",
        "lines": b"\n".join(b"k%d=v" % n for n in range(100_000)),
    }


@functools.cache
def broker_attacks() -> "dict[str, Attack]":
    """Every frame that is sent to a live broker."""
    found: dict[str, Attack] = {name: functools.partial(bytes, frame) for name, frame in headers().items()}
    for name, body in bodies().items():
        for code in BROKER_BODIES:
            found[f"{code.name} with {name}"] = _frame(code, {}, body)
        for batch in ({"m": "true"}, {"m": "true", "f": "1"}):
            found[f"SEND_BATCH_MESSAGE {batch} with {name}"] = _frame(
                RequestCode.SEND_BATCH_MESSAGE, SEND | batch, body
            )
    return found


@functools.cache
def names_attacks() -> "dict[str, Attack]":
    """Every frame that is sent to a live name server."""
    found: dict[str, Attack] = {name: functools.partial(bytes, frame) for name, frame in headers().items()}
    for name, body in bodies().items():
        for code in NAMES_BODIES:
            for compressed in ("false", "true"):
                ext = {**REGISTRATION, "compressed": compressed}
                found[f"{code.name} compressed={compressed} with {name}"] = _frame(code, ext, body)
    return found


def _frame(code: int, ext: dict[str, str], body: bytes) -> Attack:
    """Made when it is sent: all of them together would take half a gigabyte."""
    return lambda: encode_command(Command(code=code, opaque=1, ext=ext, body=body))


# --- frames by chance (N2)

HeaderTypes = Mapping[int, type[Header]]


def hostile_frame(chance: random.Random, honest: Sequence[bytes], known: HeaderTypes) -> bytes:
    """A frame, or nearly one: honest ones damaged, invented ones, and noise."""
    kind = chance.randrange(9)
    if kind == 0:
        return chance.randbytes(chance.choice((1, 4, 8, 9, 64, 300)))
    if kind == 1:
        return encode_frame(
            chance.randbytes(chance.randrange(80)),
            chance.randbytes(chance.randrange(80)),
            serializer=chance.choice((0, 1, 2, 255)),
        )
    if kind == 2:
        return encode_command(_invented(chance, honest))
    if kind >= 6:
        return encode_command(_plausible(chance, honest, known))
    frame = bytearray(chance.choice(honest))
    if kind == 3:  # flipped bits, lengths spared so that the frame itself is whole
        for _ in range(chance.randrange(1, 6)):
            frame[chance.randrange(8, len(frame))] ^= 1 << chance.randrange(8)
    elif kind == 4:  # a piece replaced by something that matters to parsers
        at = chance.randrange(8, len(frame))
        piece = chance.choice(
            (
                b'"',
                b"\\",
                b"\0",
                b"{",
                b"[",
                b":",
                b"-1",
                b"99999999999999999999",
                b"null",
                b"\xff",
                b"1e999",
                b"true",
            )
        )
        frame[at : at + len(piece)] = piece
        frame[0:4] = (len(frame) - 4).to_bytes(4, "big")
    else:  # any byte at all
        frame[chance.randrange(len(frame))] = chance.randrange(256)
    return bytes(frame)


_VALUES = ("", "0", "-1", "1", "2147483647", "2147483648", "-9223372036854775808", "9223372036854775807", "true", "x", "%RETRY%g",
           "TopicTest", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "../x", "\0", "\n", "é", "NaN", "1e5", " 1")  # fmt: skip
_FIELDS = ("topic", "queueId", "consumerGroup", "group", "offset", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset",
           "suspendTimeoutMillis", "subVersion", "subscription", "expressionType", "maxMsgBytes", "timestamp", "key", "maxNum",
           "beginTimestamp", "endTimestamp", "clientID", "producerGroup", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l",
           "m", "n", "delayLevel", "originTopic", "commitLogOffset", "tranStateTableOffset", "commitOrRollback", "msgId",
           "brokerName", "brokerAddr", "clusterName", "brokerId", "haServerAddr", "namespace", "value", "perm", "readQueueNums",
           "writeQueueNums", "defaultTopic", "topicFilterType", "statsName", "statsKey", "index", "count", "isForce", "clientId",
           "accessKey", "secretKey", "AccessKey", "Signature", "properties", "bornTimestamp", "flag", "defaultTopicQueueNums")  # fmt: skip


_NUMBERS = (
    "-1",
    "0",
    "0",
    "1",
    "2",
    "4",
    "32",
    "1000",
    "2147483647",
    "-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
)
_NAMES = ("TopicTest", "TopicTest", "Sent", "g", "pg", "TBW102", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster",
          "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "TOPIC_PUT_NUMS", "TAG", "SQL92", "a > 5", "", "x", "true", "\0")  # fmt: skip


def _plausible(chance: random.Random, honest: Sequence[bytes], known: HeaderTypes) -> Command:
    """A request whose fields have the right names and types, and values at the edges."""
    code = chance.choice(sorted(known))
    fields = {}
    for field in msgspec.structs.fields(known[code]):
        if field.required or chance.random() < 0.5:
            is_text = field.type in (str, str | None)
            is_switch = field.type in (bool, bool | None)
            fields[field.encode_name] = chance.choice(
                _NAMES if is_text else ("true", "false") if is_switch else _NUMBERS
            )
    body = chance.choice((b"", b"x", b"{}", b"autoCreateTopicEnable=true", _body_of(chance.choice(honest))))
    return Command(
        code=code, opaque=chance.randrange(2**31), ext=fields, body=body, version=chance.choice((399, 479))
    )


def _body_of(frame: bytes) -> bytes:
    return frame[8 + int.from_bytes(frame[5:8], "big") :]


def _invented(chance: random.Random, honest: Sequence[bytes]) -> Command:
    code = chance.choice((*RequestCode, -1, 0, 9_999, 2**31 - 1))
    fields = {name: chance.choice(_VALUES) for name in chance.sample(_FIELDS, chance.randrange(len(_FIELDS)))}
    # No pull is held for long: the test would wait for nothing.
    fields["sysFlag"] = chance.choice(("0", "1", "4", "5", "-1", "x")) if chance.random() < 0.9 else "0"
    if "suspendTimeoutMillis" in fields:
        fields["suspendTimeoutMillis"] = "0"
    body = chance.choice(
        (b"", b"x", b"{}", b"[]", b"null", _body_of(chance.choice(honest)), chance.randbytes(40))
    )
    return Command(
        code=code,
        opaque=chance.randrange(-(2**31), 2**31),
        flag=chance.choice((0, 0, 0, 1, 2, 3, -1)),
        ext=fields,
        body=body,
        version=chance.choice((0, 28, 399, 401, 479, 2**31 - 1, -1)),
    )
