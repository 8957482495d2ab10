"""One end of a connection in memory: bytes in order, each way at its own pace, with the room of a socket."""

import asyncio
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, cast

from trimtab.sim.shells.process import VirtualProcess

if TYPE_CHECKING:
    from trimtab.sim.shells.network import Network

ROOM_BYTES: Final = 64 << 10


class VirtualTransport(asyncio.Transport):
    """See the module's own words."""

    def __init__(
        self, network: "Network", process: VirtualProcess, context: Context, own: str, other: str
    ) -> None:
        super().__init__()
        self.process = process
        self.context = context
        self.peer: VirtualTransport
        self.is_gone = False
        """Nothing comes in or goes out any more."""
        self.busy_until_s = 0.0
        """When what was sent so far has arrived: the rest comes behind it."""
        self._network = network
        self._own, self._other = own, other
        self._protocol: asyncio.Protocol | None = None
        self._is_closing = False
        self._is_reading = True
        self._unread: deque[bytes | None] = deque()
        self._on_way_bytes = 0
        self._high_bytes, self._low_bytes = ROOM_BYTES, ROOM_BYTES // 4
        self._is_full = False

    def __repr__(self) -> str:
        return f"<VirtualTransport {self._own} -> {self._other}{' gone' if self.is_gone else ''}>"

    # --- asyncio's side ---------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        address = {"peername": self._other, "sockname": self._own}.get(name)
        if address is None:
            return default
        host, _, port = address.rpartition(":")
        return host, int(port)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "the connection is not accepted yet"
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._network.soon(self, self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = ROOM_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._on_way_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        self._on_way_bytes += len(data)
        self._network.send(self, bytes(data))
        if not self._is_full and self._on_way_bytes > self._high_bytes and self._protocol is not None:
            self._is_full = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """What was sent arrives; then the peer hears of the end."""
        if not self._is_closing:
            self._is_closing = True
            self._network.send(self, None)
            self._network.soon(self, self._lost, None)

    def abort(self) -> None:
        """The peer hears of it at once, and gets no more of what was sent."""
        if not self.is_gone and not self._is_closing:
            self._is_closing = True
            self._network.reset(self)
            self._network.soon(self, self._lost, None)

    # --- the network's side -----------------------------------------------------------------------------------

    def arrive(self, data: bytes | None) -> None:
        """Bytes from the peer; None: it is done."""
        if self.is_gone:
            self._network.reset(self)
            return
        self._unread.append(data)
        self._read()

    def _read(self) -> None:
        while self._unread and self._is_reading and not self.is_gone and self._protocol is not None:
            data = self._unread.popleft()
            if data is None:
                if not self._is_closing:
                    self._protocol.eof_received()
                    self.close()
                return
            self._network.taken(self.peer, len(data))
            if not self._is_closing:
                self._protocol.data_received(data)

    def taken(self, count: int) -> None:
        """The peer has read so much."""
        self._on_way_bytes -= count
        if self._is_full and self._on_way_bytes <= self._low_bytes and not self.is_gone:
            self._is_full = False
            if self._protocol is not None:
                self._protocol.resume_writing()

    def reset(self) -> None:
        """The connection is broken, as far as this end can tell."""
        if not self._is_closing:
            self._is_closing = True
            self._lost(ConnectionResetError("reset by the peer"))

    def _lost(self, error: Exception | None) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._network.forget(self)
            if self._protocol is not None:
                self._protocol.connection_lost(error)
