"""AVG, the stock default: pages of near equal size in the sorted order."""

from collections.abc import Sequence

from trimtab.balance.strategies.base import is_member
from trimtab.model import MessageQueue


class Averagely:
    """Cuts the sorted queues into one page a member; the first `queues mod members` pages have one more."""

    name = "AVG"

    def allocate(
        self,
        group: str,  # noqa: ARG002
        me: str,
        queues: Sequence[MessageQueue],
        members: Sequence[str],
    ) -> tuple[MessageQueue, ...]:
        if not is_member(me, queues, members):
            return ()
        index = members.index(me)
        page, odd = divmod(len(queues), len(members))
        start = index * page + min(index, odd)
        return tuple(queues[start : start + page + (index < odd)])
