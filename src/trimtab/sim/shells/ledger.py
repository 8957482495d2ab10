"""What happened on a stage: who held which queue, what was delivered to whom, and whether a promise was broken.

Members tell of their holdings through the callbacks that every user has. The proof that no queue is held twice comes from the handlers: once another
member has started a handler for messages of a queue, the former holder must be assigned the queue anew before it starts one.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from traceback import format_exception
from typing import Any, Final, NamedTuple

from trimtab.model import MessageQueue

REMEMBERED_LINES_MAX: Final = 2_000
SHOWN_LINES: Final = 25


class Tenure(NamedTuple):
    """One time that a member has a queue."""

    member: str
    number: int


class Ledger:
    """See the module's own words."""

    def __init__(self, topic: str, passed_s: Callable[[], float]) -> None:
        self.sent: dict[bytes, None] = {}
        """What brokers acknowledged."""
        self.got: Counter[bytes] = Counter()
        """Handlers that were started, by message."""
        self.handled: set[bytes] = set()
        self.broken: list[str] = []
        self.moved = 0
        self.held_twice = 0
        """How often a member was assigned a queue that another one had; after a pause or a partition the other may not know yet."""
        self.lines: deque[str] = deque(maxlen=REMEMBERED_LINES_MAX)
        self._topic = topic
        self._passed_s = passed_s
        self._digest = blake2b(digest_size=8)
        self._holders: defaultdict[MessageQueue, dict[str, None]] = defaultdict(dict)
        self._last: dict[MessageQueue, str] = {}
        self._tenures: Counter[tuple[MessageQueue, str]] = Counter()
        self._reigning: dict[MessageQueue, Tenure] = {}
        self._over: defaultdict[MessageQueue, set[Tenure]] = defaultdict(set)

    # --- holdings ---------------------------------------------------------------------------------------------

    def took(self, member: str, queues: Iterable[MessageQueue]) -> None:
        """The member was assigned these."""
        for queue in queues:
            holders = self._holders[queue]
            self.held_twice += bool(holders)
            self.moved += queue.topic == self._topic and self._last.get(queue, member) != member
            self._last[queue] = member
            holders[member] = None
            self._tenures[queue, member] += 1
            self.note(member, f"takes {queue}")

    def left(self, member: str, queues: Iterable[MessageQueue]) -> None:
        """It has them no more."""
        for queue in queues:
            if self._holders[queue].pop(member, 0) is None:
                self.note(member, f"leaves {queue}")

    def gone(self, member: str) -> None:
        """Its process is dead or stands still."""
        self.left(member, [queue for queue, holders in self._holders.items() if member in holders])

    def shares(self, *, with_retries: bool) -> Counter[str]:
        """How many queues each member has, of those that one has; of the topic, or also of those whose messages come again."""
        return Counter(
            next(iter(holders))
            for queue, holders in self._holders.items()
            if len(holders) == 1 and (with_retries or queue.topic == self._topic)
        )

    # --- messages ---------------------------------------------------------------------------------------------

    def starting(self, member: str, queue: MessageQueue, body: bytes) -> None:
        """A handler starts with a message."""
        self.got[body] += 1
        self.note(member, f"handles {body.decode()} of {queue}")
        self._holders[queue].setdefault(member, None)
        tenure = Tenure(member, self._tenures[queue, member])
        before = self._reigning.get(queue)
        if before == tenure:
            return
        if tenure in self._over[queue]:
            self._break(f"{queue} is held twice: by {member} and by {before.member if before else '?'}")
        if before is not None:
            self._over[queue].add(before)
        self._reigning[queue] = tenure

    @property
    def delivered_twice(self) -> int:
        """Deliveries beyond the first of each message."""
        return sum(count - 1 for count in self.got.values())

    @property
    def lost(self) -> int:
        """Messages that brokers acknowledged and no handler finished."""
        return sum(body not in self.handled for body in self.sent)

    # --- the trace --------------------------------------------------------------------------------------------

    def note(self, who: str, what: str) -> None:
        """A line of the trace."""
        line = f"{self._passed_s():10.6f} s  {who}: {what}"
        self.lines.append(line)
        self._digest.update(line.encode())

    @property
    def digest(self) -> str:
        """Equal for equal traces."""
        return self._digest.hexdigest()

    def failed(self, what: Mapping[str, Any]) -> None:
        """Something raised where nobody looks; that is nobody's promise, and must not pass by unseen."""
        error = what.get("exception")
        trace = "".join(format_exception(error)) if isinstance(error, BaseException) else ""
        self._break(f"{what.get('message')}\n{trace}")

    def _break(self, what: str) -> None:
        last = "\n".join(f"  {line}" for line in list(self.lines)[-SHOWN_LINES:])
        self.broken.append(f"after {self._passed_s():.3f} s: {what}\n{last}")
