"""AVG_BY_CIRCLE: the queues are dealt like cards."""

from collections.abc import Sequence

from trimtab.balance.strategies.base import is_member
from trimtab.model import MessageQueue


class ByCircle:
    """Every member takes the queue at its own place, and every `members`-th after it."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self,
        group: str,  # noqa: ARG002
        me: str,
        queues: Sequence[MessageQueue],
        members: Sequence[str],
    ) -> tuple[MessageQueue, ...]:
        if not is_member(me, queues, members):
            return ()
        return tuple(queues[members.index(me) :: len(members)])
