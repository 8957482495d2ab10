"""Some of a group's queues, at a byte each. PURE.

A member that looks for a free queue has in time asked for all of them, and most were refused. Sets of them would take fifty times more, for each
member, and every copy of one as long as a look through all queues.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import compress

from trimtab.balance.known_queues import known
from trimtab.model import MessageQueue


class Marks(AbstractSet[MessageQueue]):
    """A set of queues out of one tuple; others are never in it."""

    __slots__ = ("_places", "by_place", "queues")

    def __init__(self, queues: tuple[MessageQueue, ...] = (), marked: Iterable[MessageQueue] = ()) -> None:
        self.queues = queues
        self._places = known(queues).places
        self.by_place = bytearray(len(queues))
        """1 for a queue that is marked, in the order of the tuple."""
        self.add(marked)

    def __contains__(self, queue: object) -> bool:
        at = self._places.get(queue)  # type: ignore[call-overload]
        return at is not None and self.by_place[at] == 1

    def __iter__(self) -> Iterator[MessageQueue]:
        return compress(self.queues, self.by_place)

    def __len__(self) -> int:
        return self.by_place.count(1)

    @classmethod
    def _from_iterable(cls, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:  # type: ignore[override]
        return frozenset(queues)

    def add(self, queues: Iterable[MessageQueue]) -> None:
        """Marks these."""
        self._set(queues, 1)

    def discard(self, queues: Iterable[MessageQueue]) -> None:
        """These are marked no more."""
        self._set(queues, 0)

    def _set(self, queues: Iterable[MessageQueue], mark: int) -> None:
        by_place, place_of = self.by_place, self._places.get
        for at in map(place_of, queues):
            if at is not None:
                by_place[at] = mark

    def clear(self) -> None:
        """Nothing is marked any more."""
        self.by_place = bytearray(len(self.queues))

    def as_now(self) -> "Marks":
        """The same marks; they stay as they are when these change."""
        found = object.__new__(Marks)
        found.queues, found._places, found.by_place = self.queues, self._places, self.by_place[:]
        return found

    def without(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Those of these queues that are not marked, in their order."""
        by_place, places = self.by_place, self._places
        return [queue for queue in queues if (at := places.get(queue)) is None or not by_place[at]]
