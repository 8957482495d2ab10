"""A blocking connection that carries raw wire values, for tests that trust nothing above the wire."""

import socket
from types import TracebackType
from typing import Self

from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import FrameDecoder

TIMEOUT_S = 30.0


class RawConnection:
    """One socket; commands out, commands in."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._decoder = FrameDecoder()
        self._received: list[Command] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, command: Command | bytes) -> None:
        """Puts a command, or a ready frame, on the wire."""
        self._socket.sendall(command if isinstance(command, bytes) else encode_command(command))

    def ask(self, command: Command | bytes, opaque: int | None = None) -> Command:
        """The answer to a request; what the server asks meanwhile is passed over."""
        self.send(command)
        wanted = opaque if opaque is not None else command.opaque  # type: ignore[union-attr]
        while True:
            answer = self.receive()
            if answer.is_response and answer.opaque == wanted:
                return answer

    def receive(self) -> Command:
        """The next command that comes."""
        while not self._received:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._received += [decode_command(frame) for frame in self._decoder.feed(data)]
        return self._received.pop(0)
