"""The server's side of connections: sockets in, whole frames to an application, answers out.

`FrameServer` listens. Each connection has a `FrameServerProtocol`, the way in: it cuts frames, hands over all that one read
completed as one batch, and holds the peer to the limits. And it has a `Connection`, the way out, which is what the application
sees: whatever is sent while a batch is handled leaves in one write, whatever is sent at other times leaves once per turn
of the loop.

Nothing is ever awaited for a peer. One that does not read what it asked for is not read from either; one that leaves too
much unread, is silent, or takes too long over a frame, is closed. Bytes that are no frames close the connection, after the
answers to the frames before them.
"""

import asyncio
import contextlib
import itertools
import logging
import ssl
from collections import Counter
from dataclasses import dataclass, replace
from typing import Protocol, cast

from trimtab.errors import ProtocolError
from trimtab.io.clock import Clock
from trimtab.io.complaints import Complaints
from trimtab.io.tls import HANDSHAKE_RECORD
from trimtab.wire.frames import FRAME_BYTES_MAX, Frame, FrameDecoder

_log = logging.getLogger(__name__)

_BATCH_BYTES_MAX = 32 << 10
"""When so much is gathered it is written, so that the peer has something to do while the rest of its batch is handled."""
_WRITE_NOW_BYTES = 16 << 10
"""More than this is handed to the system at once; less, at the end of the turn."""
_SWEEPS_PER_LIMIT = 4
_SWEEP_S_MAX = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLimits:
    """What a server bears."""

    connections_max: int = 10_000
    connections_per_host_max: int = 2_000
    """So that one machine cannot take all of them: five can."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    first_frame_ms_max: int = 10_000
    """From the connection to the end of its first frame."""
    frame_ms_max: int = 30_000
    """From the first byte of a frame to its last."""
    idle_ms_max: int = 120_000
    """Without a byte in or out."""
    close_ms_max: int = 5_000
    """For a peer to take the last answers before it is cut off."""
    unread_bytes_high: int = 1 << 20
    """As long as a peer leaves more than this unread, nothing is read from it."""
    unread_bytes_max: int = 8 << 20
    """A peer that has left more than this unread is cut off when more is to be sent."""

    def with_connections(self, most: int) -> "ServingLimits":
        """The same with not more connections than that; one host never gets more than half of fewer."""
        if most >= self.connections_max:
            return self
        per_host = min(self.connections_per_host_max, max(1, most // 2))
        return replace(self, connections_max=most, connections_per_host_max=per_host)

    def __post_init__(self) -> None:
        """The two bounds of what is unread belong together."""
        if self.unread_bytes_high > self.unread_bytes_max:
            raise ValueError(
                f"unread_bytes_high={self.unread_bytes_high} exceeds unread_bytes_max={self.unread_bytes_max}"
            )


class Application(Protocol):
    """What serves. Both calls come from the loop and must not block it."""

    def on_frames(self, connection: "Connection", frames: list[Frame]) -> int:
        """Frames in order; how many of them were handled. A `ProtocolError` closes the connection, after what was sent so far.

        Stop early when the connection `is_closing`, or `is_choked` by answers that its peer has not read: a peer may ask for much in one
        read. The frames that are left come again when it has read.
        """

    def on_closed(self, connection: "Connection") -> None:
        """The connection is gone, for whatever reason. It comes exactly once for each connection that had a frame."""


class Connection:
    """The way out to one peer."""

    __slots__ = (
        "_clock", "_is_corked", "_is_held", "_loop", "_out", "_out_bytes", "_transport", "_unread_bytes_high", "_unread_bytes_max",
        "closing_since_ms", "host", "id", "is_secure", "peer", "stirred_ms", "was_closed_here",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        limits: ServingLimits,
    ) -> None:
        self.id = number
        """Never used again by this server."""
        self.host, port = _peer_of(transport)
        self.peer = _address(self.host, port)
        self.is_secure = transport.get_extra_info("ssl_object") is not None
        self.stirred_ms = clock.monotonic_ms()
        self.closing_since_ms: int | None = None
        self.was_closed_here = False
        """Whether this side ended the connection, so that the peer may not know yet."""
        self._transport = transport
        self._loop = loop
        self._clock = clock
        self._unread_bytes_high = limits.unread_bytes_high
        self._unread_bytes_max = limits.unread_bytes_max
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_corked = False
        self._is_held = False

    def __repr__(self) -> str:
        return f"<Connection {self.id} {self.peer}{' closing' if self.is_closing else ''}>"

    @property
    def is_closing(self) -> bool:
        """Whether anything sent now is lost."""
        return self.closing_since_ms is not None or self._transport.is_closing()

    @property
    def is_choked(self) -> bool:
        """Whether the peer should read before it is sent more."""
        return self._out_bytes + self._transport.get_write_buffer_size() > self._unread_bytes_high

    def send(self, data: bytes) -> None:
        """Sends whole frames. They are dropped if the connection is closing."""
        if not self._out and not self._is_corked:
            self._loop.call_soon(self.flush)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > _BATCH_BYTES_MAX:
            self.flush()

    def close(self) -> None:
        """Closes the connection after what was sent so far; the peer has some seconds to take it."""
        if self.closing_since_ms is None:
            self.was_closed_here = True
            self.flush()
            self.closing_since_ms = self._clock.monotonic_ms()
            self._transport.close()

    def abort(self) -> None:
        """Cuts the connection off at once."""
        self.was_closed_here = True
        self._transport.abort()

    def cork(self) -> None:
        """Gathers what is sent until `uncork`, or until it is much."""
        self._is_corked = True

    def uncork(self) -> None:
        """Writes what was gathered."""
        self._is_corked = False
        self.flush()

    def hold(self) -> None:
        """Neither reads nor writes until `let_go`."""
        self._is_held = True
        if not self.is_closing:
            self._transport.pause_reading()

    def let_go(self, *, reads: bool) -> None:
        """Goes on where `hold` stopped it."""
        self._is_held = False
        if reads and not self.is_closing:
            self._transport.resume_reading()
        self.flush()

    def read_no_more(self) -> None:
        """Whatever the peer sends from now on is not looked at."""
        if not self.is_closing:
            self._transport.pause_reading()

    def flush(self) -> None:
        """Writes what waits to be written."""
        if not self._out or self._is_held:
            return
        out, self._out, self._out_bytes = self._out, [], 0
        transport = self._transport
        if self.is_closing:
            return
        if transport.get_write_buffer_size() > self._unread_bytes_max:
            _log.warning("%s reads too slowly and is cut off", self.peer)
            self.abort()
            return
        self.stirred_ms = self._clock.monotonic_ms()
        # Not writelines(): in Python 3.12.0 and 3.13.0 it never calls pause_writing, so slow peers would not be noticed.
        transport.write(out[0] if len(out) == 1 else b"".join(out))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _peer_of(transport: asyncio.Transport) -> tuple[str, int]:
    # A peer that is gone already has no name any more.
    name = transport.get_extra_info("peername") or ("", 0)
    return str(name[0]), int(name[1])


class FrameServerProtocol(asyncio.Protocol):
    """The way in from one peer."""

    __slots__ = (
        "_decoder", "_frame_since_ms", "_had_frame", "_is_peer_slow", "_opened_ms", "_server", "_waiting", "connection",
    )  # fmt: skip

    connection: Connection

    def __init__(self, server: "FrameServer") -> None:
        self._server = server
        self._decoder = FrameDecoder(frame_bytes_max=server.limits.frame_bytes_max)
        self._had_frame = False
        self._is_peer_slow = False
        self._waiting: list[Frame] = []
        """Frames that are handled when the peer has read the answers to those before. They are of one read at most."""
        self._opened_ms = 0
        self._frame_since_ms: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)  # uvloop's are no subclasses of it
        # uvloop writes at once only what is more than the limit, and puts the rest off to the end of its turn.
        stream.set_write_buffer_limits(high=min(_WRITE_NOW_BYTES, self._server.limits.unread_bytes_high))
        self.connection = self._server.opened(self, stream)
        self._opened_ms = self.connection.stirred_ms
        if self._server.is_paused:
            self.connection.hold()

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        if connection.closing_since_ms is not None:
            return
        now_ms = connection.stirred_ms = self._server.clock.monotonic_ms()
        frames: list[Frame] = []
        failure: ProtocolError | None = None
        try:
            for frame in self._decoder.feed(data):
                frames.append(frame)  # noqa: PERF402 - the frames in front of a bad one must survive its error
        except ProtocolError as exc:
            failure = exc
        self._watch_frame(now_ms, completed=bool(frames))
        if frames:
            self._had_frame = True
            failure = self._hand_over(frames) or failure
        if failure is not None:
            self._waiting.clear()
            if data.startswith(HANDSHAKE_RECORD) and not self._had_frame:
                text = "%s spoke TLS to a port without it, and is closed: turn TLS on here or off there"
                self._server.complain(connection, logging.WARNING, text, connection.peer)
            else:
                self._server.complain(connection, logging.INFO, "%s is closed: %s", connection.peer, failure)
            connection.close()

    def _hand_over(self, frames: list[Frame]) -> ProtocolError | None:
        connection = self.connection
        if self._waiting:
            self._waiting += frames
            return None
        connection.cork()
        try:
            handled = self._server.application.on_frames(connection, frames)
            if handled < len(frames) and not connection.is_closing:
                self._waiting = frames[handled:]
        except ProtocolError as exc:
            return exc
        finally:
            connection.uncork()
        if self._waiting and not self._is_peer_slow:
            asyncio.get_running_loop().call_soon(
                self._go_on
            )  # the peer's machine took it all: nobody will tell us
        return None

    def _watch_frame(self, now_ms: int, *, completed: bool) -> None:
        if not self._decoder.pending_bytes:
            self._frame_since_ms = None
        elif completed or self._frame_since_ms is None:
            self._frame_since_ms = now_ms

    def pause_writing(self) -> None:
        self._is_peer_slow = True
        if not self.connection.is_closing:
            self.connection._transport.pause_reading()  # noqa: SLF001 - the way in and the way out share one transport

    def resume_writing(self) -> None:
        self._is_peer_slow = False
        self._go_on()
        if self._is_peer_slow:  # by the answers just sent
            return
        if not self.connection.is_closing and not self._server.is_paused and not self._server.is_deaf:
            # While we did not read, the peer was not late.
            self._watch_frame(self._server.clock.monotonic_ms(), completed=True)
            self.connection._transport.resume_reading()  # noqa: SLF001

    def _go_on(self) -> None:
        """Handles the frames that waited, as far as the peer can take it."""
        if self._is_peer_slow or self._server.is_paused or self._server.is_deaf:
            return
        frames, self._waiting = self._waiting, []
        if frames and not self.connection.is_closing:
            failure = self._hand_over(frames)
            if failure is not None:
                self._server.complain(
                    self.connection, logging.INFO, "%s is closed: %s", self.connection.peer, failure
                )
                self.connection.close()

    def let_go(self, now_ms: int) -> None:
        """Goes on after a pause, which is not held against the peer."""
        self.connection.stirred_ms = self._opened_ms = now_ms
        self._watch_frame(now_ms, completed=True)
        self.connection.let_go(reads=not self._is_peer_slow)
        self._go_on()

    def eof_received(self) -> bool | None:
        return None  # the peer is done asking: the transport closes by itself

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - how it ended does not matter
        self._server.lost(self, had_frame=self._had_frame)

    def overdue(self, now_ms: int) -> str | None:
        """Why the peer must go now, if it must."""
        limits, connection = self._server.limits, self.connection
        if connection.closing_since_ms is not None:
            is_late = now_ms - connection.closing_since_ms > limits.close_ms_max
            return "does not take its last answers" if is_late else None
        if self._frame_since_ms is not None and now_ms - self._frame_since_ms > limits.frame_ms_max:
            return "takes too long over a frame"
        if not self._had_frame and now_ms - self._opened_ms > limits.first_frame_ms_max:
            return "asked nothing"
        return "is silent" if now_ms - connection.stirred_ms > limits.idle_ms_max else None


async def _closed(server: asyncio.Server, grace_s: float) -> None:
    """Waits for what only the server knows of: connections that are still shaking hands."""
    abort_clients = getattr(server, "abort_clients", None)  # since Python 3.13, not in uvloop
    if abort_clients is not None:
        abort_clients()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(server.wait_closed(), grace_s)


class FrameServer:
    """Listens at one address, or at several ports of it, and serves an application."""

    def __init__(
        self,
        application: Application,
        *,
        clock: Clock,
        host: str = "127.0.0.1",
        port: int = 0,
        more_ports: tuple[int, ...] = (),
        limits: ServingLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.application = application
        self.clock = clock
        self.limits = limits or ServingLimits()
        self._host = host
        self._ports = (port, *more_ports)
        self._tls = tls
        self._numbers = itertools.count(1)
        self._protocols: dict[int, FrameServerProtocol] = {}
        self._hosts: Counter[str] = Counter()
        self._complaints = Complaints(_log)
        self._servers: list[asyncio.Server] = []
        self._closing: list[asyncio.Server] = []
        self.is_paused = False
        self.is_deaf = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<FrameServer {', '.join(self.addresses) or 'down'} connections={len(self._protocols)}>"

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as `host:port`; empty while it is down."""
        sockets = [listener for server in self._servers for listener in server.sockets]
        return [_address(*listener.getsockname()[:2]) for listener in sockets]

    @property
    def address(self) -> str:
        """The first of them."""
        return self.addresses[0]

    @property
    def connections(self) -> dict[int, Connection]:
        """The open connections by their numbers."""
        return {number: protocol.connection for number, protocol in self._protocols.items()}

    def connection(self, number: int) -> Connection | None:
        """An open connection by its number."""
        protocol = self._protocols.get(number)
        return protocol.connection if protocol is not None else None

    async def bind(self) -> None:
        """Takes its addresses, so that they are known; who connects is refused until `start`."""
        assert not self._servers, "the server runs already"
        try:
            for port in self._ports:
                self._servers.append(await self._bound(port))
        except BaseException:
            self._close_servers()
            raise

    async def _bound(self, port: int) -> asyncio.Server:
        timeout = self.limits.first_frame_ms_max / 1000 if self._tls is not None else None
        return await asyncio.get_running_loop().create_server(
            lambda: FrameServerProtocol(self),
            self._host,
            port,
            ssl=self._tls,
            ssl_handshake_timeout=timeout,
            backlog=1024,
            start_serving=False,
        )

    async def start(self) -> None:
        """Listens. A port of 0 becomes one that is free."""
        if not self._servers:
            await self.bind()
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        try:
            for server in self._servers:
                await server.start_serving()
        except BaseException:
            await self.kill()
            raise
        self._sweep_soon(asyncio.get_running_loop())

    def pause(self) -> None:
        """Neither reads nor answers until `resume`, as a process that is stopped: connections stay, new ones are taken."""
        self.is_paused = True
        for protocol in self._protocols.values():
            protocol.connection.hold()

    def resume(self) -> None:
        """Goes on where `pause` stopped it."""
        self.is_paused = False
        now_ms = self.clock.monotonic_ms()
        for protocol in list(self._protocols.values()):
            protocol.let_go(now_ms)

    def hear_no_more(self) -> None:
        """The first half of `stop`: nobody new is let in and nothing more is read, but answers still go out."""
        if self.is_paused:
            self.resume()
        self.is_deaf = True
        self._closing += self._close_servers()
        for protocol in self._protocols.values():
            protocol.connection.read_no_more()

    async def stop(self, grace_s: float = 1.0) -> None:
        """Listens no more, gives peers the grace to take their last answers, and leaves no connection and no timer."""
        self.hear_no_more()
        servers, self._closing = self._closing, []
        for protocol in list(self._protocols.values()):
            protocol.connection.close()
        if self._all_gone is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), grace_s)
        await self._cut_off(servers, grace_s)

    async def kill(self) -> None:
        """Ends as a process that is killed: nobody gets a last answer."""
        self.is_paused = False
        servers, self._closing = self._closing + self._close_servers(), []
        await self._cut_off(servers, 1.0)

    def _close_servers(self) -> list[asyncio.Server]:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        return servers

    async def _cut_off(self, servers: list[asyncio.Server], grace_s: float) -> None:
        for protocol in list(self._protocols.values()):
            protocol.connection.abort()
        if self._all_gone is not None:
            await self._all_gone.wait()
        for server in servers:
            await _closed(server, grace_s)
        self.is_deaf = False

    def sweep(self) -> None:
        """Cuts off whoever is overdue. It runs by itself."""
        if self.is_paused:
            return
        now_ms = self.clock.monotonic_ms()
        for protocol in list(self._protocols.values()):
            reason = protocol.overdue(now_ms)
            if reason is not None:
                peer = protocol.connection.peer
                self.complain(protocol.connection, logging.INFO, "%s %s and is cut off", peer, reason)
                protocol.connection.abort()

    def _sweep_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        limits = self.limits
        shortest_ms = min(
            limits.first_frame_ms_max, limits.frame_ms_max, limits.idle_ms_max, limits.close_ms_max
        )
        delay_s = min(shortest_ms / 1000 / _SWEEPS_PER_LIMIT, _SWEEP_S_MAX)
        self._sweeper = loop.call_later(delay_s, self._sweep_and_go_on, loop)

    def _sweep_and_go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sweep()
        self._sweep_soon(loop)

    def opened(self, protocol: FrameServerProtocol, transport: asyncio.Transport) -> Connection:
        """Takes a new connection in, or cuts it off at once if there are too many."""
        loop = asyncio.get_running_loop()
        connection = Connection(next(self._numbers), transport, loop, self.clock, self.limits)
        is_full = (
            len(self._protocols) >= self.limits.connections_max
            or self._hosts[connection.host] >= self.limits.connections_per_host_max
        )
        self._protocols[connection.id] = protocol
        self._hosts[connection.host] += 1
        if self._all_gone is not None:
            self._all_gone.clear()
        if is_full or not self._servers:
            text, others = "%s is refused: %d connections are open", len(self._protocols) - 1
            self.complain(connection, logging.WARNING, text, connection.peer, others)
            connection.abort()
        return connection

    def complain(self, connection: Connection, level: int, text: str, *values: object) -> None:
        """Says in the log what is wrong with a peer; not more than once a minute for each address."""
        self._complaints.about(connection.host, self.clock.monotonic_ms(), level, text, *values)

    def lost(self, protocol: FrameServerProtocol, *, had_frame: bool) -> None:
        """Forgets a connection that is gone."""
        connection = protocol.connection
        del self._protocols[connection.id]
        self._hosts[connection.host] -= 1
        if not self._hosts[connection.host]:
            del self._hosts[connection.host]
        if had_frame:
            self.application.on_closed(connection)
        if not self._protocols and self._all_gone is not None:
            self._all_gone.set()
