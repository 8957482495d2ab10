"""Lag of streams, after every batch, for the log and for Prometheus."""

import logging
import math
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from trimtab.errors import MissingExtraError
from trimtab.io.clock import Clock, SystemClock
from trimtab.spark.lag import QueueLag, lags_of, summary

_log = logging.getLogger(__name__)

_LABELS = ("query", "topic", "broker", "queue")


class LagListener(StreamingQueryListener):
    """Spark calls it in the driver. `lags` holds the last figures of each running query, by its name or id."""

    def __init__(
        self, *, prometheus: bool | None = None, registry: Any = None, clock: Clock | None = None
    ) -> None:
        """`prometheus` None: if its client is installed."""
        self.lags: dict[str, tuple[QueueLag, ...]] = {}
        self._clock = clock or SystemClock()
        self._names: dict[str, str] = {}
        is_there = find_spec("prometheus_client") is not None
        if prometheus and not is_there:
            raise MissingExtraError('figures for Prometheus need its client: pip install "trimtab[metrics]"')
        self._gauges = _gauges_in(registry) if is_there and prometheus is not False else None

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names, here and below
        """A query began."""
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch is done."""
        progress = event.progress
        query = self._names[str(progress.id)] = progress.name or str(progress.id)
        now_ms = self._clock.wall_ms()
        lags = tuple(
            lag
            for source in progress.sources
            for lag in lags_of({"endOffset": source.endOffset, "latestOffset": source.latestOffset}, now_ms)
        )
        if lags:
            before = self.lags.get(query, ())
            self.lags[query] = lags
            _log.info("%s", summary(query, lags))
            if self._gauges is not None:
                there = {lag.queue for lag in lags}
                self._gauges.forget(query, tuple(lag for lag in before if lag.queue not in there))
                self._gauges.show(query, lags)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing came."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """A query ended: its figures are no longer true."""
        query = self._names.pop(str(event.id), str(event.id))
        lags = self.lags.pop(query, ())
        if self._gauges is not None:
            self._gauges.forget(query, lags)


_made: "WeakKeyDictionary[Any, _Gauges]" = WeakKeyDictionary()


def _gauges_in(registry: Any) -> "_Gauges":
    """A registry takes a name once: all listeners of a process show their figures in the same gauges."""
    from prometheus_client import REGISTRY  # noqa: PLC0415 - an extra

    where = REGISTRY if registry is None else registry
    if where not in _made:
        _made[where] = _Gauges(where)
    return _made[where]


class _Gauges:
    def __init__(self, where: Any) -> None:
        from prometheus_client import Gauge  # noqa: PLC0415 - an extra

        self._messages: Any = Gauge(
            "trimtab_spark_lag_messages", "Messages that wait in a queue", _LABELS, registry=where
        )
        self._seconds: Any = Gauge(
            "trimtab_spark_lag_seconds", "How long the oldest of them has waited", _LABELS, registry=where
        )

    def show(self, query: str, lags: tuple[QueueLag, ...]) -> None:
        for lag in lags:
            labels = _labels(query, lag)
            self._messages.labels(*labels).set(lag.messages)
            self._seconds.labels(*labels).set(math.nan if lag.seconds is None else lag.seconds)

    def forget(self, query: str, lags: tuple[QueueLag, ...]) -> None:
        for lag in lags:
            for gauge in (self._messages, self._seconds):
                gauge.remove(*_labels(query, lag))


def _labels(query: str, lag: QueueLag) -> tuple[str, str, str, str]:
    return query, lag.queue.topic, lag.queue.broker_name, str(lag.queue.queue_id)
