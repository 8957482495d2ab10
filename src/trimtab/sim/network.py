"""The network between members and brokers: delay, loss, reordering, partitions, cut connections.

It behaves as TCP does: what is sent over one connection arrives in order, a lost packet is late and not gone, and a connection that is cut is noticed
by each end at its own time, or by one end alone. Brokers may take two requests out of turn, because they have many threads. A request
that hangs for longer than `LATE_MS_MAX` never arrives: that is what `docs/leases.md` assumes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

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
        return bool(self._parted) and self._parted.get((process_name, broker_name), 0) > self.timeline.now_ms

    # --- connections ------------------------------------------------------------------------------------------

    def connect(
        self,
        process: "Process",
        broker: "SimBroker",
        opened: Callable[[Connection], object],
        failed: Callable[[], object],
    ) -> None:
        """Opens a connection, or says that it cannot be."""
        delay_ms = 2 * self.delay_ms()
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

        self.timeline.after(self.delay_ms(), lambda: connection.broker.closed(connection))

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
        _Request(self, connection, do, answered, failed, self.timeline.now_ms + timeout_ms).send()

    def tell(self, connection: Connection, do: Callable[["SimBroker"], object]) -> None:
        """A request that wants no answer."""
        self.requests += 1
        _Word(self, connection, do).send()

    def push(self, connection: Connection, work: Callable[[], object]) -> None:
        """From the broker to the member: an answer to a pull, a notice."""
        at_ms = self.back_ms(connection)
        if at_ms is not None:
            self.timeline.at(at_ms, partial(connection.process.run, work))

    def reset(self, connection: Connection) -> None:
        """The other end does not know this connection any more, and says so."""
        if not self.is_parted(connection.process.name, connection.broker.name):
            self.timeline.after(self.delay_ms(), lambda: self._lost_here(connection))

    def there_ms(self, connection: Connection) -> int | None:
        """When what the member sends now is at the broker; None for never."""
        if self.is_parted(connection.process.name, connection.broker.name):
            return None
        at_ms = connection.busy_there_ms = max(
            self.timeline.now_ms + self.delay_ms(), connection.busy_there_ms
        )
        if self.weather.reorder and self.timeline.chance.random() < self.weather.reorder:
            at_ms += self.timeline.chance.randrange(50)
        return at_ms

    def back_ms(self, connection: Connection) -> int | None:
        """When what the broker sends now is at the member; None for never."""
        if self.is_parted(connection.process.name, connection.broker.name):
            return None
        connection.busy_back_ms = max(self.timeline.now_ms + self.delay_ms(), connection.busy_back_ms)
        return connection.busy_back_ms

    def delay_ms(self) -> int:
        """How long the next packet takes."""
        weather, chance = self.weather, self.timeline.chance
        delay_ms = 1 + int(chance.random() * weather.delay_ms_max)
        if weather.loss and chance.random() < weather.loss:
            delay_ms += RETRANSMIT_MS_MIN + int(chance.random() * (LATE_MS_MAX - RETRANSMIT_MS_MIN) / 2)
        return delay_ms


class _Word:
    """Something for a broker, on its way."""

    __slots__ = ("connection", "do", "network")

    def __init__(self, network: Network, connection: Connection, do: Callable[["SimBroker"], object]) -> None:
        self.network = network
        self.connection = connection
        self.do = do

    def send(self) -> None:
        at_ms = self.network.there_ms(self.connection)
        if self.connection.is_open_here and at_ms is not None:
            self.network.timeline.at(at_ms, self._there)

    def _there(self) -> None:
        connection = self.connection
        if not connection.is_open_there:
            self.network.reset(connection)
        elif connection.broker.is_paused:
            connection.broker.when_awake(self._there)
        else:
            self.do(connection.broker)


class _Request(Generic[T]):
    """A question to a broker, on its way there or back."""

    __slots__ = ("answered", "connection", "deadline_ms", "do", "failed", "network")

    def __init__(
        self,
        network: Network,
        connection: Connection,
        do: Callable[["SimBroker"], T],
        answered: Callable[[T], object],
        failed: Callable[[], object],
        deadline_ms: int,
    ) -> None:
        self.network = network
        self.connection = connection
        self.do = do
        self.answered = answered
        self.failed = failed
        self.deadline_ms = deadline_ms

    def send(self) -> None:
        timeline, at_ms = self.network.timeline, self.network.there_ms(self.connection)
        if not self.connection.is_open_here:
            self._fail_at(timeline.now_ms + 1)
        elif at_ms is None:
            self._fail_at(self.deadline_ms)
        else:
            timeline.at(at_ms, self._there)

    def _there(self) -> None:
        connection, network = self.connection, self.network
        if not connection.is_open_there:
            network.reset(connection)
            self._fail_at(min(self.deadline_ms, network.timeline.now_ms + network.delay_ms()))
        elif connection.broker.is_paused:
            connection.broker.when_awake(self._there)
        else:
            self._back(self.do(connection.broker))

    def _back(self, result: T) -> None:
        at_ms = self.network.back_ms(self.connection)
        if at_ms is None or at_ms > self.deadline_ms:
            self._fail_at(self.deadline_ms)
            return
        self.network.timeline.at(at_ms, partial(self.connection.process.run, partial(self.answered, result)))

    def _fail_at(self, ms: int) -> None:
        timeline = self.network.timeline
        timeline.at(max(ms, timeline.now_ms), partial(self.connection.process.run, self.failed))
