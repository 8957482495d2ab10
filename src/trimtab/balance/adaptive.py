"""Our own policy: every broker has a weight, from how long its answers take and from what is on its way to it.

A broker's *slowness* is the larger of two numbers. One is a moving average of its latencies, times how much more than its part of all
requests on their way is on its way to it: a queue before a broker is seen before the answers are late. The other is the age of its
oldest request that is still unanswered, so that one that hangs is seen before it answers. Brokers whose slowness is close to the best
one's weigh the same; noise is not a reason to prefer anybody. Beyond that the weight falls with the cube of the slowness, at once, and
never to zero: what is left are the probes by which a broker shows that it is well again. While it is not asked, the average sinks
towards the best one's by itself, slowly, so recovery needs neither traffic nor a timer, and is gradual.

A broker that has never answered is nobody's measure. Beside brokers that have, it gets a few messages as probes, and then next to
nothing until the first of them ends.

The first answer of a broker is a poor measure: a connection was made for it, files were opened. As soon as there is a second answer to a request
that was made after it, it is forgotten, and so that this comes soon, a broker has a few probes, one after the other, whatever its weight.

Queues are taken by smooth weighted round robin over brokers, for each topic by itself, and in turn within a broker: deterministic,
and with equal weights exactly even.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from math import exp

from trimtab.balance.pick import TOPICS_MAX, BrokerStanding, Choice, Writable, make_room
from trimtab.model import MessageQueue

SAMPLE_SHARE = 0.2
"""How much of the average the newest latency is."""
FIRST_SAMPLES = 3
"""So many answers, one after the other, a broker is new: then there is an average worth the name."""
NEAR_FACTOR = 1.5
NEAR_MS = 3.0
"""A slowness within factor times the best plus this is as good as the best."""
WEIGHT_MIN = 0.001
PROBES_MAX = 8
"""Messages that a broker gets at full weight before it has ever answered, beside brokers that have; and as many while it is new."""
FAILURE_MS = 3_000.0
FORGETTING_MS = 30_000
"""In this time an average sinks two thirds of the way to the best one's."""
BROKERS_MAX = 10_000
HEAD_START = 1e-9
"""Of the broker that a new topic begins with: it settles who is first among equals, and nothing else."""
_NOBODY = float("inf")


@dataclass(slots=True)
class _Broker:
    queues: int = 1
    """Of the topic that has most of them there: what its part of all requests is measured by."""
    average_ms: float = 0.0
    updated_ms: int = 0
    is_known: bool = False
    """Whether it ever answered or failed."""
    has_answered: bool = False
    """Whether it did when last asked: only such a broker is a measure for others."""
    is_new: bool = True
    """Whether it may have to be probed."""
    samples: int = 0
    """While it is new: the answers to requests that were made one after the other, the first one's cold companions not counted."""
    first_ms: int = 0
    """When the first of them came."""
    probes: int = 0
    in_flight: int = 0
    begun_at: dict[int, int] = field(default_factory=dict)
    """When requests that are still unanswered began, oldest first, and how many did then."""
    slowness_ms: float = 0.0
    weight: float = 1.0
    """These two as of when it was last weighed."""

    @property
    def is_due_a_probe(self) -> bool:
        """Whether a new one that has answered gets one more request at full weight: one at a time, and not without end."""
        return self.has_answered and not self.in_flight and self.probes < PROBES_MAX

    def left(self, began_ms: int) -> None:
        """One request that began then is no longer on its way."""
        count = self.begun_at.get(began_ms)
        if count is None:
            return
        self.in_flight -= 1
        if count > 1:
            self.begun_at[began_ms] = count - 1
        else:
            del self.begun_at[began_ms]

    def answered(self, latency_ms: int, now_ms: int) -> None:
        """Blends a latency in; while it is new, as one of few."""
        share = SAMPLE_SHARE
        if self.is_new and (not self.samples or now_ms - latency_ms >= self.first_ms):
            self.samples += 1
            if self.samples == 1:
                self.first_ms, self.probes = now_ms, 0
            share = max(share, 1 / max(1, self.samples - 1))
            self.is_new = self.samples < FIRST_SAMPLES
        self.average_ms += share * (latency_ms - self.average_ms)

    def failed(self, latency_ms: int) -> None:
        """That counts at once, and is forgotten with time only."""
        self.is_new = False
        self.average_ms = max(float(latency_ms), FAILURE_MS, self.average_ms)

    def slowness_at(self, now_ms: int, best_ms: float, in_flight_even: float) -> float:
        average = self.average_ms
        if average > best_ms:
            average = best_ms + (average - best_ms) * exp((self.updated_ms - now_ms) / FORGETTING_MS)
        if not self.in_flight:
            return average
        crowding = (1 + self.in_flight / self.queues) / (1 + in_flight_even)
        if crowding > 1:
            average *= crowding
        return max(average, now_ms - next(iter(self.begun_at)))


@dataclass(slots=True)
class _Option:
    """One broker of a topic: its queues, whose turn it is, its part of the topic's messages, and what it has coming of them."""

    name: str
    broker: _Broker
    queues: list[MessageQueue]
    turn: int
    credit: float = 0.0
    weight: float = -1.0
    share: float = 0.0
    why: str = ""


@dataclass(slots=True)
class _Plan:
    """The brokers of one topic, weighed at one moment."""

    writable: Writable
    options: list[_Option]
    brokers: list[_Broker]
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
            plan = self._new_plan(writable, plan)
        options = plan.options
        if len(options) > 1:
            if plan.at_ms != now_ms or plan.answers != self._answers:
                self._weigh(plan, now_ms)
            if last_broker is not None:
                options = [option for option in options if option.name != last_broker]
        option = options[0] if len(options) == 1 else _richest(options)
        if option.broker.is_new:
            option.broker.probes += 1
            plan.at_ms = -1  # the next choice weighs anew, however soon it comes
        option.turn = turn = (option.turn + 1) % len(option.queues)
        return Choice(option.queues[turn], option.why)

    def began(self, broker_name: str, now_ms: int) -> None:
        broker = self._known(broker_name)
        broker.in_flight += 1
        broker.begun_at[now_ms] = broker.begun_at.get(now_ms, 0) + 1

    def dropped(self, broker_name: str, began_ms: int) -> None:
        self._known(broker_name).left(began_ms)

    def ended(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool) -> None:
        broker = self._known(broker_name)
        broker.left(now_ms - latency_ms)
        if failed:
            broker.failed(latency_ms)
        else:
            broker.answered(latency_ms, now_ms)
        broker.is_known, broker.has_answered = True, not failed
        broker.updated_ms = now_ms
        self._answers += 1

    def declined(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """It took the broker so long to say no: an answer as good as any."""
        self.ended(broker_name, latency_ms, now_ms, failed=False)

    def brokers(self, now_ms: int) -> list[BrokerStanding]:
        _weigh(self._brokers.values(), now_ms)
        standings = [
            BrokerStanding(
                broker_name=name,
                is_available=True,
                latency_ms=broker.slowness_ms,
                until_ms=now_ms,
                weight=broker.weight,
                in_flight=broker.in_flight,
            )
            for name, broker in self._brokers.items()
        ]
        return sorted(standings, key=lambda standing: (-standing.weight, standing.broker_name))

    def _known(self, broker_name: str) -> _Broker:
        broker = self._brokers.get(broker_name)
        if broker is None:
            make_room(self._brokers, BROKERS_MAX)
            broker = self._brokers[broker_name] = _Broker()
        return broker

    def _new_plan(self, writable: Writable, before: _Plan | None) -> _Plan:
        # Each new topic begins one further, so that topics that send little do not all begin with one broker, or one queue of it.
        number = len(self._plans)
        known = (
            {} if before is None else {option.name: (option.turn, option.credit) for option in before.options}
        )
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in writable.queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        options: list[_Option] = []
        for name, queues in by_broker.items():
            is_first = before is None and len(options) == number % len(by_broker)
            turn, credit = known.get(name, (self._start + number, HEAD_START if is_first else 0.0))
            options.append(_Option(name, self._known(name), queues, turn % len(queues), credit))
        for option in options:
            option.broker.queues = max(option.broker.queues, len(option.queues))
        if len(options) == 1:
            options[0].why = f"{options[0].name} is the only broker"
        if before is None:
            make_room(self._plans, TOPICS_MAX)
        plan = _Plan(writable, options, [option.broker for option in options])
        self._plans[writable.topic] = plan
        return plan

    def _weigh(self, plan: _Plan, now_ms: int) -> None:
        plan.at_ms, plan.answers = now_ms, self._answers
        # The heaviest counts as 1, so that credits from better times keep their worth when all are slow.
        heaviest = _weigh(plan.brokers, now_ms)
        for option in plan.options:
            broker = option.broker
            weight = 1.0 if broker.is_new and broker.is_due_a_probe else broker.weight
            # A broker with more queues gets more, as plain round robin would give it.
            option.share = weight / heaviest * len(option.queues)
            if weight != option.weight:
                option.weight = weight
                option.why = f"{option.name} weighs {weight:.3f}"


def _weigh(brokers: Collection[_Broker], now_ms: int) -> float:
    """Gives each its slowness and its weight as of now, and comes back with the largest weight.

    The measure is the best of those that answer, as slow as it is right now: when all are waited for, that says nothing of one of them.
    """
    best_average_ms = best_ms = _NOBODY
    in_flight = queues = 0
    for broker in brokers:
        in_flight += broker.in_flight
        queues += broker.queues
        if broker.has_answered and broker.average_ms < best_average_ms:
            best_average_ms = broker.average_ms
    in_flight_even = in_flight / queues if in_flight else 0.0
    for broker in brokers:
        broker.slowness_ms = slowness_ms = broker.slowness_at(now_ms, best_average_ms, in_flight_even)
        if broker.has_answered and slowness_ms < best_ms:
            best_ms = slowness_ms
    near_ms = NEAR_MS if best_ms is _NOBODY else NEAR_MS + NEAR_FACTOR * best_ms
    heaviest = 0.0
    for broker in brokers:
        if not broker.is_known:
            weight = 1.0 if best_ms is _NOBODY or broker.probes < PROBES_MAX else WEIGHT_MIN
        elif broker.slowness_ms <= near_ms:
            weight = 1.0
        else:
            weight = max(WEIGHT_MIN, (near_ms / broker.slowness_ms) ** 3)
        broker.weight = weight
        heaviest = max(heaviest, weight)
    return heaviest


def _richest(options: list[_Option]) -> _Option:
    """Each broker earns its share, the richest is taken and pays for all: over time everybody gets its part, evenly spread."""
    total = sum([option.share for option in options])
    chosen = options[0]
    richest = float("-inf")
    for option in options:
        option.credit = credit = min(option.credit + option.share, total)
        if credit > richest:
            chosen, richest = option, credit
    chosen.credit -= total
    return chosen
