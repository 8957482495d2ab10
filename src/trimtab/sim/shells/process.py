"""A process on the virtual loop: it has an address and a clock of its own, and may stand still or die.

Which process a task belongs to is told by its context: tasks and callbacks hand that on by themselves, so the code that runs needs to know
nothing of it.
"""

import enum
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime
from typing import Final

from trimtab.io.whereabouts import TOLD, Whereabouts

PID: Final = 100
"""Each is alone on its host."""
PROCESS: Final[ContextVar["VirtualProcess"]] = ContextVar("trimtab-virtual-process")
BEGIN_WALL_MS: Final = 1_700_000_000_000
BEGIN_S: Final = 1_000.0
"""Time does not begin at 0: what counts from "never" must not work by accident."""


class State(enum.Enum):
    """Whether its code runs."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class VirtualProcess:
    """See the module's own words."""

    def __init__(self, name: str, host: str, *, rate: float = 1.0) -> None:
        self.name = name
        self.host = host
        self.rate = rate
        """How much faster than the world's its clock runs."""
        self.state = State.RUNNING
        self.late: list[Callable[[], object]] = []
        """What was due while it was paused."""

    def __repr__(self) -> str:
        return f"<VirtualProcess {self.name} {self.host} {self.state.value}>"

    @property
    def is_awake(self) -> bool:
        """Whether it runs."""
        return self.state is State.RUNNING

    def context(self) -> Context:
        """What runs in this belongs to the process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        context.run(TOLD.set, Whereabouts(self.host, PID))
        return context

    def local_s(self, world_s: float) -> float:
        """What its clock shows then."""
        return world_s * self.rate

    def world_s(self, local_s: float) -> float:
        """When its clock shows that."""
        return local_s / self.rate

    def due(self, run: Callable[[], object]) -> None:
        """Its time has come: now, after the pause, or never."""
        if self.state is State.RUNNING:
            run()
        elif self.state is State.PAUSED:
            self.late.append(run)


class VirtualClock:
    """The clock of a process, as the seam in `io/clock.py` wants it."""

    def __init__(self, process: VirtualProcess, world_s: Callable[[], float]) -> None:
        self._process = process
        self._world_s = world_s

    def monotonic_ms(self) -> int:
        return int(self._process.local_s(self._world_s()) * 1000)

    def wall_ms(self) -> int:
        return BEGIN_WALL_MS + self.monotonic_ms()

    def month_ms(self, wall_ms: int) -> tuple[int, int]:
        now = datetime.fromtimestamp(wall_ms / 1000, UTC)
        begin = datetime(now.year, now.month, 1, tzinfo=UTC)
        end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
        return int(begin.timestamp() * 1000), int(end.timestamp() * 1000)
