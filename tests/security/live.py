"""A name server and a broker in a thread of their own, and sockets to hurt them with.

Whatever the loop has to complain about while they run fails the test: a request may be refused, never crash a callback.
"""

import asyncio
import contextlib
import os
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from trimtab.broker.server import BrokerPlan, BrokerServer
from trimtab.io.clock import Clock, SystemClock
from trimtab.names.guard import Guard
from trimtab.names.server import NameServer

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
