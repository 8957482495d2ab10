"""A whole cluster on virtual time: name servers, brokers, a network, and the members of one group."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trimtab.balance import metrics
from trimtab.balance.order import sorted_queues
from trimtab.balance.strategies import Averagely, Load, by_name, planner_by_name
from trimtab.balance.strategies.lag import queue_weights
from trimtab.balance.strategies.plans import Planned
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue
from trimtab.sim.broker import SimBroker
from trimtab.sim.logs import QueueLog
from trimtab.sim.member import CLASSIC, LEASED, Kind, SimMember
from trimtab.sim.names import SimNameServer
from trimtab.sim.network import Network, Weather
from trimtab.sim.reading import Handling
from trimtab.sim.timeline import LocalClock, Timeline
from trimtab.sim.watch import Watch

TOPIC: Final = "orders"
EVEN: Final = frozenset({"sticky", "AVG", "AVG_BY_CIRCLE", "rendezvous"})
"""Strategies whose shares differ by at most one."""
SETTLED_FOR_MS: Final = 3_000
LOOK_EVERY_MS: Final = 250
LOAD_LOOK_EVERY_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the world is made of."""

    members: int = 4
    queues: int = 16
    brokers: int = 2
    mode: str = LEASED
    strategy: str = ""
    broker_kind: str = "apache"
    seed: int = 0
    name_servers: int = 1
    per_s: float = 2.0
    """Messages a second and queue."""
    drift: float = 0.01
    """How wrong clocks run at most."""
    weather: Weather = field(default_factory=Weather)
    handling: Handling = field(default_factory=Handling)
    has_stable_ids: bool = False
    is_strict: bool = True
    hours: float = 1.0
    """For scenarios that go on for long."""

    @property
    def strategy_name(self) -> str:
        """The one that was asked for, or the mode's own."""
        return self.strategy or ("sticky" if self.mode == LEASED else "AVG")


class World:
    """See the module's own words."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.timeline = Timeline(shape.seed)
        self.watch = Watch(self.timeline, is_strict=shape.mode == LEASED and shape.is_strict)
        self.network = Network(self.timeline, shape.weather)
        self.brokers: dict[str, SimBroker] = {}
        self.queues: tuple[MessageQueue, ...] = ()
        """All there are."""
        self.names = [SimNameServer(f"names-{at}") for at in range(shape.name_servers)]
        self.members: dict[int, SimMember] = {}
        """By place; a member that was restarted is another one in the same place."""
        self.moved_min = 0
        self.converged_ms: list[int] = []
        self.detected_ms: list[int] = []
        self.lag_samples: list[float] = []
        """`max/mean` of the members' loads, every ten seconds while it is watched."""
        self.drain_ms: int | None = None
        self.unheld_ms: int | None = None
        self.settled_shares: dict[str, float] | None = None
        """Before the last messages were handled."""
        self.is_over = False
        self._kind = _kind_of(shape)
        self._lives = 0
        self._mark: tuple[int, dict[MessageQueue, str]] | None = None
        for at in range(shape.brokers):
            count = shape.queues // shape.brokers + (at < shape.queues % shape.brokers)
            self.add_broker(count)

    # --- making -----------------------------------------------------------------------------------------------

    def _clock(self) -> LocalClock:
        chance, drift = self.timeline.chance, self.shape.drift
        return LocalClock(1 + drift * (2 * chance.random() - 1), chance.randrange(10**9))

    def add_broker(self, queue_count: int) -> SimBroker:
        """One more broker with so many queues."""
        name = f"broker-{len(self.brokers)}"
        broker = self.brokers[name] = SimBroker(
            name, self.shape.broker_kind, self.timeline, self.network, self.watch, self._clock()
        )
        broker.topics = (TOPIC,)
        self.set_queues(name, queue_count)
        return broker

    def set_queues(self, broker_name: str, count: int, names: list[SimNameServer] | None = None) -> None:
        """From now on a broker has so many queues of the topic, and these name servers know it."""
        broker = self.brokers[broker_name]
        for number in range(count):
            queue = MessageQueue(TOPIC, broker_name, number)
            if queue not in broker.logs:
                broker.logs[queue] = QueueLog(self.timeline.now_ms, self.shape.per_s)
        for server in self.names if names is None else names:
            server.register(TOPIC, broker_name, count)
        self.queues = sorted_queues(queue for broker in self.brokers.values() for queue in broker.logs)
        self.watch.watch(self.queues)

    def log(self, queue: MessageQueue) -> QueueLog:
        """The messages of a queue."""
        return self.brokers[queue.broker_name].logs[queue]

    def join(
        self, place: int, *, is_stable: bool | None = None, is_foreign: bool = False, slowness: float = 1.0
    ) -> SimMember:
        """A member starts in this place."""
        self._lives += 1
        stable = self.shape.has_stable_ids if is_stable is None else is_stable
        name = f"m{place}.{self._lives}"
        client_id = f"billing-{place}" if stable else f"10.0.{place // 250}.{place % 250}@{self._lives:05}"
        kind = Kind(
            mode=self._kind.mode, planner=self._kind.planner, strategy=self._kind.strategy, handling=self._kind.handling,
            is_stable=stable, is_foreign=is_foreign,
        )  # fmt: skip
        member = SimMember(
            self,
            name,
            client_id if is_foreign or stable else client_id + "#tt",
            kind,
            self._clock(),
            self._lives,
        )
        member.reader.slowness = slowness
        self.members[place] = member
        member.start()
        return member

    def join_all(self, *, slowness: Callable[[int], float] = lambda _: 1.0) -> None:
        """The first members, one after the other."""
        for place in range(self.shape.members):
            self.join(place, slowness=slowness(place))
            self.run_for(20 if self.shape.members < 100 else 2)

    @property
    def alive(self) -> list[SimMember]:
        """Those whose process runs and that do not leave."""
        return [member for member in self.members.values() if member.is_alive and not member.is_leaving]

    # --- time -------------------------------------------------------------------------------------------------

    def run_for(self, ms: int) -> None:
        """Lets so much time pass."""
        self.timeline.run_until(self.timeline.now_ms + ms)

    def settle(self, ms_max: int = 120_000) -> bool:
        """Until everything is held and nothing moved for a while; whether that came to pass."""
        until_ms = self.timeline.now_ms + ms_max
        while self.timeline.now_ms < until_ms:
            self.run_for(LOOK_EVERY_MS)
            is_quiet = self.timeline.now_ms - self.watch.changed_ms >= SETTLED_FOR_MS
            if is_quiet and self.is_balanced():
                self._note_converged()
                return True
        return False

    def mark(self) -> None:
        """A change of the membership comes now: from here the moves and the time are measured."""
        self._mark = self.timeline.now_ms, self.holders()
        self.watch.answered_ms = None

    def _note_converged(self) -> None:
        if self._mark is None:
            return
        at_ms, before = self._mark
        self._mark = None
        self.converged_ms.append(max(0, self.watch.changed_ms - at_ms))
        if self.watch.answered_ms is not None:
            self.detected_ms.append(self.watch.answered_ms - at_ms)
        members = [member.client_id for member in self.alive]
        self.moved_min += metrics.moved_min(before, self.queues, members)

    def begin_counting(self) -> None:
        """The first members have settled: from here on everything counts."""
        self.watch.begin_counting()
        self.converged_ms.clear()
        self.detected_ms.clear()
        self.moved_min = 0

    def run_and_watch_load(self, ms: int) -> None:
        """Lets time pass and looks at the members' loads."""
        for _ in range(ms // LOAD_LOOK_EVERY_MS):
            self.run_for(LOAD_LOOK_EVERY_MS)
            self.lag_samples.append(self.lag_max_mean())

    def watch_load(self, ms_max: int) -> None:
        """Until what waits is no more than what is always at work, and looks at the members' loads meanwhile."""
        began_ms = self.timeline.now_ms
        usual = len(self.queues) + len(self.alive) * self.shape.handling.concurrency
        while self.timeline.now_ms < began_ms + ms_max:
            self.run_for(1_000)
            if (self.timeline.now_ms - began_ms) % LOAD_LOOK_EVERY_MS == 0:
                self.lag_samples.append(self.lag_max_mean())
            if self.lag() <= usual:
                break
        self.drain_ms = self.timeline.now_ms - began_ms

    def lag_max_mean(self) -> float:
        """How uneven the members' loads are: what waits, to be worked off in a minute, and what arrives."""
        loads = {
            queue: Load(lag, per_s)
            for broker in self.brokers.values()
            for queue, (lag, per_s) in broker.lags().items()
        }
        weights = queue_weights(self.queues, loads, 60.0)
        return metrics.max_mean(metrics.loads(self.holders(), self._ids(), weights).values())

    def _ids(self) -> dict[str, None]:
        held = dict.fromkeys(self.holders().values())
        return dict.fromkeys(member.client_id for member in self.alive) | held

    def capacity_per_s(self) -> float:
        """Messages that all members together can handle in a second."""
        handling = self.shape.handling
        return sum(
            handling.concurrency * 1000 / (handling.handler_ms * member.reader.slowness)
            for member in self.alive
        )

    # --- what is so -------------------------------------------------------------------------------------------

    def holders(self) -> dict[MessageQueue, str]:
        """Who holds what now, of the queues that one holds."""
        found = {}
        for queue in self.queues:
            names = [member.client_id for member in self.watch.holders[queue].values()]
            if len(names) == 1:
                found[queue] = names[0]
        return found

    def shares(self) -> dict[str, float]:
        """Each member's number of queues."""
        members = dict.fromkeys(member.client_id for member in self.alive)
        held = {queue: member for queue, member in self.holders().items() if member in members}
        return metrics.loads(held, members)

    def is_balanced(self) -> bool:
        """Whether each queue is held once, and shares are even where the strategy promises that."""
        shares = self.shares()
        if sum(shares.values()) != len(self.queues):
            return False
        even = self.shape.strategy_name in EVEN and all(
            member.mode == self.shape.mode for member in self.alive
        )
        return not even or max(shares.values()) - min(shares.values()) <= 1

    def lag(self) -> int:
        """Messages that no handler has finished."""
        now_ms = self.timeline.now_ms
        return sum(self.log(queue).end(now_ms) - self.watch.handled_up_to(queue) for queue in self.queues)

    # --- the end ----------------------------------------------------------------------------------------------

    def stop_producing(self) -> None:
        """No more messages come."""
        for queue in self.queues:
            self.log(queue).set_rate(self.timeline.now_ms, 0.0)

    def drain(self, ms_max: int = 300_000) -> bool:
        """Until every message was handled; whether that came to pass."""
        until_ms = self.timeline.now_ms + ms_max
        while self.lag() and self.timeline.now_ms < until_ms:
            self.run_for(LOOK_EVERY_MS)
        return not self.lag()

    def finish(self, settle_ms_max: int = 120_000) -> int:
        """The end of a run: everything must be held, even, and handled. Gives how many messages were lost."""
        if not self.settle(settle_ms_max):
            self.watch.fail(f"the group did not settle: {self.described()}", *self.unsettled())
        self.watch.count_all()
        self.unheld_ms = self.watch.unheld_ms
        self.settled_shares = self.shares()
        self.watch.is_counting_moves = False
        self.stop_producing()
        self.is_over = True
        if not self.drain():
            self.watch.fail(
                f"{self.lag()} messages were never handled: {self.described()}", *self.unsettled()
            )
        return self.lag()

    def unsettled(self) -> list[str]:
        """Words to look for in the trace: queues that nobody or more than one holds."""
        return [str(queue) for queue in self.queues if len(self.watch.holders[queue]) != 1][:3]

    def described(self) -> str:
        """Who holds how much, in words."""
        counts = ", ".join(
            f"{member.name} {member.mode} {len(member.shell.holdings())}" for member in self.alive
        )
        nobody = sum(not self.watch.holders[queue] for queue in self.queues)
        return f"{counts}; {nobody} of {len(self.queues)} queues with nobody"


def _kind_of(shape: Shape) -> Kind:
    if shape.mode not in (LEASED, CLASSIC):
        raise SettingsError(f"mode {shape.mode!r} is neither {LEASED!r} nor {CLASSIC!r}")
    planner = planner_by_name(shape.strategy_name)
    is_plain = isinstance(planner, Planned)
    strategy = by_name(shape.strategy_name) if is_plain or shape.mode == CLASSIC else Averagely()
    return Kind(
        mode=shape.mode, planner=planner, strategy=strategy, handling=shape.handling
    )  # fmt: skip
