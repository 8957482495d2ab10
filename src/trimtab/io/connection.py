"""The client's side of a connection: requests out, answers matched by opaque, requests of the server handed on.

One connection carries everything between two addresses; answers come in any order. Whatever is sent within one turn of the
loop leaves in one write. When the connection ends, everybody who waits for an answer is told at once.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Self, cast

from trimtab.errors import ConnectionLostError, ProtocolError, RequestTimeoutError, ServerUnreachableError
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import FrameDecoder

CONNECT_S_MAX = 3.0
UNANSWERED_MAX = 65_535

OnRequest = Callable[["PeerConnection", Command], None]
OnLost = Callable[["PeerConnection"], None]


def _ignore(*_: object) -> None:
    return None


class PeerConnection(asyncio.Protocol):
    """See the module's own words. `PeerConnection.open` makes one."""

    def __init__(self, address: str, on_request: OnRequest = _ignore, on_lost: OnLost = _ignore) -> None:
        self.address = address
        self._on_request = on_request
        self._on_lost = on_lost
        self._decoder = FrameDecoder()
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._out: list[bytes] = []
        self._opaque = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._failure: Exception | None = None

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        on_request: OnRequest = _ignore,
        on_lost: OnLost = _ignore,
        tls: ssl.SSLContext | None = None,
        connect_s_max: float = CONNECT_S_MAX,
    ) -> Self:
        """A connection that stands, or `ServerUnreachableError`."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_s_max):
                _, protocol = await loop.create_connection(
                    lambda: cls(address, on_request, on_lost), host.strip("[]"), int(port), ssl=tls
                )
        except (OSError, TimeoutError, ValueError) as error:
            raise ServerUnreachableError(
                f"cannot connect to {address}: {str(error) or 'no answer'}; is it running there, and reachable from here?"
            ) from error
        return protocol

    def __repr__(self) -> str:
        return (
            f"<PeerConnection {self.address} waiting={len(self._waiting)}{'' if self.is_open else ' closed'}>"
        )

    @property
    def is_open(self) -> bool:
        """Whether requests can be made."""
        return self._failure is None and self._transport is not None and not self._transport.is_closing()

    def next_opaque(self) -> int:
        """A number for a request that is free on this connection."""
        while True:
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            if self._opaque not in self._waiting:
                return self._opaque

    async def ask(self, command: Command, *, timeout_s: float) -> Command:
        """The answer to a request whose opaque is from `next_opaque`."""
        future = self.ask_soon(command.opaque, encode_command(command))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise RequestTimeoutError(
                f"{self.address} did not answer request {command.code} within {timeout_s:g} s"
            ) from None
        finally:
            self._waiting.pop(command.opaque, None)

    def ask_soon(self, opaque: int, frame: bytes) -> "asyncio.Future[Command]":
        """Puts a request on the wire; the answer comes into the future. Its maker bounds the waiting."""
        if not self.is_open:
            raise ConnectionLostError(f"the connection to {self.address} is closed") from self._failure
        if len(self._waiting) >= UNANSWERED_MAX:
            raise ConnectionLostError(f"{len(self._waiting)} requests to {self.address} wait already")
        future = self._waiting[opaque] = self._loop.create_future()
        self.send(frame)
        return future

    def send(self, frame: bytes) -> None:
        """Sends a frame that nobody waits for: a one-way request or an answer."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def close(self) -> None:
        """Sends what is left and closes."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    # --- asyncio's callbacks ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                command = decode_command(frame)
                if not command.is_response:
                    self._on_request(self, command)
                    continue
                future = self._waiting.pop(command.opaque, None)
                if future is not None and not future.done():
                    future.set_result(command)
        except ProtocolError as error:
            self._failure = error
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        failure = ConnectionLostError(
            f"the connection to {self.address} was lost: {self._failure or exc or 'closed'}"
        )
        self._failure = self._failure or exc or failure
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(failure)
        self._on_lost(self)
