"""`canary`: chosen members take a chosen part of the queues, everybody else the rest; another strategy shares within each part.

Which queues are the canary's follows from the setting and the queues alone. So taking the setting away gives what was there before:
with a plain strategy the very same shares, with `sticky` even shares again in the fewest moves.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import ceil

from trimtab.balance.strategies.base import Strategy, is_member
from trimtab.balance.strategies.places import queue_place
from trimtab.balance.strategies.plans import Plan, Planner, View, follows_load, outsider
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue


@dataclass(frozen=True, slots=True)
class CanarySetting:
    """Who the canaries are and what they get: a part of all queues, or queues named one by one."""

    members: frozenset[str]
    part: float | None = None
    queues: frozenset[MessageQueue] | None = None

    def __post_init__(self) -> None:
        if not self.members:
            raise SettingsError("a canary needs at least one member; take the setting away to end it")
        if (self.part is None) == (self.queues is None):
            raise SettingsError(
                "a canary gets either a part of the queues or named queues; give one of the two"
            )
        if self.part is not None and not 0 < self.part < 1:
            raise SettingsError(f"the canary's part is {self.part}; it lies between 0 and 1")
        if self.queues is not None and not self.queues:
            raise SettingsError("the canary's queues are an empty list; take the setting away to end it")

    def check(self, members: Collection[str], queues: Collection[MessageQueue]) -> None:
        """Refuses a canary that does not fit the group: call it when the setting is made."""
        if strangers := sorted(self.members.difference(members)):
            raise SettingsError(f"canary {', '.join(strangers)} is not in the group of {', '.join(members)}")
        if len(self.members) >= len(members):
            raise SettingsError(
                f"{len(self.members)} canaries in a group of {len(members)}: at least one member must be left"
            )
        if self.queues is not None and (unknown := self.queues.difference(queues)):
            raise SettingsError(
                f"the canary's queue {min(map(str, unknown))} is not among the group's queues"
            )

    def chosen(self, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """The canary's queues, in the order given."""
        if self.queues is not None:
            return [queue for queue in queues if queue in self.queues]
        count = ceil(len(queues) * (self.part or 0))
        first = set(sorted(queues, key=queue_place)[:count])
        return [queue for queue in queues if queue in first]

    def part_of(
        self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> tuple[list[MessageQueue], list[str]]:
        """The queues and members I have to do with. While one side has nobody, the other has everything: no queue starves."""
        canaries = [member for member in members if member in self.members]
        if not canaries or len(canaries) == len(members):
            return list(queues), list(members)
        chosen = self.chosen(queues)
        if me in self.members:
            return chosen, canaries
        theirs = set(chosen)
        others = [member for member in members if member not in self.members]
        return [queue for queue in queues if queue not in theirs], others


class Canary:
    """A canary over a plain strategy."""

    def __init__(self, within: Strategy, setting: CanarySetting) -> None:
        self._within = within
        self._setting = setting

    @property
    def name(self) -> str:
        return f"canary-{self._within.name}"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> tuple[MessageQueue, ...]:
        if not is_member(me, queues, members):
            return ()
        part, ours = self._setting.part_of(me, queues, members)
        return self._within.allocate(group, me, part, ours) if part else ()


class LeasedCanary:
    """A canary over a strategy for leases."""

    def __init__(self, within: Planner, setting: CanarySetting) -> None:
        self._within = within
        self._setting = setting

    @property
    def name(self) -> str:
        return f"canary-{self._within.name}"

    @property
    def follows_load(self) -> bool:
        """If the strategy within does."""
        return follows_load(self._within)

    @property
    def within(self) -> Planner:
        """What shares within each part."""
        return self._within

    @property
    def setting(self) -> CanarySetting:
        """Who the canaries are, and what they get."""
        return self._setting

    def check_view(self, view: View) -> None:
        """Refuses a canary that does not fit the group; while it does not, `plan` lets no queue starve."""
        self._setting.check(view.members, view.queues)

    def plan(self, view: View) -> Plan:
        if view.me not in view.members:
            return outsider(view)
        part, ours = self._setting.part_of(view.me, view.queues, view.members)
        return self._within.plan(replace(view, queues=tuple(part), members=tuple(ours)))
