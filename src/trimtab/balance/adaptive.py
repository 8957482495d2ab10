"""Our own policy: every broker has a weight, from how long its answers take and from what is on its way to it.

A broker's *slowness* is the larger of two numbers: a moving average of its latencies, and the age of its oldest request that is
still unanswered, so that one that hangs is seen before it answers. Brokers whose slowness is close to the best one's weigh the
same; noise is not a reason to prefer anybody. Beyond that the weight falls with the cube of the slowness, at once, and never
to zero: what is left are the probes by which a broker shows that it is well again. While it is not asked, the average sinks towards
the best one's by itself, slowly, so recovery needs neither traffic nor a timer, and is gradual.

Queues are taken by smooth weighted round robin over brokers, and in turn within a broker: deterministic, and with
equal weights exactly even.
"""

from collections import deque
from dataclasses import dataclass, field
from math import exp

from trimtab.balance.pick import BrokerStanding, Choice, RingCounter, Writable
from trimtab.model import MessageQueue

SAMPLE_SHARE = 0.2
"""How much of the average the newest latency is."""
NEAR_FACTOR = 1.5
NEAR_MS = 3.0
"""A slowness within factor times the best plus this is as good as the best."""
WEIGHT_MIN = 0.001
FAILURE_MS = 3_000
FORGETTING_MS = 30_000
"""In this time an average sinks two thirds of the way to the best one's."""


@dataclass(slots=True)
class _Broker:
    average_ms: float = 0.0
    updated_ms: int = 0
    has_answered: bool = False
    unanswered: deque[int] = field(default_factory=deque)
    credit: float = 0.0

    def slowness_ms(self, now_ms: int, best_ms: float) -> float:
        faded = exp(-(now_ms - self.updated_ms) / FORGETTING_MS)
        average = (
            best_ms + (self.average_ms - best_ms) * faded if self.average_ms > best_ms else self.average_ms
        )
        return max(average, now_ms - self.unanswered[0]) if self.unanswered else average


class Adaptive:
    """See the module's own words."""

    name = "adaptive"

    def __init__(self, start: int) -> None:
        self._start = start
        self._brokers: dict[str, _Broker] = {}
        self._turns: dict[tuple[str, str], RingCounter] = {}
        self._by_broker: dict[str, tuple[Writable, dict[str, list[MessageQueue]]]] = {}

    def choose(self, writable: Writable, last_broker: str | None, now_ms: int) -> Choice:
        by_broker = self._grouped(writable)
        names = [name for name in by_broker if name != last_broker] or list(by_broker)
        weights = self._weights(names, now_ms)
        # A broker with more queues gets more, as plain round robin would give it.
        shares = {name: weights[name] * len(by_broker[name]) for name in names}
        chosen = self._smooth(shares)
        queues = by_broker[chosen]
        turn = self._turns.setdefault((writable.topic, chosen), RingCounter(self._start))
        return Choice(queues[abs(turn.next()) % len(queues)], f"{chosen} weighs {weights[chosen]:.3f}")

    def began(self, broker_name: str, now_ms: int) -> None:
        self._known(broker_name).unanswered.append(now_ms)

    def ended(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool) -> None:
        broker = self._known(broker_name)
        if broker.unanswered:
            broker.unanswered.popleft()
        sample = float(max(latency_ms, FAILURE_MS) if failed else latency_ms)
        if failed or not broker.has_answered:
            broker.average_ms = max(sample, broker.average_ms) if failed else sample
        else:
            broker.average_ms += SAMPLE_SHARE * (sample - broker.average_ms)
        broker.has_answered = True
        broker.updated_ms = now_ms

    def brokers(self, now_ms: int) -> list[BrokerStanding]:
        weights = self._weights(list(self._brokers), now_ms)
        best_ms = self._best_ms(list(self._brokers))
        standings = [
            BrokerStanding(
                broker_name=name,
                is_available=True,
                latency_ms=broker.slowness_ms(now_ms, best_ms),
                until_ms=now_ms,
                weight=weights[name],
                in_flight=len(broker.unanswered),
            )
            for name, broker in self._brokers.items()
        ]
        return sorted(standings, key=lambda standing: (-standing.weight, standing.broker_name))

    def _known(self, broker_name: str) -> _Broker:
        broker = self._brokers.get(broker_name)
        if broker is None:
            broker = self._brokers[broker_name] = _Broker()
        return broker

    def _grouped(self, writable: Writable) -> dict[str, list[MessageQueue]]:
        known = self._by_broker.get(writable.topic)
        if known is not None and known[0] is writable:
            return known[1]
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in writable.queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        self._by_broker[writable.topic] = (writable, by_broker)
        return by_broker

    def _best_ms(self, names: list[str]) -> float:
        averages = [self._brokers[name].average_ms for name in names if name in self._brokers]
        return min(averages, default=0.0)

    def _weights(self, names: list[str], now_ms: int) -> dict[str, float]:
        best_ms = self._best_ms(names)
        near_ms = NEAR_FACTOR * best_ms + NEAR_MS
        weights = {}
        for name in names:
            slowness = self._known(name).slowness_ms(now_ms, best_ms)
            weights[name] = 1.0 if slowness <= near_ms else max(WEIGHT_MIN, (near_ms / slowness) ** 3)
        return weights

    def _smooth(self, shares: dict[str, float]) -> str:
        """Each broker earns its share, the richest is taken and pays for all: over time everybody gets its part, evenly spread."""
        total = sum(shares.values())
        chosen = ""
        richest = float("-inf")
        for name, share in shares.items():
            broker = self._brokers[name]
            broker.credit = min(broker.credit + share, total)
            if broker.credit > richest:
                chosen, richest = name, broker.credit
        self._brokers[chosen].credit -= total
        return chosen
