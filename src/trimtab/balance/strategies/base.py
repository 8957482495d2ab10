"""What every strategy is: a name, and a function from a view to my share."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from trimtab.errors import AllocationError
from trimtab.model import MessageQueue


@runtime_checkable
class Strategy(Protocol):
    """Who gets what, decided by every member alone from the same view.

    `queues` and `members` come sorted as Java sorts them (`balance.order`); a strategy does not sort again. The same arguments always
    give the same share, in every process.
    """

    @property
    def name(self) -> str:
        """As options, logs and reports call it."""

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> tuple[MessageQueue, ...]:
        """My share of the queues. Nothing if I am not a member."""


def is_member(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> bool:
    """The checks all strategies share: whether there is anything to decide for me."""
    if not me:
        raise AllocationError("a share was asked for an empty client id; give the client an id")
    if not queues:
        raise AllocationError(f"a share was asked for {me} without any queue; look at the topic's route")
    if not members:
        raise AllocationError(f"a share was asked for {me} without any member; ask a broker for the group's")
    return me in members
