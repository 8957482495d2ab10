"""The network between members and brokers: delay, loss, reordering, partitions, cut connections.

It behaves as TCP does: what is sent over one connection arrives in order, a lost packet is late and not gone, and a connection that is cut is noticed
by each end at its own time, or by one end alone. Brokers may take two requests out of turn, because they have many threads. A request
that hangs for longer than `LATE_MS_MAX` never arrives: that is what `docs/leases.md` assumes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from trimtab.sim.timeline import Timeline

if TYPE_CHECKING:
    from trimtab.sim.broker import SimBroker
    from trimtab.sim.process import Process

T = TypeVar("T")

LATE_MS_MAX: Final = 1_000
RETRANSMIT_MS_MIN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How the network is."""

    delay_ms_max: int = 3
    loss: float = 0.0
    """The part of what is sent that is late, because a packet was lost."""
    reorder: float = 0.0
    """The part of requests that a broker's threads take out of turn."""
    notice_loss: float = 0.0
    """The part of notices that brokers fail to send."""


class Connection:
    """One connection of a member to a broker. Each end has its own opinion on whether it is open."""

    __slots__ = (
        "broker",
        "busy_back_ms",
        "busy_there_ms",
        "is_open_here",
        "is_open_there",
        "number",
        "process",
    )

    def __init__(self, number: int, process: "Process", broker: "SimBroker") -> None:
        self.number = number
        self.process = process
        self.broker = broker
        self.is_open_here = True
        self.is_open_there = True
        self.busy_there_ms = 0
        self.busy_back_ms = 0


class Network:
    """See the module's own words."""

    def __init__(self, timeline: Timeline, weather: Weather) -> None:
        self.timeline = timeline
        self.weather = weather
        self.requests = 0
        """Asked of brokers, pulls not counted."""
        self._parted: dict[tuple[str, str], int] = {}
        self._connections = 0

    # --- faults -----------------------------------------------------------------------------------------------

    def part(self, process_name: str, broker_name: str, until_ms: int) -> None:
        """Nothing gets through between these two until then; neither notices more than silence."""
        pair = process_name, broker_name
        self._parted[pair] = max(until_ms, self._parted.get(pair, 0))

    def heal(self) -> None:
        """Everything gets through again."""
        self._parted.clear()

    def is_parted(self, process_name: str, broker_name: str) -> bool:
        """Whether nothing gets through now."""
        return self._parted.get((process_name, broker_name), 0) > self.timeline.now_ms

    # --- connections ------------------------------------------------------------------------------------------

    def connect(
        self,
        process: "Process",
        broker: "SimBroker",
        opened: Callable[[Connection], object],
        failed: Callable[[], object],
    ) -> None:
        """Opens a connection, or says that it cannot be."""
        delay_ms = 2 * self._delay_ms()
        if self.is_parted(process.name, broker.name) or not broker.is_up:
            self.timeline.after(LATE_MS_MAX, lambda: process.run(failed))
            return

        def there() -> None:
            if not broker.is_up or self.is_parted(process.name, broker.name) or not process.is_alive:
                self.timeline.after(LATE_MS_MAX, lambda: process.run(failed))
                return
            self._connections += 1
            connection = Connection(self._connections, process, broker)
            broker.connections[connection.number] = connection
            process.run(lambda: opened(connection))

        self.timeline.after(delay_ms, there)

    def close_here(self, connection: Connection) -> None:
        """The member closes it, or its process ends; the broker sees that soon, if it can."""
        connection.is_open_here = False
        if self.is_parted(connection.process.name, connection.broker.name):
            return  # it will be missed by its heartbeats

        self.timeline.after(self._delay_ms(), lambda: connection.broker.closed(connection))

    def close_there(self, connection: Connection, noticed_after_ms: int | None) -> None:
        """The broker's end is closed. The member notices after so long; None: when it sends something next."""
        connection.broker.closed(connection)
        if noticed_after_ms is not None:
            self.timeline.after(noticed_after_ms, lambda: self._lost_here(connection))

    def _lost_here(self, connection: Connection) -> None:
        if connection.is_open_here:
            connection.is_open_here = False
            connection.process.run_first(lambda: connection.process.on_lost(connection))

    # --- requests ---------------------------------------------------------------------------------------------

    def ask(
        self,
        connection: Connection,
        do: Callable[["SimBroker"], T],
        answered: Callable[[T], object],
        failed: Callable[[], object],
        timeout_ms: int,
    ) -> None:
        """There and back; `failed` after the timeout, or at once when the connection is known to be lost."""
        self.requests += 1
        timeline, process = self.timeline, connection.process
        deadline_ms = timeline.now_ms + timeout_ms

        def fail_at(ms: int) -> None:
            timeline.at(max(ms, timeline.now_ms), lambda: process.run(failed))

        def back(result: T) -> None:
            at_ms = self._back_ms(connection)
            if at_ms is None or at_ms > deadline_ms:
                fail_at(deadline_ms)
                return
            timeline.at(at_ms, lambda: process.run(lambda: answered(result)))

        def there() -> None:
            if not connection.is_open_there:
                self._reset(connection)
                fail_at(min(deadline_ms, timeline.now_ms + self._delay_ms()))
            elif connection.broker.is_paused:
                connection.broker.when_awake(there)
            else:
                back(do(connection.broker))

        at_ms = self._there_ms(connection)
        if not connection.is_open_here:
            fail_at(timeline.now_ms + 1)
        elif at_ms is None:
            fail_at(deadline_ms)
        else:
            timeline.at(at_ms, there)

    def tell(self, connection: Connection, do: Callable[["SimBroker"], object]) -> None:
        """A request that wants no answer."""
        self.requests += 1

        def there() -> None:
            if not connection.is_open_there:
                self._reset(connection)
            elif connection.broker.is_paused:
                connection.broker.when_awake(there)
            else:
                do(connection.broker)

        at_ms = self._there_ms(connection)
        if connection.is_open_here and at_ms is not None:
            self.timeline.at(at_ms, there)

    def push(self, connection: Connection, work: Callable[[], object]) -> None:
        """From the broker to the member: an answer to a pull, a notice."""
        at_ms = self._back_ms(connection)
        if at_ms is not None:
            self.timeline.at(at_ms, lambda: connection.process.run(work))

    def _reset(self, connection: Connection) -> None:
        """The other end does not know this connection any more, and says so."""
        if not self.is_parted(connection.process.name, connection.broker.name):
            self.timeline.after(self._delay_ms(), lambda: self._lost_here(connection))

    def _there_ms(self, connection: Connection) -> int | None:
        if self.is_parted(connection.process.name, connection.broker.name):
            return None
        at_ms = connection.busy_there_ms = max(
            self.timeline.now_ms + self._delay_ms(), connection.busy_there_ms
        )
        if self.weather.reorder and self.timeline.chance.random() < self.weather.reorder:
            at_ms += self.timeline.chance.randrange(50)
        return at_ms

    def _back_ms(self, connection: Connection) -> int | None:
        if self.is_parted(connection.process.name, connection.broker.name):
            return None
        connection.busy_back_ms = max(self.timeline.now_ms + self._delay_ms(), connection.busy_back_ms)
        return connection.busy_back_ms

    def _delay_ms(self) -> int:
        weather, chance = self.weather, self.timeline.chance
        delay_ms = 1 + int(chance.random() * weather.delay_ms_max)
        if weather.loss and chance.random() < weather.loss:
            delay_ms += RETRANSMIT_MS_MIN + int(chance.random() * (LATE_MS_MAX - RETRANSMIT_MS_MIN) / 2)
        return delay_ms
