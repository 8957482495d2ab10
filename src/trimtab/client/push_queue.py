"""One queue that a push consumer holds: what was pulled of it, what is at work, whether it was given up."""

import asyncio
from collections import deque
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from trimtab.balance.ordered import QueueLock
from trimtab.balance.progress import Load, Piece, Progress
from trimtab.client.pulls_values import Pulled
from trimtab.client.push_stats import Counts
from trimtab.client.received import Received
from trimtab.model import MessageQueue

if TYPE_CHECKING:
    from trimtab.client.pulls import QueuePulls

NOT_STARTED = -1


class Source:
    """One answer to a pull, whose room is given back when the last of so many pieces is done with."""

    __slots__ = ("left", "pulled")

    def __init__(self, pulled: Pulled, pieces: int) -> None:
        self.pulled = pulled
        self.left = pieces

    def let_go(self) -> None:
        """One piece of it is done with."""
        self.left -= 1
        if self.left <= 0:
            self.pulled.release()


class Work(Piece, eq=False, gc=False):
    """Messages for one call of the handler.

    `gc=False` takes it off the garbage collector's list, which thousands of them would make long: a queue that is let go forgets its work,
    so no cycle of the two is left to be found.
    """

    held: "HeldQueue"
    among: list[Received]
    """All that came with them; a list of its own for each piece would make the garbage collector's list long again."""
    at: int
    """Where they begin in it."""
    source: Source
    started_ms: int = NOT_STARTED
    task: "asyncio.Task[None] | None" = None
    """Who runs the handler, while it runs."""

    @property
    def received(self) -> list[Received]:
        """The messages."""
        return self.among[self.at : self.at + self.messages]


class HeldQueue:
    """See the module's own words."""

    def __init__(
        self, queue: MessageQueue, offset: int, load: Load, lock: QueueLock | None, counts: Counts
    ) -> None:
        self.queue = queue
        self.began_offset = offset
        self.progress: Progress[Work] = Progress(offset, load)
        self.lock = lock
        self.counts = counts
        """Of its topic."""
        self.pulls: QueuePulls | None = None
        self.is_dropped = False
        self.is_leaving = False
        """No handler is started any more; what the one at work says still counts."""
        self.why_held_back: str | None = None
        """Why it is not pulled now, if flow control says so."""
        self.set_offset: int | None = None
        """What to store instead of the progress, after the offset was set elsewhere."""
        self.stored_offset: int | None = None
        """What was stored last."""
        self.running = 0
        """Handlers at work, and what follows from their outcome until it is settled."""
        self._who_waits: list[asyncio.Future[None]] = []
        self.waiting: deque[Work] = deque()
        """Ordered consumption: what comes next, in order. Leased mode: what waits for the lease to be trusted again."""
        self.server: asyncio.Task[int] | None = None
        """Ordered consumption: who takes care of `waiting`."""
        self.turn = asyncio.Lock()
        """Ordered consumption: held while the handler is at work."""
        self.unlock_tries = 0
        self.consumed_ms = 0
        """When a handler last came back, in monotonic time; 0 for never."""

    def __repr__(self) -> str:
        return f"<HeldQueue {self.queue} {self.progress!r} running={self.running}{' dropped' if self.is_dropped else ''}>"

    @property
    def offset_to_store(self) -> int:
        """Where the group would go on if we were gone: everything below has been handled."""
        return self.progress.safe_offset if self.set_offset is None else self.set_offset

    def begin_work(self) -> None:
        """A handler begins; `end_work` follows when its outcome is settled."""
        self.running += 1

    def end_work(self) -> None:
        """What a handler said is settled."""
        self.running -= 1
        if not self.running and self._who_waits:
            who_waits, self._who_waits = self._who_waits, []
            for waiter in who_waits:
                if not waiter.done():
                    waiter.set_result(None)

    def is_handled_by(self, task: "asyncio.Task[Any]") -> bool:
        """Whether this task runs a handler of the queue."""
        at_work = self.progress.oldest(self.progress.messages)
        return self.server is task or any(work.task is task for work in at_work)

    async def at_rest(self) -> None:
        """Back when no handler is at work, and what failed was given back."""
        while self.running:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._who_waits.append(waiter)
            await waiter

    def take_in(self, pulled: Pulled, batch_messages_max: int) -> list[Work]:
        """The work that an answer brings."""
        received = pulled.messages
        calls = ceil(len(received) / batch_messages_max)
        source = Source(pulled, calls)
        if batch_messages_max == 1:
            work = self._one_by_one(received, source)
        else:
            work = self._by_batches(received, source, batch_messages_max)
        if not work:
            pulled.release()
        self.progress.add(work)
        self.progress.passed(pulled.next_offset)
        return work

    def _one_by_one(self, received: list[Received], source: Source) -> list[Work]:
        work = []
        for at, message in enumerate(received):
            stored = message.stored
            offset = stored.queue_offset
            work.append(Work(offset, offset, 1, stored.stored_body_bytes, self, received, at, source))
        return work

    def _by_batches(self, received: list[Received], source: Source, batch_messages_max: int) -> list[Work]:
        work = []
        for at in range(0, len(received), batch_messages_max):
            some = received[at : at + batch_messages_max]
            size_bytes = sum([message.stored.stored_body_bytes for message in some])
            first, last = some[0].stored.queue_offset, some[-1].stored.queue_offset
            work.append(Work(first, last, len(some), size_bytes, self, received, at, source))
        return work

    def finish(self, work: Work) -> None:
        """The messages are done with, whatever came of them."""
        if not work.is_done:
            self.progress.finish(work)
            work.source.let_go()

    def keep(self, work: Work, left: list[Received]) -> None:
        """Only these messages of the work are left to be handled, again."""
        work.among, work.at = left, 0
        size_bytes = sum(message.stored.stored_body_bytes for message in left)
        self.progress.shrink(work, left[0].queue_offset, len(left), size_bytes)

    def go_back(self, offset: int) -> None:
        """The broker has nothing from this offset on: what was pulled from there is forgotten, and reading goes on there."""
        for work in self.progress.rewind(offset):
            work.source.let_go()
        self.waiting = deque(work for work in self.waiting if not work.is_done)
        self.began_offset = min(self.began_offset, offset)

    def leave(self) -> None:
        """It will be given up when the handler at work has ended."""
        self.is_leaving = True
        if self.pulls is not None:
            self.pulls.drop()

    def drop(self) -> None:
        """It is no longer ours: no pull, no handler, and what handlers at work say does not count any more."""
        self.is_dropped = True
        self.leave()

    def forget(self) -> None:
        """Lets everything go that was pulled."""
        for work in self.progress.clear():
            work.source.let_go()
        self.waiting.clear()


@dataclass(frozen=True, slots=True)
class HeldNow:
    """One queue that a consumer holds, as it stands."""

    queue: MessageQueue
    offset: int
    """Everything below has been handled."""
    waiting_messages: int
    """Pulled, and handled or being handled not to the end."""
    since_ms: int
    """For how long it is held."""
