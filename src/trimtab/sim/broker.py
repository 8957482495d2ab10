"""A broker as members see it: the real lock table and the real registry of members, with offsets and messages as plain numbers.

Two kinds. *apache*: leases end 60 s after the last renewal and are forgotten at a restart. *ours*: those of a closed connection end after three seconds,
and each new holder gets a higher epoch, by which the commit of a former one is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trimtab.balance.leased import NO_EPOCHS
from trimtab.balance.loads import Ends
from trimtab.balance.locks import CLOSED_GRACE_MS, LeaseTable
from trimtab.balance.members import Changed, ConsumerGroups, Manner, Member
from trimtab.model import MessageQueue
from trimtab.sim.network import Connection, Network
from trimtab.sim.timeline import LocalClock, Timeline, Work

if TYPE_CHECKING:
    from trimtab.sim.logs import QueueLog
    from trimtab.sim.watch import Watch

GROUP: Final = "billing"
MANNER: Final = Manner("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
NEVER_MS: Final = 10**9
SILENT_LOOK_EVERY_MS: Final = 10_000
PULL_MESSAGES_MAX: Final = 32
POLL_MS_MAX: Final = 15_000
NOTHING: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """One broker's list of the group, made once for each change of it."""

    members: frozenset[str]
    foreign: frozenset[str]
    stable: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """How far the group has come at one broker, and who holds what there."""

    ends: dict[MessageQueue, Ends]
    holders: dict[MessageQueue, str]


@dataclass(frozen=True, slots=True, eq=False)
class Granted:
    """What a member has after it asked for leases, and the epoch of each where the broker counts them."""

    queues: list[MessageQueue]
    epochs: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What the group reads."""

    topic: str
    sub_version: int = 0


class SimBroker:
    """See the module's own words."""

    def __init__(
        self, name: str, kind: str, timeline: Timeline, network: Network, watch: "Watch", clock: LocalClock
    ) -> None:
        self.name = name
        self.kind = kind
        self.is_up = True
        self.paused_until_ms = 0
        self.clock = clock
        self._started_ms = -NEVER_MS
        self.connections: dict[int, Connection] = {}
        self.logs: dict[MessageQueue, QueueLog] = {}
        self.offsets: dict[MessageQueue, int] = {}
        self.topics: tuple[str, ...] = ()
        self._timeline = timeline
        self._network = network
        self._watch = watch
        self._leases = self._empty_table()
        self._groups: ConsumerGroups[Subscribed] = ConsumerGroups()
        self._listed: Listed | None = None
        self._polls: dict[MessageQueue, dict[int, Work]] = {}
        timeline.after(SILENT_LOOK_EVERY_MS, self._look_for_silent)

    def _empty_table(self) -> LeaseTable:
        # The clock is above all epochs of an earlier run.
        closed_grace_ms = CLOSED_GRACE_MS if self.kind == "ours" else NEVER_MS
        return LeaseTable(closed_grace_ms=closed_grace_ms, epoch=self.now_ms)

    @property
    def now_ms(self) -> int:
        """By its own clock."""
        return self.clock.at(self._timeline.now_ms)

    @property
    def up_ms(self) -> int:
        """For how long it has been up."""
        return self.now_ms - self._started_ms

    @property
    def is_paused(self) -> bool:
        """Whether it takes no requests for a while."""
        return self._timeline.now_ms < self.paused_until_ms

    def when_awake(self, work: Work) -> None:
        """Does something when the pause is over."""
        self._timeline.at(self.paused_until_ms, work)

    # --- members ----------------------------------------------------------------------------------------------

    def heartbeat(self, connection: Connection) -> bool:
        """Lists the member of this connection."""
        process = connection.process
        member = Member(connection.number, process.client_id, process.language, 0, "", self.now_ms)
        topics = [Subscribed(topic) for topic in self.topics]
        self._changed(self._groups.heartbeat(GROUP, MANNER, member, topics))
        return True

    def unregister(self, connection: Connection) -> bool:
        """The member says goodbye, and keeps the connection."""
        self._changed(self._groups.unregister(GROUP, connection.number))
        return True

    def closed(self, connection: Connection) -> None:
        """The connection is gone on this side."""
        if not connection.is_open_there:
            return
        connection.is_open_there = False
        self.connections.pop(connection.number, None)
        self._leases.close(connection.number, self.now_ms)
        for change in self._groups.close(connection.number):
            self._changed(change)

    def _changed(self, change: Changed | None) -> None:
        if change is None:
            return
        self._listed = None
        for number in change.connections:
            connection = self.connections.get(number)
            lost = self._network.weather.notice_loss
            if connection is None or (lost and self._timeline.chance.random() < lost):
                continue
            self._network.push(connection, connection.process.on_notice)

    def _look_for_silent(self) -> None:
        for number in self._groups.silent(self.now_ms) if self.is_up else ():
            connection = self.connections.get(number)
            if connection is not None:
                self._network.close_there(connection, None)
        self._timeline.after(SILENT_LOOK_EVERY_MS, self._look_for_silent)

    def listed(self) -> Listed:
        """Who is in the group."""
        if self._listed is None:
            group = self._groups.get(GROUP)
            members = list(group.members.values()) if group is not None else []
            self._listed = Listed(
                frozenset(member.client_id for member in members),
                frozenset(member.client_id for member in members if member.language == "JAVA"),
                frozenset(member.client_id for member in members if member.language == "PYTHON-STABLE"),
            )
        return self._listed

    # --- leases -----------------------------------------------------------------------------------------------

    def lock(self, connection: Connection, queues: Iterable[MessageQueue]) -> Granted:
        """The queues that the member has after this."""
        client_id = connection.process.client_id
        granted = self._leases.lock(GROUP, client_id, connection.number, queues, self.now_ms)
        if self.kind != "ours":
            return Granted(granted, NO_EPOCHS)
        return Granted(granted, dict(zip(granted, self._leases.epochs(GROUP, granted), strict=True)))

    def unlock(self, client_id: str, queues: Iterable[MessageQueue]) -> bool:
        """Gives up leases in somebody's name."""
        self._leases.unlock(GROUP, client_id, queues)
        return True

    def holders(self) -> dict[MessageQueue, str]:
        """Who has which lease."""
        found = {}
        for queue in self.logs:
            lease = self._leases.holder(GROUP, queue, self.now_ms)
            if lease is not None:
                found[queue] = lease.client_id
        return found

    def measured(self) -> Measured:
        """What members that follow load ask for."""
        now_ms = self._timeline.now_ms
        ends = {queue: Ends(log.end(now_ms), self.offsets.get(queue, 0)) for queue, log in self.logs.items()}
        return Measured(ends, self.holders())

    def lags(self) -> dict[MessageQueue, tuple[int, float]]:
        """What waits in each queue for the group, and what comes in a second."""
        now_ms = self._timeline.now_ms
        return {
            queue: (log.end(now_ms) - self.offsets.get(queue, 0), log.per_s)
            for queue, log in self.logs.items()
        }

    # --- offsets and messages ---------------------------------------------------------------------------------

    def read_offset(self, queue: MessageQueue) -> int:
        """Where the group stands; it begins with the first message."""
        return self.offsets.get(queue, 0)

    def commit(self, who: str, queue: MessageQueue, offset: int, epoch: int | None = None) -> bool:
        """Stores an offset, whoever says so, as brokers do; unless it says that its lease was a former one."""
        if epoch is not None and self._leases.newer_than(GROUP, queue, epoch) is not None:
            self._timeline.note(who, f"is refused {offset} of {queue}: others have held it since")
            return False
        self._watch.committed(who, queue, self.offsets.get(queue, 0), offset)
        self.offsets[queue] = offset
        return True

    def pull(
        self,
        connection: Connection,
        queue: MessageQueue,
        offset: int,
        got: Callable[[int], object],
        gap_ms: int,
    ) -> None:
        """Answers with how many messages there are from the offset on; waits for the first one, so long and not longer."""
        log = self.logs.get(queue)
        if log is None:
            return
        now_ms = self._timeline.now_ms
        arrives_ms = log.arrives_ms(offset)
        last_ms = now_ms + POLL_MS_MAX
        at_ms = last_ms if arrives_ms is None else min(last_ms, max(now_ms, arrives_ms + gap_ms))

        def answer() -> None:
            if connection.is_open_there and self.is_up:
                count = (
                    min(PULL_MESSAGES_MAX, max(0, log.end(self._timeline.now_ms) - offset))
                    if not gap_ms
                    else max(0, log.end(self._timeline.now_ms) - offset)
                )
                self._network.push(connection, lambda: got(count))

        if at_ms <= now_ms:
            answer()
        else:
            self._timeline.at(at_ms, answer)

    # --- faults -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The process ends: connections are gone, and with them the list of members; leases too, on any kind."""
        self.is_up = False
        for connection in list(self.connections.values()):
            delay_ms = 1 + self._timeline.chance.randrange(200)
            self._network.close_there(connection, delay_ms)
        self.connections.clear()
        self._groups = ConsumerGroups()
        self._listed = None
        self._leases = self._empty_table()

    def start(self) -> None:
        """It is back, with its offsets and messages."""
        self.is_up = True
        self._started_ms = self.now_ms
