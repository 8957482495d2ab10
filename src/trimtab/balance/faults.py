"""Avoiding slow brokers as RocketMQ does it, in the two forms that were published (mission A3–A6).

After every attempt the broker's latency is recorded, and for a time read from a table the broker is not available. A choice
first goes round the available brokers. If no queue qualifies, all recorded brokers are ordered by (available, latency, when
available again), and one of the better half is used in turn.

Both published forms write the chosen broker's name into the queue object that the route table shares, so that a route slowly
fills with queues of one broker. We reproduce the effect, with a list of our own per topic, and leave the route alone. As published,
each topic has a counter of its own, and the table of latencies has one for all.
"""

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.balance.pick import (
    TOPICS_MAX,
    BrokerStanding,
    Choice,
    RingCounter,
    RingCounters,
    Writable,
    make_room,
    position,
)
from trimtab.model import MessageQueue

LATENCY_MS = (50, 100, 550, 1_000, 2_000, 3_000, 15_000)
NOT_AVAILABLE_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
FAILURE_COUNTS_AS_MS = 30_000
BROKERS_MAX = 10_000


def not_available_ms(latency_ms: int) -> int:
    """For how long a broker is avoided after an answer that took so long."""
    for floor_ms, duration_ms in zip(reversed(LATENCY_MS), reversed(NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= floor_ms:
            return duration_ms
    return 0


@dataclass(frozen=True, slots=True)
class _Fault:
    latency_ms: int
    start_ms: int


class FaultTable:
    """What is known of brokers' latencies. A broker never used is available."""

    def __init__(self, start: int) -> None:
        self._faults: dict[str, _Fault] = {}
        self._counter = RingCounter(start)

    def record(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool) -> None:
        """Takes the latency of an attempt; a failed one is avoided as if it had taken 30 s."""
        duration_ms = not_available_ms(FAILURE_COUNTS_AS_MS if failed else latency_ms)
        if broker_name not in self._faults:
            make_room(self._faults, BROKERS_MAX)
        self._faults[broker_name] = _Fault(latency_ms, now_ms + duration_ms)

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        """Whether the time of avoiding it is over, or never began."""
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.start_ms

    def forget(self, broker_name: str) -> None:
        """Drops what is known of a broker."""
        self._faults.pop(broker_name, None)

    def in_order(self, now_ms: int) -> list[BrokerStanding]:
        """All recorded brokers: available ones first, then by latency, then by when they are available again."""

        def rank(item: tuple[str, _Fault]) -> tuple[bool, int, int]:
            return now_ms < item[1].start_ms, item[1].latency_ms, item[1].start_ms

        ordered = sorted(self._faults.items(), key=rank)
        return [BrokerStanding(name, now_ms >= f.start_ms, f.latency_ms, f.start_ms) for name, f in ordered]

    def pick_one_at_least(self, now_ms: int) -> str | None:
        """One of the better half, in turn; the best if there is but one."""
        ordered = self.in_order(now_ms)
        if not ordered:
            return None
        half = len(ordered) // 2
        return ordered[self._counter.next() % half if half else 0].broker_name


class FaultAvoiding:
    """The published policy; `accepts` is where the two forms differ."""

    def __init__(
        self,
        name: str,
        accepts: Callable[[MessageQueue, str | None], bool],
        *,
        start: int,
        fault_start: int = 0,
        counts_before: bool = False,
    ) -> None:
        self.name = name
        self._accepts = accepts
        self._counters = RingCounters(start - 1 if counts_before else start)
        self.faults = FaultTable(fault_start)
        self._known: dict[str, Writable] = {}
        self._lists: dict[str, list[MessageQueue]] = {}

    def choose(self, writable: Writable, last_broker: str | None, now_ms: int) -> Choice:
        queues = self.list_of(writable)
        counter = self._counters.of(writable.topic)
        index = counter.next()
        for step in range(len(queues)):
            queue = queues[position(index + step, len(queues))]
            if self.faults.is_available(queue.broker_name, now_ms) and self._accepts(queue, last_broker):
                return Choice(queue, "next in turn on an available broker")
        return self._choose_not_best(writable, queues, counter, now_ms)

    def list_of(self, writable: Writable) -> list[MessageQueue]:
        """The policy's own list of a topic's queues, made anew when the route changes."""
        if self._known.get(writable.topic) != writable:
            make_room(self._known, TOPICS_MAX)
            make_room(self._lists, TOPICS_MAX)
            self._known[writable.topic] = writable
            self._lists[writable.topic] = list(writable.queues)
        return self._lists[writable.topic]

    def _choose_not_best(
        self, writable: Writable, queues: list[MessageQueue], counter: RingCounter, now_ms: int
    ) -> Choice:
        broker_name = self.faults.pick_one_at_least(now_ms)
        queue_count = 0 if broker_name is None else writable.queues_of(broker_name)
        if broker_name is not None and queue_count > 0:
            at = position(counter.next(), len(queues))
            queue_id = counter.next() % queue_count
            queues[at] = MessageQueue(writable.topic, broker_name, queue_id)
            return Choice(queues[at], f"no broker is available; {broker_name} is of the better half")
        if broker_name is not None:
            self.faults.forget(broker_name)
        return Choice(queues[position(counter.next(), len(queues))], "no broker is known to be better")

    def began(self, broker_name: str, now_ms: int) -> None:
        """Only answers count."""

    def dropped(self, broker_name: str, began_ms: int) -> None:
        """Only answers count."""

    def ended(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool) -> None:
        self.faults.record(broker_name, latency_ms, now_ms, failed=failed)

    def declined(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """As published: every refusal counts as a failure of the broker."""
        self.faults.record(broker_name, latency_ms, now_ms, failed=True)

    def brokers(self, now_ms: int) -> list[BrokerStanding]:
        return self.faults.in_order(now_ms)


def _same_broker(queue: MessageQueue, last_broker: str | None) -> bool:
    return last_broker is None or queue.broker_name == last_broker


def _any_broker(_queue: MessageQueue, _last_broker: str | None) -> bool:
    return True


def classic_4_2(start: int, fault_start: int = 0) -> FaultAvoiding:
    """`classic-4.2`: a retry takes an available broker only if it is the very one that has just failed."""
    return FaultAvoiding(
        "classic-4.2", _same_broker, start=start, fault_start=fault_start, counts_before=True
    )


def classic_4_9_3(start: int, fault_start: int = 0) -> FaultAvoiding:
    """`4.9.3`: a retry takes any available broker."""
    return FaultAvoiding("4.9.3", _any_broker, start=start, fault_start=fault_start)
