"""Natural batching: while a request for a queue is on its way, further messages for that queue gather and leave together.

No message waits for company: with nothing on its way it leaves at once. What gathers meanwhile leaves as one batch when the
answer comes, so the busier a queue, the larger its batches. Order within a queue is the order of the sends. A message that
cannot be part of a batch (delayed, compressed, half of a transaction, for a retry topic) leaves alone, in its turn.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from trimtab.client.routes import Route
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.wire.batch import BatchEntry
from trimtab.wire.codes import RequestCode
from trimtab.wire.send_frames import SendFrames

Outcome: TypeAlias = list[Receipt] | Receipt | Exception
"""What became of a parcel: a receipt, for an explicit batch one for each message, or an error."""


class Parcel(msgspec.Struct, gc=False, eq=False):
    """One message ready to leave, or an explicit batch of them, which nothing else joins.

    The garbage collector need not look at it: the cycle with whoever waits for the answer ends with the answer.
    """

    topic: str
    """As it goes on the wire."""
    entry: BatchEntry
    message: Message
    unique_id: str
    born_ms: int
    sys_flag: int = 0
    is_batchable: bool = True
    code: int = RequestCode.SEND_MESSAGE_V2
    batch_ids: tuple[str, ...] = ()
    """The ids of an explicit batch's messages; the entry's body then is the whole batch."""
    deadline: float = 0.0
    """In the loop's time; a parcel that has not left by then never leaves."""
    may_go_elsewhere: bool = False
    """Whether another broker could take it: then it does not wait for one that is being dialled again."""
    why: str = ""
    attempts: int = 0
    answer: asyncio.Future[Outcome] | None = None

    def done(self, outcome: Outcome) -> None:
        """Tells whoever waits; nobody does if the send was cancelled meanwhile."""
        answer = self.answer
        if answer is not None and not answer.done():
            self.answer = None
            answer.set_result(outcome)


@dataclass(slots=True)
class Lane:
    """The messages for one queue, in order."""

    queue: MessageQueue
    shown: MessageQueue
    """The queue as the user calls it: without a namespace."""
    route: Route
    address: str
    frames: SendFrames
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


def receipts_of(
    load: list[Parcel], shown: MessageQueue, status: str, ids: list[str], first_offset: int
) -> list[list[Receipt] | Receipt]:
    """The outcome for each parcel of a load that was stored: a broker gives the ids in order and the first offset."""
    if len(load) == 1 and load[0].batch_ids:
        parcel = load[0]
        return [
            [
                Receipt(status, unique_id, _at(ids, n), shown, first_offset + n, parcel.why, parcel.attempts)
                for n, unique_id in enumerate(parcel.batch_ids)
            ]
        ]
    return [
        Receipt(status, parcel.unique_id, _at(ids, n), shown, first_offset + n, parcel.why, parcel.attempts)
        for n, parcel in enumerate(load)
    ]


def _at(ids: list[str], number: int) -> str:
    return ids[number] if number < len(ids) else ""


def _size(parcel: Parcel) -> int:
    """Its length in a batch."""
    entry = parcel.entry
    return len(entry.body) + len(entry.properties) + 22
