"""Natural batching: while a request for a queue is on its way, further messages for that queue gather and leave together.

No message waits for company: with nothing on its way it leaves at once. What gathers meanwhile leaves as one batch when the
answer comes, so the busier a queue, the larger its batches. Order within a queue is the order of the sends. A message that
cannot be part of a batch (delayed, compressed, for a retry topic) leaves alone, in its turn.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from trimtab.model import MessageQueue


class Parcel(NamedTuple):
    """One message ready to leave."""

    body: bytes
    properties: str
    flag: int
    sys_flag: int
    born_ms: int
    is_batchable: bool
    deadline: float
    """In the loop's time; a parcel that has not left by then never leaves."""
    done: Callable[["Outcome"], None]


class Outcome(NamedTuple):
    """What became of a parcel: a place, or an error."""

    status: int
    offset_message_id: str
    queue_offset: int
    error: Exception | None = None


@dataclass(slots=True)
class Lane:
    """The messages for one queue, in order."""

    queue: MessageQueue
    address: str
    waiting: deque[Parcel] = field(default_factory=deque)
    is_busy: bool = False


def overdue(waiting: deque[Parcel], now: float) -> list[Parcel]:
    """Takes out the parcels that waited too long; those that came first are the first to be so."""
    late = []
    while waiting and waiting[0].deadline <= now:
        late.append(waiting.popleft())
    return late


def next_load(waiting: deque[Parcel], messages_max: int, bytes_max: int) -> list[Parcel]:
    """Takes out what leaves next: one message, or as many as may travel together."""
    first = waiting.popleft()
    load = [first]
    if not first.is_batchable:
        return load
    size = _size(first)
    while waiting and len(load) < messages_max and waiting[0].is_batchable:
        size += _size(waiting[0])
        if size > bytes_max:
            break
        load.append(waiting.popleft())
    return load


def _size(parcel: Parcel) -> int:
    """Its length in a batch, at least; characters beyond ASCII make it a little more."""
    return len(parcel.body) + len(parcel.properties) + 22
