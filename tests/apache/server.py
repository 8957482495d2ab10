"""One name server or broker: a child process that may go and come back, on the same port with the same store."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.apache import processes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# How 4.9 and 5.x say in their logs that a port was taken between our look and their bind.
PORT_TAKEN_SIGNS = ("BindException", "Address already in use", "Failed to bind")


class StartError(Exception):
    """A server went away or did not get ready in time; the text ends with its log."""


class PortTakenError(StartError):
    """A server found one of its ports in use; another port may do."""


class Server:
    def __init__(
        self,
        name: str,
        address: str,
        home: Path,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
    ) -> None:
        self.name = name
        self.address = address
        self.home = home
        self.log = home / "output.log"
        self._command = command
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start_bytes = 0

    def __repr__(self) -> str:
        state = f"pid={self.pid}" if self.is_running else "down"
        return f"<Server {self.name} at {self.address} {state}>"

    @property
    def child(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise LookupError(f"{self.name} was never started")
        return self._child

    @property
    def pid(self) -> int:
        """Of the process now, or of the last one."""
        return self.child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        if self.is_running:
            raise ValueError(f"{self.name} runs already as process {self.pid}")
        self._log_start_bytes = self.log.stat().st_size if self.log.exists() else 0
        self._child = processes.spawn(
            self._command, log=self.log, directory=self.home, environment=self._environment
        )

    def kill(self) -> None:
        processes.kill(self.child)

    def stop(self) -> None:
        processes.end([self.child])

    def pause(self) -> None:
        self.child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.child.send_signal(signal.SIGCONT)

    def require_running(self) -> None:
        if self.is_running:
            return
        kind = PortTakenError if any(sign in self._output() for sign in PORT_TAKEN_SIGNS) else StartError
        raise kind(
            f"{self.name} ended with exit code {self.child.returncode}; its log ends:\n{processes.tail(self.log)}"
        )

    def _output(self) -> str:
        """What this process, not an earlier one, wrote."""
        with self.log.open("rb") as file:
            file.seek(self._log_start_bytes)
            return file.read().decode(errors="replace")
