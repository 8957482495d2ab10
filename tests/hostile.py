"""Inputs that mean harm. Each must end in `ProtocolError`, soon and in little memory; `make bench` shows how soon."""

import zlib
from collections.abc import Callable

import lz4.frame
import zstandard

from trimtab.wire.batch import decode_batch
from trimtab.wire.bodies import ConsumeStats, HeartbeatData, TopicRouteData, decode_register_body
from trimtab.wire.columns import decode_columns
from trimtab.wire.commands import decode_command
from trimtab.wire.compression import Compression
from trimtab.wire.fastjson import decode_body
from trimtab.wire.frames import Frame, FrameDecoder
from trimtab.wire.hot import decode_request
from trimtab.wire.messages import Storable, decode_messages, encode_stored

MIB = 1 << 20
HOST = bytes((127, 0, 0, 1, 0, 0, 0, 80))


def _header(raw: bytes) -> list[Callable[[], object]]:
    return [lambda: decode_command(Frame(0, raw, b"")), lambda: decode_request(Frame(0, raw, b""))]


def _bodies(raw: bytes) -> list[Callable[[], object]]:
    types = (TopicRouteData, ConsumeStats, HeartbeatData)
    return [lambda body_type=body_type: decode_body(body_type, raw) for body_type in types]  # type: ignore[misc]


def _stored(body: bytes, sys_flag: int = 0) -> bytes:
    message = Storable(
        topic=b"T", body=body, properties=b"", queue_id=0, born_timestamp=0, born_host=HOST, sys_flag=sys_flag
    )
    return encode_stored(message, 0, 0, 0, HOST)


def _messages(raw: bytes) -> list[Callable[[], object]]:
    return [lambda: [message.body for message in decode_messages(raw)], lambda: decode_columns(raw)]


def _bomb(compression: Compression, packed: bytes) -> list[Callable[[], object]]:
    return _messages(_stored(packed, sys_flag=compression.sys_flag))


def _references(count: int) -> bytes:
    """Each entry refers twice to the one before it: 2 ** count leaves."""
    entries = ['"a0":{"x":1}']
    entries += [f'"a{n}":[{{"$ref":"$.a{n - 1}"}},{{"$ref":"$.a{n - 1}"}}]' for n in range(1, count)]
    return ("{" + ",".join(entries) + "}").encode()


def cases() -> dict[str, list[Callable[[], object]]]:
    """What each attack feeds to whom."""
    zeros = bytes(64 * MIB)
    zlib_bomb = zlib.compress(zeros)
    wide = b"{" + b",".join(b'"k%d":"v"' % number for number in range(6_000)) + b"}"
    return {
        "a frame of 2 GiB": [lambda: list(FrameDecoder().feed(b"\x7f\xff\xff\xff"))],
        "a frame of -1": [lambda: list(FrameDecoder().feed(b"\xff\xff\xff\xff"))],
        "a header longer than its frame": [
            lambda: list(FrameDecoder().feed(bytes.fromhex("00000008 00ffffff")))
        ],
        "a header of brackets": _header(b"[" * 65_000),
        "a header of nested fields": _header(b'{"extFields":' * 5_000),
        "a header field that is a depth bomb": _header(b'{"extFields":{"a":' + b"[" * 60_000 + b"}}"),
        "a header with a giant integer": _header(b'{"code":' + b"9" * 60_000 + b"}"),
        "a header with thousands of fields": _header(
            b'{"extFields":' + wide[:64_000].rpartition(b",")[0] + b"}}"
        ),
        "a header with wrong types": _header(b'{"code":{},"opaque":[],"flag":"x"}'),
        "a body of brackets": _bodies(b"[" * 4 * MIB),
        "a body of braces": _bodies(b"{" * 4 * MIB),
        "a body of braces and keys": _bodies(b'{"a":' * MIB),
        "a body of object keys": _bodies(b'{"offsetTable":' + b'{{"a":1}:' * (MIB // 4)),
        "a body with a giant integer": [
            lambda: decode_body(ConsumeStats, b'{"offsetTable":{{"queueId":' + b"9" * MIB + b"}:1}}"),
            lambda: decode_body(
                TopicRouteData, b'{"brokerDatas":[{"brokerAddrs":{' + b"9" * MIB + b':"x"}}]}'
            ),
            lambda: decode_body(
                HeartbeatData, b'{"clientID":"c","heartbeatFingerprint":' + b"9" * MIB + b"}"
            ),
        ],
        "a body with an endless string": _bodies(b'{"a":"' + b"\\\\" * 4 * MIB),
        "a body with a bomb of references": _bodies(_references(400)),
        "a body that refers to itself": _bodies(
            b'{"offsetTable":{"$ref":"$"},"brokerDatas":[{"$ref":".."}],"consumerDataSet":[{"$ref":"@"}]}'
        ),
        "a body that is not UTF-8": _bodies(b'{"clientID":"\xff\xfe"}' + b"\xff" * MIB),
        "a registration that is a zip bomb": [
            lambda: decode_register_body(zlib_bomb, compressed=True, version=399)
        ],
        "a batch cut off": [lambda: decode_batch(bytes.fromhex("0000002a 00000000"))],
        "a batch of size 0": [lambda: decode_batch(bytes(4 * MIB))],
        "a message of size -1": _messages(b"\xff" * 4 * MIB),
        "a message of size 0": _messages(bytes(4 * MIB)),
        "a message cut off": _messages(_stored(b"x" * MIB)[:-1]),
        "a zlib bomb": _bomb(Compression.ZLIB, zlib_bomb),
        "an lz4 bomb": _bomb(Compression.LZ4, lz4.frame.compress(zeros)),
        "a zstd bomb": _bomb(Compression.ZSTD, zstandard.compress(zeros)),
    }
