"""MACHINE_ROOM: only queues of brokers in chosen rooms, where a broker is called `room@name`."""

from collections.abc import Iterable, Sequence

from trimtab.balance.strategies.base import is_member
from trimtab.model import MessageQueue


class ByMachineRoom:
    """Pages over the queues of the rooms; the odd ones, from the end, go to the first members. Other queues go to nobody."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self,
        group: str,  # noqa: ARG002
        me: str,
        queues: Sequence[MessageQueue],
        members: Sequence[str],
    ) -> tuple[MessageQueue, ...]:
        if not is_member(me, queues, members):
            return ()
        near = [queue for queue in queues if _room(queue.broker_name) in self._rooms]
        index = members.index(me)
        page, odd = divmod(len(near), len(members))
        mine = near[index * page : (index + 1) * page]
        if index < odd:
            mine.append(near[page * len(members) + index])
        return tuple(mine)


def _room(broker_name: str) -> str | None:
    """What stands before the one `@`. Java's split drops empty parts at the end, so `room@b@@` counts and `room@` does not."""
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None
