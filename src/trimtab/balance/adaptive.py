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

from trimtab.balance.pick import BrokerStanding, Choice, Writable
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
        average = self.average_ms
        if average > best_ms:
            average = best_ms + (average - best_ms) * exp((self.updated_ms - now_ms) / FORGETTING_MS)
        return max(average, now_ms - self.unanswered[0]) if self.unanswered else average


@dataclass(slots=True)
class _Option:
    """One broker of a topic: its queues, whose turn it is, and its part of the topic's messages."""

    name: str
    broker: _Broker
    queues: list[MessageQueue]
    turn: int
    weight: float = -1.0
    share: float = 0.0
    why: str = ""


@dataclass(slots=True)
class _Plan:
    """The brokers of one topic, weighed at one moment."""

    writable: Writable
    options: list[_Option]
    at_ms: int = -1
    answers: int = -1


class Adaptive:
    """See the module's own words."""

    name = "adaptive"

    def __init__(self, start: int) -> None:
        self._start = start
        self._brokers: dict[str, _Broker] = {}
        self._plans: dict[str, _Plan] = {}
        self._answers = 0

    def choose(self, writable: Writable, last_broker: str | None, now_ms: int) -> Choice:
        plan = self._plans.get(writable.topic)
        if plan is None or plan.writable is not writable:
            plan = self._plans[writable.topic] = self._new_plan(writable, plan)
        if plan.at_ms != now_ms or plan.answers != self._answers:
            self._weigh(plan, now_ms)
        options = plan.options
        if last_broker is not None:
            options = [option for option in options if option.name != last_broker] or options
        option = options[0] if len(options) == 1 else _richest(options)
        option.turn = turn = (option.turn + 1) % len(option.queues)
        return Choice(option.queues[turn], option.why)

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
        self._answers += 1

    def brokers(self, now_ms: int) -> list[BrokerStanding]:
        best_ms = min((broker.average_ms for broker in self._brokers.values()), default=0.0)
        standings = [
            BrokerStanding(
                broker_name=name,
                is_available=True,
                latency_ms=broker.slowness_ms(now_ms, best_ms),
                until_ms=now_ms,
                weight=_weight(broker, now_ms, best_ms),
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

    def _new_plan(self, writable: Writable, before: _Plan | None) -> _Plan:
        turns = {} if before is None else {option.name: option.turn for option in before.options}
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in writable.queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        options = [
            _Option(name, self._known(name), queues, turns.get(name, self._start) % len(queues))
            for name, queues in by_broker.items()
        ]
        return _Plan(writable, options)

    def _weigh(self, plan: _Plan, now_ms: int) -> None:
        plan.at_ms, plan.answers = now_ms, self._answers
        best_ms = min([option.broker.average_ms for option in plan.options])
        for option in plan.options:
            weight = _weight(option.broker, now_ms, best_ms)
            if weight != option.weight:
                option.weight = weight
                # A broker with more queues gets more, as plain round robin would give it.
                option.share = weight * len(option.queues)
                option.why = f"{option.name} weighs {weight:.3f}"


def _weight(broker: _Broker, now_ms: int, best_ms: float) -> float:
    near_ms = NEAR_FACTOR * best_ms + NEAR_MS
    slowness = broker.slowness_ms(now_ms, best_ms)
    return 1.0 if slowness <= near_ms else max(WEIGHT_MIN, (near_ms / slowness) ** 3)


def _richest(options: list[_Option]) -> _Option:
    """Each broker earns its share, the richest is taken and pays for all: over time everybody gets its part, evenly spread."""
    total = sum([option.share for option in options])
    chosen = options[0]
    richest = float("-inf")
    for option in options:
        broker = option.broker
        credit = broker.credit + option.share
        broker.credit = credit = min(credit, total)
        if credit > richest:
            chosen, richest = option, credit
    chosen.broker.credit -= total
    return chosen
