"""Real `trimtab up` processes that start quickly: one process loads everything once and forks a child for each life.

A child is a process like any other: it has its own pid, runs the very command and can be killed at any moment. Only the half
second that Python takes to load modules is saved, and it would be the same half second each time.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

START_S_MAX = 60.0
ENDED = "ended"


def fork_for_each_line(arguments: list[str]) -> None:
    """The process that forks: a line comes in, the pid of a new child goes out, and later how that ended."""
    import trimtab.broker.server
    import trimtab.cli.serving
    import trimtab.names.server  # noqa: F401
    from trimtab.cli.main import main

    for _ in sys.stdin:
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            os.read(told, 1)  # so that the pid is out before the child speaks
            main(arguments, prog_name="trimtab")
            raise AssertionError("the command ends by an exit")
        say(str(child))
        os.write(tell, b"!")
        os.close(told)
        os.close(tell)
        _, status = os.waitpid(child, 0)
        say(f"{ENDED} {os.waitstatus_to_exitcode(status)}")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Life:
    """One child."""

    def __init__(self, pid: int, lines: asyncio.StreamReader, errors: Path) -> None:
        self._pid = pid
        self._lines = lines
        self._errors = errors
        self._exit_code: int | None = None

    async def address(self) -> str:
        """Where the broker is, once it can be used."""
        facts: dict[str, Any] = json.loads(await self._line())
        return str(facts["brokers"]["broker-a"])

    def signal(self, number: int) -> None:
        """The child cannot be gone for good before its end was read, so this hits nobody else."""
        if self._exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    async def wait(self) -> int:
        """Its exit code, negative after a signal."""
        while self._exit_code is None:
            word, _, code = (await self._line(may_end=True)).partition(" ")
            if word == ENDED:
                self._exit_code = int(code)
        return self._exit_code

    async def _line(self, *, may_end: bool = False) -> str:
        line = (await asyncio.wait_for(self._lines.readline(), START_S_MAX)).decode().strip()
        assert line, self._errors.read_text()
        assert may_end or not line.startswith(ENDED), f"{line}: {self._errors.read_text()}"
        return line


class Lives:
    """Starts one child after the other, all in one folder and with the same options."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process = process
        self._errors = errors

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Life]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"\n")
        pid = int(await asyncio.wait_for(stdout.readline(), START_S_MAX))
        life = Life(pid, stdout, self._errors)
        try:
            yield life
        finally:
            life.signal(signal.SIGKILL)
            await life.wait()


@asynccontextmanager
async def lives(folder: Path, *storage: str) -> AsyncIterator[Lives]:
    errors = folder / "errors.txt"
    options = ["up", *storage, "--json", "--nameserver-port", "0", "--broker-port", "0"]
    with errors.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.crash.lives", *options,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=file,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}, cwd=folder,
        )  # fmt: skip
    try:
        yield Lives(process, errors)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    fork_for_each_line(sys.argv[1:])
