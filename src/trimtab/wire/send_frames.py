"""Frames of sends to one queue: what never changes is laid out once. The bytes are those of `hot.encode_send_request`."""

from collections.abc import Iterable
from struct import Struct

import msgspec

_text = msgspec.json.encode
_pack_lengths = Struct(">II").pack


class SendFrames:
    """Makes the requests of one producer group to one queue."""

    __slots__ = ("_template",)

    def __init__(
        self, *, group: str, topic: str, queue_id: int, default_topic: str, default_topic_queues: int
    ) -> None:
        head = b'"extFields":{"a":%b,"b":%b,"c":%b,"d":"%d","e":"%d","f":"' % (
            _text(group),
            _text(topic),
            _text(default_topic),
            default_topic_queues,
            queue_id,
        )
        self._template = (
            b'{"code":%d,'
            + head.replace(b"%", b"%%")
            + b'%d","g":"%d","h":"%d","i":%b,"j":"0","k":"false","m":"%b"},"flag":%d,"language":"PYTHON","opaque":%d'
            + b',"serializeTypeCurrentRPC":"JSON","version":399}'
        )

    def encode(
        self,
        code: int,
        *,
        opaque: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        message_flag: int,
        properties: str,
        is_batch: bool,
        body: Iterable[bytes],
        body_bytes: int,
    ) -> bytes:
        """One request; its body is given in pieces, so that each is copied once."""
        header = self._template % (
            code,
            sys_flag,
            born_ms,
            message_flag,
            _text(properties),
            b"true" if is_batch else b"false",
            flag,
            opaque,
        )
        header_bytes = len(header)
        return b"".join((_pack_lengths(4 + header_bytes + body_bytes, header_bytes), header, *body))
