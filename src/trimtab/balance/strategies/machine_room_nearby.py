"""MACHINE_ROOM_NEARBY: queues stay in the room where there are members, and are shared by all where there are none."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from trimtab.balance.order import name_key
from trimtab.balance.strategies.base import Strategy, is_member
from trimtab.errors import AllocationError
from trimtab.model import MessageQueue


class Rooms(Protocol):
    """Tells where somebody is. An empty answer is an error, since no queue may be forgotten."""

    def of_queue(self, queue: MessageQueue) -> str:
        """The room of the queue's broker."""

    def of_member(self, client_id: str) -> str:
        """The room of a member."""


class MachineRoomNearby:
    """Another strategy, applied within my room and to the rooms without any member."""

    def __init__(self, within: Strategy, rooms: Rooms) -> None:
        self._within = within
        self._rooms = rooms

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self._within.name}"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> tuple[MessageQueue, ...]:
        if not is_member(me, queues, members):
            return ()
        queues_in: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        members_in: defaultdict[str, list[str]] = defaultdict(list)
        for queue in queues:
            queues_in[_known(self._rooms.of_queue(queue), f"queue {queue}")].append(queue)
        for member in members:
            members_in[_known(self._rooms.of_member(member), f"member {member}")].append(member)
        here = self._rooms.of_member(me)
        mine: list[MessageQueue] = []
        if here in queues_in:
            mine += self._within.allocate(group, me, queues_in.pop(here), members_in[here])
        for room in sorted(queues_in, key=name_key):
            if room not in members_in:
                mine += self._within.allocate(group, me, queues_in[room], members)
        return tuple(mine)


def _known(room: str, whose: str) -> str:
    if not room:
        raise AllocationError(
            f"no machine room for {whose}; the rooms given to MACHINE_ROOM_NEARBY must know all"
        )
    return room
