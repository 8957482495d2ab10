"""Natural batching: while a request for a queue is on its way, further messages for that queue gather and leave together.

No message waits for company: with nothing on its way it leaves at once. What gathers meanwhile leaves as one batch when the
answer comes, so the busier a queue, the larger its batches. Order within a queue is the order of the sends. A message that
cannot be part of a batch (delayed, compressed, half of a transaction, for a retry topic) leaves alone, in its turn.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol, TypeAlias

import msgspec

from trimtab.client.routes import Route
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.wire.batch import ENTRY_BYTES_MIN
from trimtab.wire.codes import RequestCode
from trimtab.wire.send_frames import SendFrames

EXTENSION_S_MIN = 0.1

Outcome: TypeAlias = list[Receipt] | Receipt | Exception
"""What became of a parcel: a receipt, for an explicit batch one for each message, or an error."""


class Parcel(msgspec.Struct, gc=False, eq=False):
    """One message ready to leave, or an explicit batch of them, which nothing else joins.

    The garbage collector need not look at it: the cycle with whoever waits for the answer ends with the answer.
    """

    topic: str
    """As it goes on the wire."""
    body: bytes
    properties: bytes
    flag: int
    message: Message
    unique_id: str
    born_ms: int
    sys_flag: int = 0
    is_batchable: bool = True
    code: int = RequestCode.SEND_MESSAGE_V2
    batch_ids: tuple[str, ...] = ()
    """The ids of an explicit batch's messages."""
    pieces: Sequence[bytes] = ()
    """The body of an explicit batch, which is put together in the request and nowhere else: it may be large."""
    pieces_bytes: int = 0
    batch: tuple[Message, ...] = ()
    """The messages of an explicit batch."""
    deadline: float = 0.0
    """In the loop's time; a parcel that has not left by then never leaves."""
    deadline_last: float = 0.0
    """The end of the send: until then a try may go on, beyond its own deadline, while its broker answers others."""
    may_go_elsewhere: bool = False
    """Whether another broker could take it: then it does not wait for one that is being dialled again."""
    why: str = ""
    attempts: int = 0
    answer: asyncio.Future[Outcome] | None = None
    is_withdrawn: bool = False
    """Its send was cancelled before it left."""

    @property
    def body_bytes(self) -> int:
        """How long its body is, or that of the whole batch."""
        return self.pieces_bytes or len(self.body)

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody still waits to hear of it."""
        return self.answer is not None and not self.answer.done()

    def done(self, outcome: Outcome) -> None:
        """Tells whoever waits; nobody does if the send was cancelled meanwhile."""
        answer = self.answer
        if answer is not None and not answer.done():
            self.answer = None
            answer.set_result(outcome)


class Waker(Protocol):
    """The load of a lane that is on its way: it looks after the deadlines of those that wait behind it too."""

    wakes_at: float

    def wake_at(self, when: float) -> None:
        """Looks at the deadlines then, in the loop's time."""


@dataclass(slots=True)
class Lane:
    """The messages for one queue, in order."""

    queue: MessageQueue
    shown: MessageQueue
    """The queue as the user calls it: without a namespace."""
    route: Route
    address: str
    frames: SendFrames
    load_bytes_max: int
    """Of several messages that leave together: less than was asked for after a broker refused a longer load."""
    waiting: deque[Parcel] = field(default_factory=deque)
    is_in_order: bool = True
    """Whether those that wait have ascending deadlines. A second try, or one of several tries, has less time than a newcomer."""
    withdrawn: int = 0
    """How many of those that wait will never leave."""
    is_busy: bool = False
    waker: Waker | None = None

    def put(self, parcel: Parcel) -> None:
        """One more waits."""
        waiting = self.waiting
        if not waiting:
            self.is_in_order = True
        elif parcel.deadline < waiting[-1].deadline:
            self.is_in_order = False
        waiting.append(parcel)

    def put_back(self, load: Iterable[Parcel], bytes_max: int) -> None:
        """A load that was not stored leaves again, in shorter loads, before those that came after it; without those whom nobody waits for."""
        self.load_bytes_max = bytes_max
        self.waiting.extendleft(reversed([parcel for parcel in load if parcel.is_waited_for]))
        self.is_in_order = False

    def withdraw(self, parcel: Parcel) -> None:
        """It never leaves, if it has not left. It is taken out with others, so that a thousand of them are not looked for one by one."""
        parcel.is_withdrawn = True
        self.withdrawn += 1
        if self.withdrawn * 2 > len(self.waiting):
            self.waiting = deque([one for one in self.waiting if not one.is_withdrawn])
            self.withdrawn = 0

    def earliest_deadline(self) -> float:
        """When the first of those that wait will have waited too long."""
        if not self.waiting:
            return float("inf")
        if self.is_in_order:
            return self.waiting[0].deadline
        return min([parcel.deadline for parcel in self.waiting])


def extend(lane: Lane, load: Iterable[Parcel], now: float) -> None:
    """The broker is alive: tries that would be given up now have half of the time that is left, on board and behind."""
    for parcel in chain(load, lane.waiting):
        if parcel.deadline <= now < parcel.deadline_last:
            left_s = parcel.deadline_last - now
            parcel.deadline = now + left_s / 2 if left_s > EXTENSION_S_MIN else parcel.deadline_last
            lane.is_in_order = False


def overdue(lane: Lane, now: float) -> list[Parcel]:
    """Takes out the parcels that waited too long, wherever they stand."""
    if lane.earliest_deadline() > now:
        return []
    late = [parcel for parcel in lane.waiting if parcel.deadline <= now]
    lane.waiting = deque([parcel for parcel in lane.waiting if parcel.deadline > now])
    return late


def next_load(waiting: deque[Parcel], messages_max: int, bytes_max: int) -> list[Parcel]:
    """Takes out what leaves next: one message, or as many as may travel together; nothing if all were withdrawn."""
    load: list[Parcel] = []
    size = seen = 0
    for parcel in waiting:
        if not parcel.is_withdrawn:
            size += ENTRY_BYTES_MIN + len(parcel.body) + len(parcel.properties)
            if load and (size > bytes_max or not parcel.is_batchable or len(load) == messages_max):
                break
            load.append(parcel)
            if not parcel.is_batchable:
                messages_max = 1
        seen += 1
    if seen == len(waiting):
        waiting.clear()
    else:
        for _ in range(seen):
            waiting.popleft()
    return load


def load_bytes(load: Iterable[Parcel]) -> int:
    """How long a load is as one batch."""
    return sum([ENTRY_BYTES_MIN + len(parcel.body) + len(parcel.properties) for parcel in load])


def receipts_of(
    load: list[Parcel], shown: MessageQueue, status: str, ids: list[str], first_offset: int
) -> list[list[Receipt] | Receipt]:
    """The outcome for each parcel of a load that was stored: a broker gives the ids in order and the first offset."""
    batch_ids = load[0].batch_ids
    missing = (len(batch_ids) or len(load)) - len(ids)
    if missing > 0:
        ids = ids + [""] * missing  # what a broker gives no id for is stored all the same
    if batch_ids:
        (parcel,) = load
        why, attempts = parcel.why, parcel.attempts
        return [
            [
                Receipt(status, unique_id, ids[n], shown, first_offset + n, why, attempts)
                for n, unique_id in enumerate(batch_ids)
            ]
        ]
    return [
        Receipt(status, parcel.unique_id, ids[n], shown, first_offset + n, parcel.why, parcel.attempts)
        for n, parcel in enumerate(load)
    ]
