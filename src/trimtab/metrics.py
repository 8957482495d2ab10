"""Consumers as Prometheus sees them. Needs the extra `metrics`.

    trimtab.metrics.expose(consumer)

All is read when it is scraped: from the consumer's flight recorder, whose counts are of its whole life, and from what it holds now. A
consumer that is closed shows its counts as long as the program keeps it, or until `remove`, and holds nothing.
"""

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from trimtab.balance.recorder import Kind
from trimtab.errors import ClosedError, SettingsError

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise SettingsError("trimtab.metrics needs prometheus-client: pip install 'trimtab[metrics]'") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from trimtab.client.push import PushConsumer
    from trimtab.client.push_queue import HeldNow

_WHO = ("group", "member")
_IN = (Kind.ACQUIRED,)
_OUT = (Kind.RELEASED, Kind.DROPPED, Kind.LOST)


class Members(Collector):
    """What the consumers of one registry show."""

    def __init__(self) -> None:
        self._consumers: WeakSet[PushConsumer] = WeakSet()
        self._lock = Lock()

    def add(self, consumer: "PushConsumer") -> None:
        """One more; one that is there already changes nothing."""
        with self._lock:
            self._consumers.add(consumer)

    def remove(self, consumer: "PushConsumer") -> None:
        """One less: it is closed for good, and its counts need not be shown any longer."""
        with self._lock:
            self._consumers.discard(consumer)

    def collect(self) -> "Iterator[Metric]":
        """Everything, as it is now. A scrape comes in a thread of its own."""
        with self._lock:
            known = [one for one in self._consumers if one.has_started]
        yield from _counts(known)
        yield from _now(known)

    def describe(self) -> "Iterable[Metric]":
        """Nothing: a consumer may be exposed before it has started, and has nothing to show then."""
        return ()


_lock = Lock()
_collectors: WeakKeyDictionary[CollectorRegistry, Members] = WeakKeyDictionary()


def expose(*consumers: "PushConsumer", registry: CollectorRegistry = REGISTRY) -> Members:
    """Shows consumers in a registry, from now on and as long as they live. A second call for the same one changes nothing."""
    with _lock:
        members = _collectors.get(registry)
        if members is None:
            members = Members()
            registry.register(members)
            _collectors[registry] = members
    for consumer in consumers:
        members.add(consumer)
    return members


def _counts(consumers: "list[PushConsumer]") -> "Iterator[Metric]":
    rebalances = CounterMetricFamily("trimtab_rebalances", "Times at which queues came or went.", labels=_WHO)
    events = CounterMetricFamily("trimtab_events", "What the flight recorder saw.", labels=(*_WHO, "kind"))
    moved = CounterMetricFamily(
        "trimtab_moved_queues", "Queues that came and went.", labels=(*_WHO, "direction")
    )
    fenced = CounterMetricFamily("trimtab_fenced", "Leases not renewed in time.", labels=_WHO)
    refused = CounterMetricFamily("trimtab_refused", "Leases that somebody else had.", labels=_WHO)
    dropped = CounterMetricFamily("trimtab_events_dropped", "Events not on the topic for them.", labels=_WHO)
    handover = SummaryMetricFamily(
        "trimtab_handover_seconds", "From giving a queue up until it was free.", labels=_WHO
    )
    for consumer in consumers:
        who = _who(consumer)
        counts = consumer.recorder.counts
        rebalances.add_metric(who, consumer.recorder.rebalances)
        for kind, count in counts.items():
            events.add_metric([*who, kind], count)
        moved.add_metric([*who, "in"], sum(counts.get(kind, 0) for kind in _IN))
        moved.add_metric([*who, "out"], sum(counts.get(kind, 0) for kind in _OUT))
        fenced.add_metric(who, counts.get(Kind.FENCED, 0))
        refused.add_metric(who, counts.get(Kind.REFUSED, 0))
        dropped.add_metric(who, consumer.events_dropped)
        spent = consumer.recorder.spent(Kind.RELEASED)
        handover.add_metric(who, count_value=spent.times, sum_value=spent.ms / 1000)
    yield from (rebalances, events, moved, fenced, refused, dropped, handover)


def _now(consumers: "list[PushConsumer]") -> "Iterator[Metric]":
    held = GaugeMetricFamily("trimtab_held_queues", "Queues held now.", labels=(*_WHO, "topic"))
    waiting = GaugeMetricFamily(
        "trimtab_in_flight_messages", "Pulled and not finished.", labels=(*_WHO, "topic")
    )
    for consumer in consumers:
        queues: Counter[str] = Counter()
        messages: Counter[str] = Counter()
        for holding in _held(consumer):
            queues[holding.queue.topic] += 1
            messages[holding.queue.topic] += holding.waiting_messages
        for topic, count in queues.items():
            held.add_metric([*_who(consumer), topic], count)
            waiting.add_metric([*_who(consumer), topic], messages[topic])
    yield from (held, waiting)


def _held(consumer: "PushConsumer") -> "tuple[HeldNow, ...]":
    try:
        return consumer.holdings()
    except ClosedError:
        return ()


def _who(consumer: "PushConsumer") -> list[str]:
    return [consumer.group, consumer.client_id]
