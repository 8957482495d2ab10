"""The stock Java client as a program, of each version once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from tests.apache.oracle import SOURCES, JavaOracle
from tests.interop.stock_client import Program

if TYPE_CHECKING:
    from types import TracebackType

JAVA_CLIENTS = ("4.9.3", "5.5.0")
FOLDER = SOURCES / "client"
MAIN = FOLDER / "ClientProgram.java"
# Clients rebalance when they start and when they are told, not because time passed: what happens is the servers' doing.
NEVER_BY_TIME = (
    "-Drocketmq.client.rebalance.waitInterval=3600000",
    "-Drocketmq.client.rebalance.minInterval=100",  # 5.x: how soon it may rebalance again
)


class JavaPrograms:
    """Running programs by version; all are gone when the block ends."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[str, Program] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def running(self, version: str) -> Program:
        """The one that all tests share."""
        if version not in self._running:
            self._running[version] = self.another(version)
        return self._running[version]

    def another(self, version: str) -> Program:
        """One for a test of its own, to be killed."""
        companions = sorted(file for file in FOLDER.glob("*.java") if file != MAIN)
        conversation = JavaOracle(version, MAIN, companions).start(jvm_args=NEVER_BY_TIME)
        return Program(version, self._stack.enter_context(conversation))
