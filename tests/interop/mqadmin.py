"""Apache's admin tool. A JVM takes seconds to start, so one per version of the tool runs all commands, one after the other."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from tests.apache import homes
from tests.apache.oracle import SOURCES, JavaOracle

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from tests.apache.conversation import Conversation

COMMAND_S_MAX = 120.0
ANSWER = "ANSWER "


def start_mqadmin(version: str, home: Path) -> Conversation:
    """The tool, running; it reads its settings from `home`."""
    silent = homes.home_flags(home, stream="err", level="OFF")  # a log would mix with what is printed
    return JavaOracle(version, SOURCES / "MqAdminRunner.java").start(jvm_args=silent)


class MqAdmin:
    """The tool at a name server."""

    def __init__(self, version: str, program: Conversation, nameserver: str) -> None:
        self.version = version
        self._program = program
        self.nameserver = nameserver

    @property
    def is_5x(self) -> bool:
        return self.version.startswith("5.")

    def printed(self, *command: str) -> str:
        """What a command prints, errors too."""
        words = (*command, "-n", self.nameserver)
        line = " ".join(base64.b64encode(word.encode()).decode() for word in words)
        answer = self._program.ask(line, COMMAND_S_MAX)
        while not answer.startswith(ANSWER):  # threads of an earlier command may still have something to say
            answer = self._program.hear(COMMAND_S_MAX)
        return base64.b64decode(answer.removeprefix(ANSWER)).decode()

    def told(self, *command: str) -> str:
        """What a command prints, errors too, with single spaces."""
        return " ".join(self.printed(*command).split())

    def good(self, *command: str) -> str:
        """What a command prints that must not fail, with single spaces."""
        told = self.told(*command)
        assert "Exception" not in told, f"{command} failed: {told}"
        return told

    def lines(self, *command: str) -> list[list[str]]:
        """What a command prints that must not fail, a list of words for each line."""
        printed = self.printed(*command)
        assert "Exception" not in printed, f"{command} failed: {printed}"
        return [line.split() for line in printed.splitlines() if line.strip()]


class MqAdmins:
    """Running tools by version, each started once; all are gone when the block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._running: dict[str, Conversation] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def at(self, nameserver: str, version: str) -> MqAdmin:
        if version not in self._running:
            program = start_mqadmin(version, self._folder / version)
            self._running[version] = self._stack.enter_context(program)
        return MqAdmin(version, self._running[version], nameserver)
