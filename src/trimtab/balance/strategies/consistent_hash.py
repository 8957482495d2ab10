"""CONSISTENT_HASH: a ring of virtual nodes; few moves, uneven shares."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from hashlib import md5

from trimtab.balance.order import java_form
from trimtab.balance.strategies.base import is_member
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue

VIRTUAL_NODES = 10


class ConsistentHash:
    """A queue belongs to the member of the first node at or behind its own place on the ring."""

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 0:
            raise SettingsError(
                f"virtual_nodes is {virtual_nodes}; a member has 0 or more places on the ring"
            )
        self._virtual_nodes = virtual_nodes

    def allocate(
        self,
        group: str,  # noqa: ARG002
        me: str,
        queues: Sequence[MessageQueue],
        members: Sequence[str],
    ) -> tuple[MessageQueue, ...]:
        if not is_member(me, queues, members):
            return ()
        ring = self._ring(members)
        places = sorted(ring)
        if not places:
            return ()
        return tuple(
            queue
            for queue in queues
            if ring[places[bisect_left(places, _place(java_form(queue))) % len(places)]] == me
        )

    def _ring(self, members: Sequence[str]) -> dict[int, str]:
        """Who is at which place. A member named twice goes on counting where it stopped; the last one takes a contested place."""
        ring: dict[int, str] = {}
        nodes: Counter[str] = Counter()
        for member in members:
            first = nodes[member]
            for number in range(first, first + self._virtual_nodes):
                place = _place(f"{member}-{number}")
                if place in ring:
                    nodes[ring[place]] -= 1
                ring[place] = member
                nodes[member] += 1
        return ring


def _place(key: str) -> int:
    """The first four bytes of MD5, which Java takes; a lone surrogate is a question mark to it."""
    return int.from_bytes(md5(key.encode(errors="replace"), usedforsecurity=False).digest()[:4])
