"""One member of the group: a process with connections, heartbeats, routes and handlers, around a real balance machine.

What the machine decides is done by one of two thin shells, as in the real client: `leased_shell` and `classic_shell`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from trimtab.balance.strategies import Planner, Strategy
from trimtab.model import MessageQueue
from trimtab.sim.broker import Listed, SimBroker
from trimtab.sim.classic_shell import ClassicShell
from trimtab.sim.leased_shell import LeasedShell
from trimtab.sim.network import Connection
from trimtab.sim.process import ASK_MS, OFFSET_ASK_MS, Process
from trimtab.sim.reading import Handling, Reader
from trimtab.sim.timeline import LocalClock

if TYPE_CHECKING:
    from trimtab.sim.world import World

HEARTBEAT_EVERY_MS: Final = 30_000
ROUTES_EVERY_MS: Final = 30_000
RECONNECT_MS: Final = 500
PULLS_LOOK_EVERY_MS: Final = 10_000
LEASED, CLASSIC = "leased", "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a member is and how it works."""

    mode: str
    planner: Planner
    strategy: Strategy
    handling: Handling
    is_stable: bool = False
    """It keeps its id over a restart."""
    is_foreign: bool = False
    """It is a Java client: classic, AVG, and knows nothing of leases."""

    @property
    def language(self) -> str:
        """As brokers list it."""
        if self.is_foreign:
            return "JAVA"
        return "PYTHON-STABLE" if self.is_stable else "PYTHON"


class Shell(Protocol):
    """What the two modes have in common."""

    def start(self) -> None: ...
    def soon(self) -> None: ...
    def on_listed(self, broker_name: str) -> None: ...
    def on_connection_lost(self, broker_name: str) -> None: ...
    def may_start(self, queue: MessageQueue) -> bool: ...
    def stop(self, farewell: Callable[[], None], gone: Callable[[], None]) -> None: ...
    def holdings(self) -> tuple[MessageQueue, ...]: ...


class SimMember(Process):
    """See the module's own words."""

    def __init__(
        self, world: "World", name: str, client_id: str, kind: Kind, clock: LocalClock, names: int
    ) -> None:
        super().__init__(name, client_id, kind.language, world.timeline, clock)
        self.world = world
        self.timeline = world.timeline
        self.watch = world.watch
        self.kind = kind
        self.mode = CLASSIC if kind.is_foreign else kind.mode
        self.links: dict[str, Connection] = {}
        self.queues: dict[str, tuple[MessageQueue, ...]] = {}
        self.broker_names: tuple[str, ...] = ()
        """Those that have queues of the group."""
        self.is_leaving = False
        self.started_ms = world.timeline.now_ms
        self.shell: Shell
        self.reader: Reader
        self._names = names
        self._opening: dict[str, None] = {}
        self._is_switching = False
        self._build()

    def _build(self) -> None:
        slowness = self.reader.slowness if hasattr(self, "reader") else 1.0
        self.reader = Reader(self, self.kind.handling, self.may_start)
        self.reader.slowness = slowness
        self.shell = LeasedShell(self) if self.mode == LEASED else ClassicShell(self)

    @property
    def keeps_leases(self) -> bool:
        """Whether it is in leased mode now."""
        return self.mode == LEASED

    def may_start(self, queue: MessageQueue) -> bool:
        """Whether a handler may be started for a message of the queue."""
        return self.shell.may_start(queue)

    # --- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Finds routes, connects, says that it is there."""
        self.timeline.note(self.name, f"starts as {self.client_id}")
        self._refresh_routes()
        self._beat()
        self._look_at_pulls()
        self.after(5, self._begin)

    def _begin(self) -> None:
        if not self.links and self.timeline.passed_ms < 10**9:
            self.after(20, self._begin)
            return
        self.shell.start()

    def stop(self) -> None:
        """Leaves in order."""
        if not self.is_awake or self.is_leaving:
            return
        self.timeline.note(self.name, "leaves")
        self.is_leaving = True
        self.shell.stop(self._farewell, self._gone)

    def _farewell(self) -> None:
        for link in self.links.values():
            self.world.network.ask(link, partial(_unregister, link), _nothing, _nobody, ASK_MS)

    def _gone(self) -> None:
        self.crash(in_order=True)

    def crash(self, *, in_order: bool = False) -> None:
        """The process is gone; brokers see its connections close."""
        if not self.is_alive:
            return
        self.timeline.note(self.name, "has left" if in_order else "crashes")
        self.is_alive = False
        self.watch.all_ended(self)
        for link in self.links.values():
            self.world.network.close_here(link)

    def on_paused(self) -> None:
        self.watch.all_ended(self)

    def on_resumed(self) -> None:
        for queue in self.shell.holdings():
            if self.may_start(queue):
                self.watch.began(self, queue)

    # --- connections ------------------------------------------------------------------------------------------

    def _refresh_routes(self) -> None:
        names = self.world.names[self._names % len(self.world.names)]

        def known() -> None:
            routes = names.routes()
            if routes != self.queues:
                self.queues = routes
                self.broker_names = names.broker_names()
                for broker_name in self.broker_names:
                    self._open(broker_name)
                self.shell.soon()

        self.timeline.after(2, lambda: self.run(known))
        self.after(ROUTES_EVERY_MS, self._refresh_routes)

    def _open(self, broker_name: str) -> None:
        if broker_name in self.links or broker_name in self._opening:
            return
        self._opening[broker_name] = None
        broker = self.world.brokers[broker_name]

        def opened(connection: Connection) -> None:
            self._opening.pop(broker_name, None)
            if not connection.is_open_here:  # lost while this process stood still
                self._open(broker_name)
                return
            self.links[broker_name] = connection
            self._heartbeat(connection)
            self.reader.pull_again(broker_name)

        def failed() -> None:
            self._opening.pop(broker_name, None)
            self.after(RECONNECT_MS, lambda: self._open(broker_name))

        self.world.network.connect(self, broker, opened, failed)

    def on_lost(self, connection: Connection) -> None:
        name = connection.broker.name
        if self.links.get(name) is not connection:
            return
        del self.links[name]
        self.timeline.note(self.name, f"lost the connection to {name}")
        self.shell.on_connection_lost(name)
        self.after(1 + self.timeline.chance.randrange(RECONNECT_MS), lambda: self._open(name))

    def _beat(self) -> None:
        for link in list(self.links.values()):
            self._heartbeat(link)
        self.after(HEARTBEAT_EVERY_MS, self._beat)

    def _heartbeat(self, link: Connection) -> None:
        if self.is_leaving:
            return

        def listed(_: bool) -> None:  # noqa: FBT001 - an answer
            if self.links.get(link.broker.name) is link:
                self.shell.on_listed(link.broker.name)

        self.world.network.ask(link, lambda broker: broker.heartbeat(link), listed, _nobody, OFFSET_ASK_MS)

    def on_notice(self) -> None:
        self.shell.soon()

    # --- asking -----------------------------------------------------------------------------------------------

    def ask(
        self,
        broker_name: str,
        do: "Callable[[SimBroker, Connection], object]",
        answered: Callable[..., object],
        failed: Callable[[], object],
        timeout_ms: int = ASK_MS,
    ) -> None:
        """Asks a broker over the connection on which it lists this member."""
        link = self.links.get(broker_name)
        if link is None:
            self.after(1, failed)
            return
        self.world.network.ask(link, lambda broker: do(broker, link), answered, failed, timeout_ms)

    def pull(self, queue: MessageQueue, offset: int, got: Callable[[int], object], gap_ms: int) -> None:
        """Asks for messages; the answer may never come."""
        link = self.links.get(queue.broker_name)
        if link is not None:
            self.world.network.requests -= 1
            self.world.network.tell(link, lambda broker: broker.pull(link, queue, offset, got, gap_ms))

    def _look_at_pulls(self) -> None:
        self.reader.pull_again()
        self.after(PULLS_LOOK_EVERY_MS, self._look_at_pulls)

    # --- the two modes ----------------------------------------------------------------------------------------

    def saw(self, lists: list[Listed], *, is_whole: bool) -> None:
        """Members of another kind make it fall back to classic mode, for as long as they are there."""
        if self.kind.mode != LEASED or self.kind.is_foreign or self._is_switching or self.is_leaving:
            return
        is_mixed = any(listed.foreign for listed in lists)
        if is_mixed and self.mode == LEASED:
            self._switch(CLASSIC)
        elif not is_mixed and is_whole and self.mode == CLASSIC:
            self._switch(LEASED)

    def _switch(self, mode: str) -> None:
        self.timeline.note(self.name, f"goes on in {mode} mode")
        self._is_switching = True

        def begin_anew() -> None:
            self._is_switching = False
            self.mode = mode
            self._build()
            for name in self.links:
                self.shell.on_listed(name)
            self.shell.start()

        self.shell.stop(lambda: None, begin_anew)


def _unregister(link: Connection, broker: SimBroker) -> bool:
    return broker.unregister(link)


def _nothing(_: object) -> None:
    """The answer does not matter."""


def _nobody() -> None:
    """Nor does its absence."""
