"""What follows from a group's queues alone, remembered for as long as they are the same tuple. PURE.

The same tuple comes again and again, many times a second. It is known by identity, since hashing ten thousand queues takes long.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import Final

from trimtab.model import MessageQueue

REMEMBERED_TUPLES_MAX: Final = 4
REMEMBERED_PLACES_MAX: Final = 1 << 24
"""In all orders of one tuple together."""


class KnownQueues:
    """Queues with their places, and with the orders in which members like them."""

    __slots__ = ("_numbers", "_orders", "_places_in_turn", "has_one_topic", "places", "queues")

    def __init__(self, queues: tuple[MessageQueue, ...]) -> None:
        self.queues = queues
        self.places: Mapping[MessageQueue, int] = {queue: at for at, queue in enumerate(queues)}
        self.has_one_topic = len({queue.topic for queue in queues}) == 1
        self._places_in_turn = list(range(len(queues)))
        self._numbers: list[int] | None = None
        self._orders: dict[int, tuple[int, ...]] = {}

    def ordered(self, by: int, number_of: Callable[[MessageQueue], int]) -> tuple[int, ...]:
        """Their places, sorted by the numbers of the queues, each crossed with `by`. Numbers never change."""
        order = self._orders.get(by)
        if order is None:
            if self._numbers is None:
                self._numbers = [number_of(queue) for queue in self.queues]
            crossed = [number ^ by for number in self._numbers]
            order = tuple(sorted(self._places_in_turn, key=crossed.__getitem__))
            if (len(self._orders) + 1) * len(order) > REMEMBERED_PLACES_MAX and self._orders:
                del self._orders[next(iter(self._orders))]
            self._orders[by] = order
        return order


_last: deque[KnownQueues] = deque(maxlen=REMEMBERED_TUPLES_MAX)


def known(queues: tuple[MessageQueue, ...]) -> KnownQueues:
    """What is known of this tuple."""
    for one in _last:
        if one.queues is queues:
            return one
    found = KnownQueues(queues)
    _last.append(found)
    return found


def all_of(topics: Collection[tuple[MessageQueue, ...]]) -> tuple[MessageQueue, ...]:
    """The queues of all topics; those of a single one stay the very tuple by which others know them."""
    return tuple(chain.from_iterable(topics)) if len(topics) != 1 else next(iter(topics))
