"""Request and reply over topics.

A request is a message that says who asks and under which number. Whoever consumes it sends a reply of that number to the
cluster's reply topic; the broker pushes it straight to the one who asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from trimtab.errors import (
    ClosedError,
    InvalidMessageError,
    NotSentError,
    ProtocolError,
    RequestTimeoutError,
)
from trimtab.wire import properties as names
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.compression import compression_of, inflate
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.callbacks import PushReplyMessage
from trimtab.wire.properties import decode_properties

if TYPE_CHECKING:
    from trimtab.client.received import Received
    from trimtab.client.session import Session
    from trimtab.io.chance import Chance
    from trimtab.io.connection import PeerConnection
    from trimtab.wire.commands import Command

_log = logging.getLogger(__name__)

WAITING_REQUESTS_MAX = 65_535


class Reply(msgspec.Struct, frozen=True):
    """What a consumer answered to a request."""

    body: bytes
    properties: dict[str, str]
    correlation_id: str
    born_timestamp: int
    store_timestamp: int


class UnansweredError(ClosedError):
    """The producer was closed while a request waited for its reply; somebody may have carried it out."""

    indeterminate = True


class Requests:
    """The requests of one producer that wait for replies."""

    def __init__(self, session: "Session", chance: "Chance") -> None:
        self._session = session
        self._chance = chance
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._stop_listening = session.listen(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._replied)

    async def close(self) -> None:
        """Nobody waits any more."""
        self._stop_listening()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(UnansweredError("the producer was closed before the reply came"))

    async def ask(self, topic: str, send: Callable[[str], Awaitable[None]], timeout_s: float) -> Reply:
        """Sends, with the properties of a request, and waits for the reply."""
        if len(self._waiting) >= WAITING_REQUESTS_MAX:
            raise NotSentError(f"{WAITING_REQUESTS_MAX} requests wait for replies already")
        number = _uuid(self._chance.randbytes(16))
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        extra = (
            f"\x02{names.CORRELATION_ID}\x01{number}\x02{names.REPLY_TO_CLIENT}\x01{self._session.client_id}"
            f"\x02{names.TTL}\x01{round(timeout_s * 1000)}"
        )
        try:
            async with asyncio.timeout(timeout_s):
                await send(extra)
                return await reply
        except TimeoutError:
            raise RequestTimeoutError(
                f"request to {topic!r}: no reply within {timeout_s:g} s; does anybody consume the topic and reply?"
            ) from None
        finally:
            del self._waiting[number]
            if reply.done() and not reply.cancelled():
                reply.exception()  # nobody else may have looked at it, if the send failed too

    @staticmethod
    def reply_to(request: "Received") -> tuple[str, str]:
        """The topic and the properties of a reply."""
        properties = request.properties
        missing = [
            name
            for name in (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT)
            if name not in properties
        ]
        if missing:
            raise InvalidMessageError(
                f"{request!r} cannot be replied to: it has no {', '.join(missing)}; was it sent with request()?"
            )
        extra = "".join(
            f"\x02{name}\x01{properties[name]}"
            for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)
            if name in properties
        )
        return f"{properties[names.CLUSTER]}_REPLY_TOPIC", extra

    def _replied(self, connection: "PeerConnection", request: "Command") -> bool:
        try:
            header = decode_ext(PushReplyMessage, request.ext)
            properties = decode_properties((header.properties or "").encode())
            number = properties.get(names.CORRELATION_ID, "")
            waiting = self._waiting.get(number)
            if waiting is None:
                return False
            compression = compression_of(header.sys_flag)
            body = request.body if compression is None else inflate(request.body, compression)
        except ProtocolError as error:
            _log.warning("a reply pushed by %s cannot be read: %s", connection.address, error)
            self._session.answer(
                connection, request, code=ResponseCode.SYSTEM_ERROR, remark="the reply cannot be read"
            )
            return True
        if not waiting.done():
            waiting.set_result(Reply(body, properties, number, header.born_timestamp, header.store_timestamp))
        self._session.answer(connection, request)
        return True


def _uuid(random: bytes) -> str:
    """A random number in the form that Java gives to it. PURE."""
    text = random.hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{'89ab'[random[8] >> 6]}{text[17:20]}-{text[20:]}"
