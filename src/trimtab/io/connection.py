"""The client's side of a connection: requests out, answers matched by opaque, requests of the server handed on.

One connection carries everything between two addresses; answers come in any order. Whatever is sent within one turn of the
loop leaves in one write. When the connection ends, everybody who waits for an answer is told at once.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Self, cast

from trimtab.errors import (
    ConnectionLostError,
    NotSentError,
    ProtocolError,
    RequestTimeoutError,
    ServerUnreachableError,
)
from trimtab.wire.codes import RESPONSE_FLAG
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import FRAME_BYTES_MAX, FrameDecoder

CONNECT_S_MAX = 3.0
UNANSWERED_MAX = 65_535
SILENT_S_MAX = 10.0
"""A connection on which nothing at all has come for so long after a request is half open: nobody is there any more."""

Taker = Callable[[Command | None, Exception | None], None]
"""Gets the answer to a request, or why there will be none. It must not raise."""
OnRequest = Callable[["PeerConnection", Command], None]
OnLost = Callable[["PeerConnection"], None]


class _Expired(Exception):  # noqa: N818 - it never leaves this module
    """The time for an answer is over."""


def _expire(future: "asyncio.Future[Command]") -> None:
    if not future.done():
        future.set_exception(_Expired())


def _ignore(*_: object) -> None:
    return None


class PeerConnection(asyncio.Protocol):
    """See the module's own words. `PeerConnection.open` makes one."""

    def __init__(
        self,
        address: str,
        on_request: OnRequest = _ignore,
        on_lost: OnLost = _ignore,
        silent_s_max: float = SILENT_S_MAX,
    ) -> None:
        self.address = address
        self.has_answered = False
        """Whether the other side ever sent a whole frame: one that does not is not the server that we look for."""
        self.is_open = False
        """Whether requests can be made."""
        self.heard_at = 0.0
        """When anything came last, in the loop's time."""
        self._on_request = on_request
        self._on_lost = on_lost
        # The answer to a batch has the ids of all its messages in its header: tens of thousands fit one batch.
        self._decoder = FrameDecoder(header_bytes_max=FRAME_BYTES_MAX)
        self._waiting: dict[int, Taker] = {}
        self._silent_s_max = silent_s_max
        self._silent_since: float | None = None  # the first request since something last came
        self._out: list[bytes] = []
        self._opaque = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._failure: Exception | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._is_over = asyncio.Event()

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        on_request: OnRequest = _ignore,
        on_lost: OnLost = _ignore,
        tls: ssl.SSLContext | None = None,
        connect_s_max: float = CONNECT_S_MAX,
        silent_s_max: float = SILENT_S_MAX,
    ) -> Self:
        """A connection that stands, or `ServerUnreachableError`."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_s_max):
                _, protocol = await loop.create_connection(
                    lambda: cls(address, on_request, on_lost, silent_s_max),
                    host.strip("[]"),
                    int(port),
                    ssl=tls,
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
    def local_address(self) -> str:
        """The near end, as the far one sees it if nobody on the way changes addresses; empty once it is closed."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""

    @property
    def unanswered(self) -> int:
        """How many requests wait for their answers."""
        return len(self._waiting)

    def next_opaque(self) -> int:
        """A number for a request that is free on this connection."""
        while True:
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            if self._opaque not in self._waiting:
                return self._opaque

    async def ask(self, command: Command, *, timeout_s: float) -> Command:
        """The answer to a request whose opaque is from `next_opaque`."""
        return await self.answer_to(
            command.opaque,
            encode_command(command),
            deadline=self._loop.time() + timeout_s,
            asked=f"request {command.code}",
        )

    async def answer_to(self, opaque: int, frame: bytes, *, deadline: float, asked: str) -> Command:
        """The answer to a request, by `deadline` in the loop's time."""
        future = self.ask_soon(opaque, frame)
        timer = self._loop.call_at(deadline, _expire, future)
        try:
            return await future
        except _Expired:
            self.expired(opaque)
            raise RequestTimeoutError(
                f"{asked}: {self.address} did not answer in time; it may have been done all the same"
            ) from None
        finally:
            timer.cancel()
            self._waiting.pop(opaque, None)

    def ask_soon(self, opaque: int, frame: bytes) -> "asyncio.Future[Command]":
        """Puts a request on the wire; the answer comes into the future. Its maker bounds the waiting, and calls `expired` then."""
        future: asyncio.Future[Command] = self._loop.create_future()

        def take(answer: Command | None, failure: Exception | None) -> None:
            if future.done():
                return
            if answer is not None:
                future.set_result(answer)
            elif failure is not None:
                future.set_exception(failure)

        self.request(opaque, frame, take)
        return future

    def request(self, opaque: int, frame: bytes, taker: Taker, *, soon: bool = True) -> None:
        """Puts a request on the wire; `taker` gets the answer. Its maker bounds the waiting, and calls `expired` then.

        Without `soon` the maker calls `flush` itself, in this turn of the loop.
        """
        if not self.is_open:
            raise ConnectionLostError(f"the connection to {self.address} is closed") from self._failure
        if len(self._waiting) >= UNANSWERED_MAX:
            raise NotSentError(
                f"{len(self._waiting)} requests to {self.address} are unanswered already, at most {UNANSWERED_MAX} may be"
            )
        self._waiting[opaque] = taker
        if self._silent_since is None:
            self._silent_since = self._loop.time()
        if soon:
            self.send(frame)
        else:
            self._out.append(frame)

    def expired(self, opaque: int) -> None:
        """Nobody waits for this answer any more; if it comes, it is dropped. A connection that has been silent for long is given up."""
        self._waiting.pop(opaque, None)
        if self._silent_since is None or self._failure is not None or self._transport is None:
            return
        silent_s = self._loop.time() - self._silent_since
        if silent_s >= self._silent_s_max:
            self._give_up(ConnectionLostError(f"{self.address} has been silent for {silent_s:.0f} s"))

    async def room(self) -> None:
        """Waits while the system takes no more bytes from us; whoever sends without waiting for answers waits here."""
        await self._room.wait()

    def send(self, frame: bytes) -> None:
        """Sends a frame that nobody waits for: a one-way request or an answer."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(frame)

    def close(self) -> None:
        """Sends what is left and closes."""
        self.flush()
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    async def ended(self, within_s: float) -> None:
        """Waits until a closed connection is gone; one that does not end in time is cut off."""
        try:
            async with asyncio.timeout(within_s):
                await self._is_over.wait()
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()
            await asyncio.sleep(0)

    def flush(self) -> None:
        """Writes what was sent in this turn of the loop now; without it, that happens at the turn's end."""
        out, self._out = self._out, []
        if out and self.is_open and self._transport is not None:
            # Not writelines(): in Python 3.12.0 and 3.13.0 it never calls pause_writing, and senders would not be held back.
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _give_up(self, failure: Exception) -> None:
        self.is_open = False
        self._failure = failure
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's callbacks ----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        self.is_open = True

    def eof_received(self) -> None:
        self.is_open = False  # the transport closes itself now, and says so in a later turn of the loop

    def data_received(self, data: bytes) -> None:
        self._silent_since = None
        self.heard_at = self._loop.time()
        try:
            for frame in self._decoder.feed(data):
                command = decode_command(frame)
                self.has_answered = True
                if not command.flag & RESPONSE_FLAG:
                    self._on_request(self, command)
                    continue
                taker = self._waiting.pop(command.opaque, None)
                if taker is not None:
                    taker(command, None)
        except ProtocolError as error:
            self._give_up(error)

    def connection_lost(self, exc: Exception | None) -> None:
        failure = ConnectionLostError(
            f"the connection to {self.address} was lost: {self._failure or exc or 'closed'}"
        )
        self.is_open = False
        self._failure = self._failure or exc or failure
        self._room.set()
        self._is_over.set()
        waiting, self._waiting = self._waiting, {}
        self._on_lost(self)
        for taker in waiting.values():
            taker(None, failure)
