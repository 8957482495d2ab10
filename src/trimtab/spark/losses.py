"""What to do when messages that a query still has to read are gone. PURE.

Two things happen: the broker removed old messages before they were read (`start` is below the queue's first offset), or the topic
was removed and made anew (`end` is beyond the queue's last offset).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trimtab.model import MessageQueue
from trimtab.spark.offsets import QueueRange
from trimtab.spark.problems import DataLossError

LossPolicy = Literal["fail", "warn", "earliest"]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a broker has of a queue: the messages with `first` ≤ queue offset < `next`."""

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """What can be read, and what has to be told about the rest."""

    ranges: tuple[QueueRange, ...]
    warnings: tuple[str, ...] = ()
    lost: int = 0


def judge(
    ranges: Sequence[QueueRange], kept: Mapping[MessageQueue, Kept | None], policy: LossPolicy
) -> Judgement:
    """Compares what shall be read with what is there; `None` is a queue that its topic no longer has.

    `fail` raises on any difference. `warn` reads what is left. `earliest` does that too, and reads a queue that was made
    anew from its beginning. A queue that is not in `kept` was not asked for: it is read as it is.
    """
    readable: list[QueueRange] = []
    warnings: list[str] = []
    lost = 0
    for part in ranges:
        have = kept.get(part.queue, Kept(part.start, part.end))
        if have is not None and have.first <= part.start and part.end <= have.next:
            readable.append(part)
            continue
        text = loss_text(part, have)
        if policy == "fail":
            raise DataLossError(f"{text}; {ways_on(part, have)}")
        left = _what_is_left(part, have, policy)
        warnings.append(f"{text}; {f'reading {left} instead' if left else 'nothing of it is read'}")
        lost += part.size - (left.size if left else 0)
        if left:
            readable.append(left)
    return Judgement(tuple(readable), tuple(warnings), max(lost, 0))


def loss_text(part: QueueRange, have: Kept | None) -> str:
    """What is missing, of which queue, and why that can be. An empty range is a place to go on from."""
    places = f"{part.start} to {part.end}" if part.size else f"from {part.start} on"
    asked = f"{part.queue}: offsets {places} were to be read"
    if have is None:
        return f"{asked}, and the topic has no such queue any more"
    if part.end > have.next:
        return (
            f"{asked}, and the queue ends at {have.next}, of which the broker keeps {have.first} to {have.next}: the topic was removed"
            " and made anew, or the broker lost messages"
        )
    gone = (min(have.first, part.end) if part.size else have.first) - part.start
    return (
        f"{asked}, and the broker keeps {have.first} to {have.next}: {gone} messages were removed before they were read"
        " (see fileReservedTime of the broker)"
    )


def ways_on(part: QueueRange, have: Kept | None) -> str:
    """What to do about it: the options, and where another checkpoint would begin."""
    first = 0 if have is None else have.first
    place = json.dumps({part.topic: {part.broker_name: {str(part.queue_id): first}}})
    return (
        "to go on without them set failOnDataLoss to warn or earliest, or begin anew with another checkpoint and"
        f" startingOffsets={place}"
    )


def _what_is_left(part: QueueRange, have: Kept | None, policy: LossPolicy) -> QueueRange | None:
    if have is None:
        return None
    if part.end > have.next and part.start > have.next:  # made anew: the old numbers mean nothing
        start = have.first if policy == "earliest" else have.next
    else:
        start = max(part.start, have.first)
    end = min(part.end, have.next)
    if policy == "earliest" and part.start > have.next:
        end = have.next
    return QueueRange.of(part.queue, start, end) if start < end else None
