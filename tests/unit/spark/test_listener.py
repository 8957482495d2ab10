"""Figures of streams, from progress as Spark reports it."""

import json
from typing import Any

from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from trimtab.model import MessageQueue
from trimtab.spark.lag import QueueLag
from trimtab.spark.listener import LagListener
from trimtab.spark.offsets import Progress

A, B, C = (MessageQueue("t", "broker-a", number) for number in range(3))
QUERY = "11111111-2222-3333-4444-555555555555"


def progress(
    read: dict[MessageQueue, int], ends: dict[MessageQueue, int], name: str | None = None
) -> QueryProgressEvent:
    """After a batch that read so far, of queues that end there."""
    source = {
        "description": "rocketmq", "startOffset": "", "numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0,
        "endOffset": json.dumps(Progress(read).to_json()), "latestOffset": json.dumps(Progress(ends).to_json()), "metrics": {},
    }  # fmt: skip
    report: dict[str, Any] = {
        "id": QUERY, "runId": QUERY, "name": name, "timestamp": "", "batchId": 0, "batchDuration": 0, "durationMs": {}, "eventTime": {},
        "stateOperators": [], "sources": [source], "sink": {"description": "noop", "numOutputRows": 0, "metrics": {}}, "numInputRows": 0,
        "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0, "observedMetrics": {},
    }  # fmt: skip
    return QueryProgressEvent(StreamingQueryProgress.fromJson(report))


def shown_in(registry: CollectorRegistry) -> dict[str, float]:
    return {
        sample.labels["queue"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "trimtab_spark_lag_messages"
    }


def test_a_queue_that_is_gone_is_shown_no_longer() -> None:
    registry = CollectorRegistry()
    listener = LagListener(prometheus=True, registry=registry)
    listener.onQueryProgress(progress({A: 1, B: 2}, {A: 4, B: 9}))
    assert shown_in(registry) == {"0": 3, "1": 7}
    listener.onQueryProgress(progress({A: 4, B: 2, C: 0}, {A: 5, C: 6}))
    assert shown_in(registry) == {"0": 1, "2": 6}
    assert listener.lags[QUERY] == (QueueLag(A, 1, None), QueueLag(C, 6, None))
    ended = {"id": QUERY, "runId": QUERY, "exception": None, "errorClassOnException": None}
    listener.onQueryTerminated(QueryTerminatedEvent.fromJson(ended))
    assert shown_in(registry) == {}
    assert listener.lags == {}


def test_a_listener_that_came_after_its_query_forgets_it_too() -> None:
    registry = CollectorRegistry()
    listener = LagListener(prometheus=True, registry=registry)
    listener.onQueryProgress(progress({A: 1}, {A: 4}, name="archive"))
    assert list(listener.lags) == ["archive"]
    ended = {"id": QUERY, "runId": QUERY, "exception": None, "errorClassOnException": None}
    listener.onQueryTerminated(QueryTerminatedEvent.fromJson(ended))
    assert listener.lags == {}
    assert shown_in(registry) == {}
