"""What a member does with the queues that it reads: pull, hand out to handlers that take time, keep the offset.

The same for both modes, as in the real client: `Progress` says how far a queue has come, the machine is asked before every handler that is started.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trimtab.balance.progress import FlowLimits, Load, Piece, Progress, why_to_hold
from trimtab.model import MessageQueue

if TYPE_CHECKING:
    from trimtab.sim.member import SimMember

PULL_AGAIN_MS: Final = 30_000
LIMITS: Final = FlowLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How a member handles messages."""

    handler_ms: int = 20
    """For one message."""
    concurrency: int = 8
    batch_messages: int = 1
    """For one call of a handler."""
    pull_gap_ms: int = 0
    """So long a broker lets messages gather before it answers a pull; for runs over hours."""


class Held:
    """One queue that is read."""

    __slots__ = (
        "began_offset", "is_dropped", "is_held_back", "is_leaving", "leaving_since_ms", "progress", "pulled_ms", "pulls", "queue", "rest", "running",
        "stored_offset", "waiting", "writing",
    )  # fmt: skip

    def __init__(self, queue: MessageQueue, offset: int, load: Load) -> None:
        self.queue = queue
        self.began_offset = offset
        self.progress: Progress[Piece] = Progress(offset, load)
        self.is_dropped = False
        self.is_leaving = False
        self.leaving_since_ms: int | None = None
        self.is_held_back = False
        self.running = 0
        self.waiting: list[Piece] = []
        """What waits for the lease to be trusted again."""
        self.rest: list[Callable[[], object]] = []
        self.stored_offset: int | None = None
        self.writing = 0
        self.pulls = 0
        self.pulled_ms = 0


class Reader:
    """All queues of one member."""

    def __init__(
        self, member: "SimMember", handling: Handling, may_start: Callable[[MessageQueue], bool]
    ) -> None:
        self.held: dict[MessageQueue, Held] = {}
        self.slowness = 1.0
        self._member = member
        self._handling = handling
        self._may_start = may_start
        self._load = Load()
        self._line: deque[tuple[Held, Piece]] = deque()
        self._may_wait = False
        """Whether some queue may have pieces that wait for its lease."""
        self._running = 0
        self._is_over = False

    # --- queues -----------------------------------------------------------------------------------------------

    def begin(self, queue: MessageQueue, offset: int) -> None:
        """Reads a queue from there on."""
        if self._is_over:
            return
        held = self.held[queue] = Held(queue, offset, self._load)
        self._pull(held)

    def leave(self, queue: MessageQueue, at_rest: Callable[[], object]) -> None:
        """Pulls no more and starts no handler; calls back when those at work have ended."""
        held = self.held.get(queue)
        if held is None:
            at_rest()
            return
        held.is_leaving, held.leaving_since_ms = True, self._member.now_ms
        if held.running:
            held.rest.append(at_rest)
        else:
            at_rest()

    def drop(self, queue: MessageQueue) -> None:
        """Keeps nothing of it; what handlers at work say does not count any more."""
        held = self.held.pop(queue, None)
        if held is not None:
            held.is_dropped = held.is_leaving = True
            held.progress.clear()
            held.waiting.clear()

    def close(self) -> None:
        """Starts nothing more."""
        self._is_over = True
        for queue in list(self.held):
            self.drop(queue)

    def go_on(self) -> None:
        """Leases may be trusted again: what waited is handed out, before what came after it."""
        for held in self.held.values() if self._may_wait else ():
            if held.waiting and self._may_start(held.queue):
                self._line.extendleft((held, piece) for piece in reversed(held.waiting))
                held.waiting.clear()
        self._may_wait = self._may_wait and any(held.waiting for held in self.held.values())
        self._serve()

    def offset_to_store(self, queue: MessageQueue) -> int | None:
        """Everything below has been handled."""
        held = self.held.get(queue)
        return None if held is None else held.progress.safe_offset

    # --- pulling ----------------------------------------------------------------------------------------------

    def _pull(self, held: Held) -> None:
        if held.is_leaving:
            return
        held.is_held_back = why_to_hold(held.progress, self._load, LIMITS, is_ordered=False) is not None
        if held.is_held_back:
            return
        held.pulls += 1
        held.pulled_ms = self._member.now_ms
        pulls, offset = held.pulls, held.progress.next_offset

        def got(count: int) -> None:
            if not held.is_leaving and pulls == held.pulls:
                self._take_in(held, offset, count)

        self._member.pull(held.queue, offset, got, self._handling.pull_gap_ms)

    def pull_again(self, broker_name: str | None = None) -> None:
        """Pulls that got lost with a connection, or got no answer for too long, are made anew."""
        now_ms = self._member.now_ms
        for held in list(self.held.values()):
            is_stale = now_ms - held.pulled_ms > PULL_AGAIN_MS
            if not held.is_held_back and (held.queue.broker_name == broker_name or is_stale):
                self._pull(held)

    def _take_in(self, held: Held, offset: int, count: int) -> None:
        size = self._handling.batch_messages
        for first in range(offset, offset + count, size):
            last = min(first + size, offset + count) - 1
            piece = Piece(first, last, last - first + 1, 0)
            held.progress.add([piece])
            self._line.append((held, piece))
        self._pull(held)
        self._serve()

    # --- handling ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while self._line and self._running < self._handling.concurrency and not self._is_over:
            held, piece = self._line.popleft()
            if piece.is_done or held.is_leaving:
                continue
            if held.waiting or not self._may_start(held.queue):
                held.waiting.append(piece)
                self._may_wait = True
                continue
            self._start(held, piece)

    def _start(self, held: Held, piece: Piece) -> None:
        member = self._member
        held.running += 1
        self._running += 1
        member.watch.starting(member, held.queue, piece.first, piece.last + 1)
        spread = 0.5 + member.timeline.chance.random()
        handler_ms = max(1, int(self._handling.handler_ms * piece.messages * self.slowness * spread))
        member.after(handler_ms, lambda: self._ended(held, piece))

    def _ended(self, held: Held, piece: Piece) -> None:
        self._member.watch.handled(held.queue, piece.first, piece.last + 1)
        held.running -= 1
        self._running -= 1
        if not held.is_dropped:
            held.progress.finish(piece)
            if held.is_held_back:
                self._pull(held)
        if not held.running and held.rest:
            rest, held.rest = held.rest, []
            for call in rest:
                call()
        self._serve()

    @property
    def is_busy(self) -> bool:
        """Whether a handler is at work."""
        return self._running > 0
