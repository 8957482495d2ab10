"""A name server and a broker in a thread of their own, and sockets to hurt them with.

Whatever the loop has to complain about while they run fails the test: a request may be refused, never crash a callback.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from trimtab.broker.server import BrokerPlan, BrokerServer
from trimtab.io.clock import Clock, SystemClock
from trimtab.names.guard import Guard
from trimtab.names.server import NameServer
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import FrameDecoder
from trimtab.wire.signing import Credentials

T = TypeVar("T")

PATIENCE_S = 60.0
"""Nothing waits for this long unless it is broken."""


def until(condition: Callable[[], bool], what: str) -> None:
    """Comes back when the condition is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"still not: {what}"
        time.sleep(0.002)


class Servers:
    """See the module's own words."""

    def __init__(
        self,
        plan: BrokerPlan,
        names_options: Mapping[str, Any],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.complaints: list[dict[str, Any]] = []
        self._loop = loop
        self._loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self._thread = threading.Thread(target=self._loop.run_forever, name="servers")
        self._thread.start()
        self.names = NameServer(clock=clock, **names_options)
        self.run(self.names.start())
        self.broker = BrokerServer(replace(plan, nameservers=(self.names.address,)), clock=clock)
        self.run(self.broker.start())
        self.names_address = self.names.address
        self.broker_address = self.broker.address

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something in the servers' loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def look(self, at: Callable[[], T]) -> T:
        """Reads a state of the servers in their own thread."""

        async def looking() -> T:
            return at()

        return self.run(looking())

    def close(self) -> None:
        """Stops both, in order."""
        try:
            self.run(self.broker.stop())
            self.run(self.names.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_S)
            self._loop.close()


@contextlib.contextmanager
def running(
    plan: BrokerPlan | None = None,
    *,
    guard: Guard | None = None,
    names_tls: ssl.SSLContext | None = None,
    clock: Clock | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
    **names_options: Any,
) -> Iterator[Servers]:
    """Both, started and registered; at the end they must have stopped without a complaint."""
    servers = Servers(
        plan or BrokerPlan(),
        {"guard": guard, "tls": names_tls, **names_options},
        clock or SystemClock(),
        loop or asyncio.new_event_loop(),
    )
    try:
        yield servers
    finally:
        servers.close()
    assert servers.complaints == []


class MovableClock(SystemClock):
    """The machine's clock, put forward by hand, so that nobody has to wait two minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


@dataclass
class Attacker:
    """A blocking socket. It sends whatever it is told to."""

    address: str
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None
    version: int = 399
    timeout_s: float = PATIENCE_S
    wire: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self._opaques = itertools.count(1)
        self.connect()

    def connect(self) -> None:
        """Again, if need be; what was received before is forgotten."""
        if hasattr(self, "wire"):
            self.wire.close()
        host, _, port = self.address.rpartition(":")
        self.wire = socket.create_connection((host, int(port)), timeout=self.timeout_s)
        self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            self.wire = self.tls.wrap_socket(self.wire, server_hostname=host)
        self._decoder = FrameDecoder()
        self._received: list[Command] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wire.close()

    def request(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", flag: int = 0
    ) -> Command:
        """A request as this attacker signs it."""
        fields = dict(ext or {})
        if self.credentials is not None:
            fields = self.credentials.signed(fields, body, version=self.version)
        return Command(
            code=code, opaque=next(self._opaques), ext=fields, body=body, flag=flag, version=self.version
        )

    def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        """The answer to a request."""
        command = self.request(code, ext, body)
        self.send(encode_command(command))
        return self.answer_to(command.opaque)

    def send(self, data: bytes) -> None:
        """Bytes, as they are."""
        self.wire.sendall(data)

    def answer_to(self, opaque: int) -> Command:
        """What comes for this request; anything else is passed over."""
        while True:
            command = self.receive()
            if command.is_response and command.opaque == opaque:
                return command

    def receive(self) -> Command:
        """The next command."""
        while not self._received:
            data = self.wire.recv(1 << 16)
            if not data:
                raise ConnectionResetError("closed by the server")
            self._received += map(decode_command, self._decoder.feed(data))
        return self._received.pop(0)

    def is_closed_by_the_server(self) -> bool:
        """Waits for the end of the connection; answers before it are dropped."""
        try:
            while self.wire.recv(1 << 16):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


def tree(root: Path, *, store: str = "store") -> dict[str, tuple[int, int]]:
    """Every file and directory below, with its size and time of change: compare before and after.

    Of the store only the names count: the broker writes there by itself, and puts files aside to rename them.
    """
    found = {}
    for folder, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(folder, name)
            inside = path.relative_to(root)
            if inside.parts[0] == store:
                if inside.suffix != ".new":
                    found[str(inside)] = 0, 0
            else:
                status = path.lstat()
                found[str(inside)] = status.st_size, status.st_mtime_ns
    return found


def resident_bytes() -> int:
    """How much memory this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
