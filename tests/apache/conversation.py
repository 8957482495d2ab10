"""A talk with a running child process, a line at a time, in which nobody waits for ever."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import time
from typing import IO, TYPE_CHECKING, Self

from tests.apache import processes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

ANSWER_TIMEOUT_S = 120.0
END_TIMEOUT_S = 30.0
PIECE_BYTES = 65_536


class OracleError(Exception):
    """A Java program did not compile, failed or fell silent; the text ends with what it said on stderr."""


class Conversation:
    """Owns the child and its folder; both are gone when the `with` block ends."""

    def __init__(self, name: str, command: Sequence[str | Path], home: Path) -> None:
        self._name = name
        self._home = home
        self._log = home / "stderr.log"
        self._child = processes.spawn(command, log=self._log, directory=home, talks=True)
        self._heard = bytearray()

    @property
    def pid(self) -> int:
        return self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tell(self, line: str) -> None:
        """Writes one line; meant for lines that fit the pipe, so that it does not block."""
        pipe = self._stdin()
        try:
            pipe.write(line.encode() + b"\n")
            pipe.flush()
        except OSError as exc:
            raise self._failure(f"does not listen any more to {line!r}") from exc

    def hear(self, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """The next line of the program, without its newline."""
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            self._hear_more(deadline_s)
        line, _, rest = self._heard.partition(b"\n")
        self._heard = rest
        return line.decode()

    def ask(self, line: str, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        self.tell(line)
        return self.hear(timeout_s)

    def kill(self) -> None:
        """Takes the program away as a crash would; `close` is still due."""
        processes.kill(self._child)

    def close(self) -> None:
        """Ends its stdin, waits a while for it to go by itself, then makes it go."""
        with contextlib.suppress(OSError):  # it may have gone first, with a line of ours still in the pipe
            self._stdin().close()
        try:
            self._child.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            processes.end([self._child])
        processes.forget_the_dead()
        self._stdout().close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _hear_more(self, deadline_s: float) -> None:
        pipe = self._stdout().fileno()
        readable, _, _ = select.select([pipe], [], [], max(0.0, deadline_s - time.monotonic()))
        if not readable:
            raise self._failure("said nothing in time")
        piece = os.read(pipe, PIECE_BYTES)
        if not piece:
            raise self._failure("ended instead of answering")
        self._heard += piece

    def _failure(self, what: str) -> OracleError:
        return OracleError(f"{self._name} {what}; its stderr ends:\n{processes.tail(self._log)}")

    def _stdin(self) -> IO[bytes]:
        assert self._child.stdin is not None
        return self._child.stdin

    def _stdout(self) -> IO[bytes]:
        assert self._child.stdout is not None
        return self._child.stdout
