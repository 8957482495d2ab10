"""Who holds which queue, as far as one member can tell. PURE.

Brokers or the other members tell it now and then, a part at a time; of its own queues a member knows best. Two things follow from what is
told. A queue is *owed* to a member that is away and waited for, and for a moment to one that has just given it up, since that one may be on its
way out: a restart is not a change of membership, so nobody else should want it.
And a queue that nobody has held for a while *waits*: members that see different things may each have left it to another one.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final

from trimtab.balance.marks import Marks
from trimtab.model import MessageQueue

WAITS_AFTER_MS: Final = 3_000
"""So long a queue must have been seen with nobody before it is for whoever gets its lease first."""
GIVING_UP_MS: Final = 1_000
"""So long a queue is still counted as of the member that gave it up: its goodbye may not have come yet."""
LOOK_AGAIN_MS: Final = 1_000
FRESH_MS: Final = 6_000
"""What was told longer ago says nothing about the time since."""
_NEVER_MS: Final = 2**62

Told = Mapping[str, Mapping[MessageQueue, str]]
"""By broker name, who holds what there. A broker that told nothing is not in it."""


class Holders:
    """See the module's own words."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._queues: tuple[MessageQueue, ...] = ()
        self._last: dict[MessageQueue, str] = {}
        """Who held a queue when somebody was last known to hold it."""
        self._unheld_ms: dict[MessageQueue, int] = {}
        """Since when nobody holds a queue, of those that nobody does."""
        self._owed: set[MessageQueue] = set()
        self._asked = Marks()
        """What this member asked for in this life: a lease in its name on another queue is from a former one, and its own."""
        self._counted: AbstractSet[str] = frozenset()
        self._known: Mapping[MessageQueue, str] | None = None
        self._known_until_ms = 0
        self._told_ms: dict[str, int] = {}
        """By broker, when it was last told who holds what there."""

    def known(self, now_ms: int) -> Mapping[MessageQueue, str] | None:
        """Who holds what, and what is owed to whom; None while nobody can tell."""
        if not self._told_ms:
            return None
        if self._known is None or now_ms >= self._known_until_ms:
            self._known = MappingProxyType(
                {queue: member for queue, member in self._last.items() if self._is_of(queue, member, now_ms)}
            )
            ends = [since_ms + GIVING_UP_MS for since_ms in self._unheld_ms.values()]
            self._known_until_ms = min((end_ms for end_ms in ends if end_ms > now_ms), default=_NEVER_MS)
        return self._known

    def _is_of(self, queue: MessageQueue, last: str, now_ms: int) -> bool:
        since_ms = self._unheld_ms.get(queue)
        if since_ms is None or queue in self._owed:
            return True
        return now_ms - since_ms < GIVING_UP_MS and last in self._counted and last != self._me

    def waiting(self, now_ms: int) -> frozenset[MessageQueue]:
        """Queues that nobody held for a while and that are owed to nobody."""
        return frozenset(
            queue
            for queue, since_ms in self._unheld_ms.items()
            if now_ms - since_ms >= WAITS_AFTER_MS and queue not in self._owed
        )

    @property
    def look_again_ms(self) -> int | None:
        """When it is to be asked again who holds what, because nobody holds some queue."""
        if not self._told_ms or self._unheld_ms.keys() <= self._owed:
            return None
        return max(self._told_ms.values()) + LOOK_AGAIN_MS

    def on_queues(self, queues: tuple[MessageQueue, ...]) -> None:
        """The group's queues; nothing of others is kept."""
        if queues is self._queues:
            return
        self._queues = queues
        there = frozenset(queues)
        for gone in [queue for queue in self._last.keys() | self._unheld_ms.keys() if queue not in there]:
            self._last.pop(gone, None)
            self._unheld_ms.pop(gone, None)
        self._owed &= there
        self._asked = Marks(queues, self._asked)
        self._known = None

    def on_told(self, told: Told, mine: Iterable[MessageQueue], now_ms: int) -> None:
        """What brokers or members say; `mine` is what this member has to do with now."""
        if not told:
            return
        own = frozenset(mine)
        self._known = None
        fresh = {name for name, at_ms in self._told_ms.items() if now_ms - at_ms <= FRESH_MS}
        for queue in self._queues:
            name = queue.broker_name
            if name not in told or queue in own:
                continue
            holder = told[name].get(queue)
            if holder is not None and (holder != self._me or queue not in self._asked):
                self._note(queue, holder)
            elif queue not in self._unheld_ms or name not in fresh:
                self._unheld_ms[queue] = now_ms
        self._told_ms.update(dict.fromkeys(told, now_ms))

    def on_members(self, present: AbstractSet[str], counted: AbstractSet[str]) -> None:
        """Who is there, and who is counted though it is away."""
        owed = {
            queue
            for queue in self._unheld_ms
            if (last := self._last.get(queue)) in counted and (last not in present or queue in self._owed)
        }
        if owed != self._owed or (counted is not self._counted and counted != self._counted):
            self._owed, self._counted, self._known = owed, counted, None

    def asked(self, queues: Iterable[MessageQueue]) -> None:
        """Their leases are asked for: one in this member's name is no longer from a former life."""
        self._asked.add(queues)

    def took(self, queue: MessageQueue) -> None:
        """The queue is this member's own."""
        self._note(queue, self._me)
        self._known = None

    def left(self, queue: MessageQueue, now_ms: int) -> None:
        """The queue is given up by this member."""
        if self._last.get(queue) == self._me:
            self._unheld_ms.setdefault(queue, now_ms)
            self._known = None

    def _note(self, queue: MessageQueue, holder: str) -> None:
        self._last[queue] = holder
        self._unheld_ms.pop(queue, None)
        self._owed.discard(queue)
