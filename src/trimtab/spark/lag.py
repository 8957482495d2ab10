"""How far streams are behind, from what Spark reports of them. PURE."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.model import MessageQueue
from trimtab.spark.offsets import CheckpointError, Progress, progress_from_json


@dataclass(frozen=True, slots=True)
class QueueLag:
    """What waits in one queue after a batch."""

    queue: MessageQueue
    messages: int
    seconds: float | None
    """How long the oldest of them has waited; 0 if there are none, None if that is not known."""


def lags_of(source: Mapping[str, Any], now_ms: int) -> tuple[QueueLag, ...]:
    """The queues of one source of a progress report; none if it is not ours."""
    end, latest = _progress(source.get("endOffset")), _progress(source.get("latestOffset"))
    if end is None or latest is None:
        return ()
    lags = []
    for queue in sorted(latest.offsets, key=str):
        messages = max(latest.offsets[queue] - end.offsets.get(queue, 0), 0)
        lags.append(QueueLag(queue, messages, _seconds(messages, latest.waiting_since.get(queue), now_ms)))
    return tuple(lags)


def _seconds(messages: int, since_ms: int | None, now_ms: int) -> float | None:
    if not messages:
        return 0.0
    return None if since_ms is None else max(now_ms - since_ms, 0) / 1000


def _progress(offset: Any) -> Progress | None:
    try:
        value = json.loads(offset) if isinstance(offset, str) else offset
        return progress_from_json(value) if isinstance(value, dict) else None
    except (ValueError, CheckpointError):
        return None


def summary(query: str, lags: tuple[QueueLag, ...]) -> str:
    """One line for people: how much waits in all, how long, and where most."""
    total = sum(lag.messages for lag in lags)
    longest = max((lag.seconds or 0.0 for lag in lags), default=0.0)
    worst = max(lags, key=lambda lag: lag.messages, default=None)
    text = f"{query}: {total} messages wait in {len(lags)} queues, the oldest for {longest:.1f} s"
    return (
        f"{text}; most in {worst.queue} ({worst.messages})" if worst is not None and worst.messages else text
    )
