"""A producer's next queue: what is chosen from, what a choice says, and plain round robin (mission A1, A2).

A policy is a small machine: `choose` gives a queue, `began`, `ended`, `declined` and `dropped` tell it how an attempt went. Time is an
argument, chance a starting number. All policies treat a topic's queues as given; none edits them.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from trimtab.model import MessageQueue

TOPICS_MAX = 10_000
"""Of so many topics a policy remembers what it chose from; who sends to more of them begins anew with the oldest."""
_I32_MIN = -(2**31)


@dataclass(frozen=True, slots=True)
class Writable:
    """The queues of a topic that can be written to, in the route's order."""

    topic: str
    queues: tuple[MessageQueue, ...]

    def queues_of(self, broker_name: str) -> int:
        """How many of them are on that broker."""
        return sum(queue.broker_name == broker_name for queue in self.queues)


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A queue and why it was taken, for receipts and for people."""

    queue: MessageQueue
    why: str


class Policy(Protocol):
    """How a producer chooses queues and avoids bad brokers."""

    @property
    def name(self) -> str:
        """As options and reports call it."""

    def choose(self, writable: Writable, last_broker: str | None, now_ms: int) -> Choice:
        """The queue for the next attempt; `last_broker` is the one that has just failed in this very send."""

    def began(self, broker_name: str, now_ms: int) -> None:
        """A request is on its way, or a connection for it is being made."""

    def dropped(self, broker_name: str, began_ms: int) -> None:
        """What began then became no request; nothing was learned of the broker."""

    def ended(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool) -> None:
        """Its answer came, or will never come. What began was `latency_ms` ago."""

    def declined(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """Its answer came: a refusal that any broker would give, for the message's own sake."""

    def brokers(self, now_ms: int) -> list["BrokerStanding"]:
        """How it sees the brokers now, best first."""


@dataclass(frozen=True, slots=True)
class BrokerStanding:
    """What a policy thinks of a broker."""

    broker_name: str
    is_available: bool
    latency_ms: float
    until_ms: int
    """When it counts as available again."""
    weight: float = 1.0
    in_flight: int = 0


class RingCounter:
    """Java's counter: 32 bits, wrapping, read as a magnitude, except that the smallest number has none."""

    __slots__ = ("_value",)

    def __init__(self, start: int) -> None:
        self._value = _wrapped(start)

    def next(self) -> int:
        """One more than the last time."""
        self._value = _wrapped(self._value + 1)
        return _magnitude(self._value)


class RingCounters:
    """A counter for each topic. Each new one begins one further, so that topics that send little do not all begin with one queue."""

    def __init__(self, start: int) -> None:
        self._next_start = start
        self._by_topic: dict[str, RingCounter] = {}

    def of(self, topic: str) -> RingCounter:
        """The counter of a topic."""
        counter = self._by_topic.get(topic)
        if counter is None:
            make_room(self._by_topic, TOPICS_MAX)
            counter = self._by_topic[topic] = RingCounter(self._next_start)
            self._next_start += 1
        return counter


def position(index: int, size: int) -> int:
    """Java's `abs(index) % size`, with its guard for the one number whose magnitude is negative."""
    magnitude = _magnitude(_wrapped(index))
    return 0 if magnitude < 0 else magnitude % size


def _wrapped(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def _magnitude(number: int) -> int:
    return number if number == _I32_MIN else abs(number)


class RoundRobin:
    """Every queue of a topic in turn; a retry passes over the broker that has just failed, if there is another."""

    name = "round-robin"

    def __init__(self, start: int) -> None:
        self._counters = RingCounters(start)

    def choose(self, writable: Writable, last_broker: str | None, now_ms: int) -> Choice:  # noqa: ARG002
        counter = self._counters.of(writable.topic)
        if last_broker is not None:
            for _ in writable.queues:
                queue = next_in_turn(writable, counter)
                if queue.broker_name != last_broker:
                    return Choice(queue, f"next in turn that is not on {last_broker}")
        return Choice(next_in_turn(writable, counter), "next in turn")

    def began(self, broker_name: str, now_ms: int) -> None:
        """Nothing is remembered."""

    def dropped(self, broker_name: str, began_ms: int) -> None:
        """Nothing is remembered."""

    def ended(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool) -> None:
        """Nothing is remembered."""

    def declined(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """Nothing is remembered."""

    def brokers(self, now_ms: int) -> list[BrokerStanding]:  # noqa: ARG002
        return []


def make_room(table: dict[str, Any], entries_max: int) -> None:
    """Drops the oldest entry of a full table, so that one more fits."""
    if len(table) >= entries_max:
        del table[next(iter(table))]


def next_in_turn(writable: Writable, counter: RingCounter) -> MessageQueue:
    """The queue that the counter points to now."""
    return writable.queues[position(counter.next(), len(writable.queues))]
