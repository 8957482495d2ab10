"""A lock table and members that act on their plans, for tests of strategies with leases."""

import random
from collections.abc import Mapping, Sequence

from trimtab.balance.strategies import Load, Planner, View
from trimtab.model import MessageQueue

ROUNDS_MAX = 12


class LeaseTable:
    """Who has which lease. Members act one after the other, in random order, and each sees only what it may know."""

    def __init__(self, planner: Planner, rng: random.Random, *, holders_known: bool) -> None:
        self.planner = planner
        self.holders: dict[MessageQueue, str] = {}
        self.loads: Mapping[MessageQueue, Load] = {}
        self._rng = rng
        self._holders_known = holders_known

    def round(self, queues: Sequence[MessageQueue], members: Sequence[str]) -> bool:
        """Everybody acts once; whether anything changed. Leases of members that are gone are free."""
        here = frozenset(members)
        self.holders = {queue: member for queue, member in self.holders.items() if member in here}
        before = dict(self.holders)
        held: dict[str, set[MessageQueue]] = {member: set() for member in members}
        for queue, member in self.holders.items():
            held[member].add(queue)
        plans = {}
        for me in self._rng.sample(list(members), len(members)):
            view = View(
                "g", me, tuple(queues), tuple(members), frozenset(held[me]),
                holders=before if self._holders_known else None, loads=self.loads,
            )  # fmt: skip
            plans[me] = self.planner.plan(view)
            assert {*plans[me].keep, *plans[me].give_up} == held[me]
            for queue in plans[me].give_up:
                del self.holders[queue]
        for me in self._rng.sample(list(members), len(members)):
            wanted = plans[me].acquire_max
            for queue in plans[me].acquire if wanted else ():
                if self.holders.setdefault(queue, me) == me:
                    wanted -= 1
                    if not wanted:
                        break
        return self.holders != before

    def settle(self, queues: Sequence[MessageQueue], members: Sequence[str]) -> int:
        """The number of rounds until nobody wants anything."""
        for number in range(ROUNDS_MAX):
            if not self.round(queues, members):
                return number
        raise AssertionError(f"did not settle within {ROUNDS_MAX} rounds")

    def shares(self, members: Sequence[str]) -> list[int]:
        counts = dict.fromkeys(members, 0)
        for member in self.holders.values():
            counts[member] += 1
        return list(counts.values())
