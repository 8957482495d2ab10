"""The one blocking client of the tests: raw wire values over one socket, for tests that trust nothing above the wire.

`tests.peers` has its counterpart for tests that do many things at a time.
"""

import itertools
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import FrameDecoder
from trimtab.wire.signing import Credentials

TIMEOUT_S = 60.0
"""Nothing waits for this long unless it is broken."""


@dataclass
class RawConnection:
    """A blocking socket that sends whatever it is told to: requests, signed if need be, or bytes that are none."""

    address: str
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None
    version: int = 399
    timeout_s: float = TIMEOUT_S
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
        """A request with a number of its own, signed if there are credentials."""
        fields = dict(ext or {})
        if self.credentials is not None:
            fields = self.credentials.signed(fields, body, version=self.version)
        return Command(
            code=code, opaque=next(self._opaques), ext=fields, body=body, flag=flag, version=self.version
        )

    def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        """The answer to a request."""
        return self.exchange(self.request(code, ext, body))

    def exchange(self, request: Command | bytes, opaque: int | None = None) -> Command:
        """The answer to a ready request; one that is bytes says which number it has."""
        self.send(request)
        wanted = request.opaque if isinstance(request, Command) else opaque
        assert wanted is not None
        return self.answer_to(wanted)

    def send(self, data: Command | bytes) -> None:
        """A command, or bytes as they are."""
        self.wire.sendall(data if isinstance(data, bytes) else encode_command(data))

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
