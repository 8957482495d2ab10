"""A name server on a socket: the shell around `Names`.

The settings (KV config) are saved before their change is answered: written aside, synced, renamed. A file that cannot be read
stops the start, because a name server that forgets which topics are ordered does harm in silence.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Self

from trimtab.errors import TrimtabError
from trimtab.io.clock import Clock
from trimtab.io.disk import Disk, RealDisk, opened
from trimtab.io.serving import Connection, FrameServer, ServingLimits
from trimtab.names.guard import Guard, needs_admin
from trimtab.names.handlers import Names
from trimtab.names.kv import KvFileError
from trimtab.wire.codes import RESPONSE_FLAG, ResponseCode
from trimtab.wire.commands import Command, decode_command, encode_command
from trimtab.wire.frames import Frame

SCAN_S = 10.0

_log = logging.getLogger(__name__)


class NameServer:
    """Brokers register here, clients ask here. `address` is what they are given."""

    def __init__(
        self,
        *,
        clock: Clock,
        host: str = "127.0.0.1",
        port: int = 0,
        kv_path: Path | None = None,
        tls: ssl.SSLContext | None = None,
        names: Names | None = None,
        limits: ServingLimits | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Without `kv_path` the settings are gone when it stops. `names` brings limits and a table of its own.

        With a `guard` every request must be signed, and brokers register as admins.
        """
        self._guard = guard
        self.names = names or Names()
        self._clock = clock
        self._server = FrameServer(self, clock=clock, host=host, port=port, limits=limits, tls=tls)
        self._kv_file = None if kv_path is None else KvFile(RealDisk(kv_path.parent), kv_path.name)
        self._kv_saved = self.names.kv.changes
        self._scanner: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<NameServer {self._server!r} {self.names.routes!r}>"

    @property
    def address(self) -> str:
        """`host:port`, for brokers and clients."""
        return self._server.address

    @property
    def connections(self) -> dict[int, Connection]:
        """The open connections by their numbers."""
        return self._server.connections

    async def start(self) -> None:
        """Loads the settings and listens."""
        saved = None if self._kv_file is None else self._kv_file.read()
        if saved is not None:
            self.names.kv.load_json(saved)
        await self._server.start()
        self._scan_soon(asyncio.get_running_loop())

    async def stop(self) -> None:
        """Ends all connections; nothing of it stays in the loop."""
        if self._scanner is not None:
            self._scanner.cancel()
            self._scanner = None
        await self._server.stop()

    def pause(self) -> None:
        """Does nothing until `resume`, as a process that is stopped."""
        if self._scanner is not None:
            self._scanner.cancel()
        self._server.pause()

    def resume(self) -> None:
        """Goes on where `pause` stopped it."""
        self._server.resume()
        self._scan_soon(asyncio.get_running_loop())

    async def kill(self) -> None:
        """Ends as a process that is killed."""
        if self._scanner is not None:
            self._scanner.cancel()
            self._scanner = None
        await self._server.kill()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def on_frames(self, connection: Connection, frames: list[Frame]) -> int:
        """Answers the requests of a batch, as long as the peer takes the answers."""
        now_ms = self._clock.monotonic_ms()
        for handled, frame in enumerate(frames):
            if connection.is_closing or connection.is_choked:
                return handled
            command = decode_command(frame)
            refused = self._refusal(connection, command)
            if refused is not None:
                if not command.is_oneway:
                    connection.send(encode_command(refused))
                continue
            reply = self.names.handle(command, connection.id, now_ms)
            if self.names.kv.changes != self._kv_saved:
                reply = self._save_kv(command, reply)
            if reply is not None:
                connection.send(encode_command(reply))
        return len(frames)

    def _refusal(self, connection: Connection, command: Command) -> Command | None:
        if self._guard is None or command.is_response:
            return None
        refused = self._guard.refusal(
            command, admin=needs_admin(command.code), host=connection.host, is_secure=connection.is_secure
        )
        if refused is None:
            return None
        code, remark = refused
        return Command(
            code=code, opaque=command.opaque, flag=RESPONSE_FLAG, remark=remark, serializer=command.serializer
        )

    def on_closed(self, connection: Connection) -> None:
        """Brokers do not outlive their connection."""
        self.names.routes.connection_closed(connection.id)

    def scan(self) -> None:
        """Lets silent brokers go and closes their connections. It runs by itself."""
        for number in self.names.routes.expire(self._clock.monotonic_ms()):
            connection = self._server.connection(number)
            if connection is not None:
                _log.info("%s registered a broker that fell silent", connection.peer)
                connection.close()

    def _scan_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scanner = loop.call_later(SCAN_S, self._scan_and_go_on, loop)

    def _scan_and_go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self.scan()
        self._scan_soon(loop)

    def _save_kv(self, command: Command, reply: Command | None) -> Command | None:
        self._kv_saved = self.names.kv.changes
        if self._kv_file is None:
            return reply
        try:
            self._kv_file.write(self.names.kv.to_json())
        except (OSError, TrimtabError) as exc:
            _log.exception("the settings were changed but not saved")
            failed = f"changed, but not saved and so gone after a restart: {exc}"
            return reply and Command(
                code=ResponseCode.SYSTEM_ERROR, opaque=command.opaque, flag=RESPONSE_FLAG, remark=failed
            )
        return reply


class KvFile:
    """The file of the settings."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name

    def read(self) -> bytes | None:
        """Its content, or None if there is no file yet."""
        try:
            with opened(self._disk, self._name) as file:
                return file.pread(file.size(), 0)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise KvFileError(f"{self._disk}/{self._name}: {exc}") from exc

    def write(self, data: bytes) -> None:
        """Replaces its content, whole or not at all."""
        aside = f"{self._name}.new"
        with opened(self._disk, aside, create=True) as file:
            file.truncate(0)
            file.pwrite(data, 0)
            file.sync()
        self._disk.rename(aside, self._name)
        self._disk.sync_dir("")
