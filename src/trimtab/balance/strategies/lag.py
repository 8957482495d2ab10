"""`lag`: shares follow what waits and what arrives, in few and bounded moves.

The weight of a queue is the rate at which it must be read to be empty within `drain_s`: what arrives, and its lag spread over that
time. Free queues go to the least loaded, always, so no queue starves. A member that has nothing gets its part at once. Then at most `moves_max` queues
move from the most to the least loaded, and only while somebody is off the mean by more than `tolerance`. A move never makes the receiver as loaded as the giver was, so
two members never pass a queue to and fro.

It needs to know who holds what. Where nobody can tell, it shares as `sticky` does. Members measure at different moments and see different
things. So a queue is given up only by the member whose turn it is (`balance/turns.py`): `moves_max` is a bound for the group. And each may think that
another should take a free queue; one that waits for long is for whoever gets its lease first. Nor do they always agree on which queue should move: the receiver
tries for every one that would do, and gets what the giver lets go.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trimtab.balance.order import sorted_queues
from trimtab.balance.strategies.likes import in_order
from trimtab.balance.strategies.places import in_turn, queue_place
from trimtab.balance.strategies.plans import Load, Plan, View, outsider, towards
from trimtab.balance.strategies.sticky import Sticky, known_holdings
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue

_IDLE_PART = 0.05  # of the mean weight: queues without load are spread too


@dataclass(slots=True)
class _Bin:
    """A member while the shares are made."""

    member: str
    rank: int
    queues: list[MessageQueue]
    load: float
    would_do: list[MessageQueue] = field(default_factory=list)
    """Of those it takes queues from: what it would be given just as well."""

    def lightness(self) -> tuple[float, int, int]:
        return self.load, len(self.queues), self.rank


class Lag:
    """Follows lag and arrival, not the number of queues."""

    name = "lag"
    follows_load = True

    def __init__(self, *, moves_max: int = 2, tolerance: float = 0.2, drain_s: float = 60.0) -> None:
        """`moves_max` for the whole group within ten seconds; `tolerance` as part of the mean load."""
        if moves_max < 1:
            raise SettingsError(f"moves_max is {moves_max}; at least 1 queue a round must be able to move")
        if not 0 < tolerance <= 1:
            raise SettingsError(
                f"tolerance is {tolerance}; it is a part of the mean load, above 0, at most 1"
            )
        if not drain_s > 0:
            raise SettingsError(f"drain_s is {drain_s}; lag is to be worked off in more than 0 s")
        self._moves_max = moves_max
        self._tolerance = tolerance
        self._drain_s = drain_s

    def plan(self, view: View) -> Plan:
        if view.me not in view.members or not view.queues:
            return outsider(view)
        if view.holders is None:
            return Sticky().plan(view)
        weights = queue_weights(view.queues, view.loads, self._drain_s)
        bins = _bins(view, weights)
        mine = next(bin_ for bin_ in bins if bin_.member == view.me)
        self._bring_in(bins, weights)
        before = frozenset(mine.queues)
        self._even_out(bins, weights)
        given = before.difference(mine.queues)
        plan = towards(view, mine.queues if view.may_move else [*mine.queues, *sorted_queues(given)])
        if not view.may_move and given & view.held:
            plan = replace(plan, wants_turn=True)
        tried = view.held.union(plan.acquire)
        rescued = [q for q in view.queues if q in view.waiting and q not in tried]
        would_do = set(mine.would_do).difference(tried, rescued)
        return replace(
            plan,
            acquire=(*plan.acquire, *in_order(view, rescued), *in_order(view, would_do)),
            acquire_max=plan.acquire_max + len(rescued),
        )

    def _bring_in(self, bins: list[_Bin], weights: Mapping[MessageQueue, float]) -> None:
        """Who has nothing gets its part at once and whosever turn it is, as with any other strategy."""
        for newcomer in [bin_ for bin_ in bins if not bin_.queues]:
            while self._move_one(bins, newcomer, weights):
                pass

    def _even_out(self, bins: list[_Bin], weights: Mapping[MessageQueue, float]) -> None:
        for _ in range(self._moves_max):
            if not self._move_one(bins, min(bins, key=_Bin.lightness), weights):
                break

    def _move_one(self, bins: list[_Bin], taker: _Bin, weights: Mapping[MessageQueue, float]) -> bool:
        mean = sum(weights.values()) / len(bins)
        # A queue much lighter than most is not worth a handover.
        least = sorted(weights.values())[len(weights) // 2] / 2
        slack = self._tolerance * mean
        for giver in sorted(bins, key=_Bin.lightness, reverse=True):
            if giver.load <= mean + slack and taker.load >= mean - slack:
                return False
            if giver is taker:
                continue
            # The taker must end up clearly below what the giver had: then the queue does not come back.
            gap = giver.load - taker.load
            fitting = [queue for queue in giver.queues if least <= weights[queue] < gap - slack / 2]
            if fitting:
                taker.would_do += fitting
                _move(giver, taker, _closest(fitting, weights, gap / 2), weights)
                return True
        return False


def _bins(view: View, weights: Mapping[MessageQueue, float]) -> list[_Bin]:
    """Everybody with what it holds, and what is free given out."""
    holdings = known_holdings(view)
    bins = []
    for rank, member in enumerate(in_turn(view.group, view.members)):
        queues = holdings[member]
        bins.append(_Bin(member, rank, queues, sum(weights[queue] for queue in queues)))
    _place_free(view, bins, weights)
    return bins


def queue_weights(
    queues: Iterable[MessageQueue], loads: Mapping[MessageQueue, Load], drain_s: float
) -> dict[MessageQueue, float]:
    """Messages a second that each queue needs, never 0. A queue nobody measured counts as an average one."""
    wanted = {queue: loads.get(queue) for queue in queues}
    known = {q: max(0, at.lag) / drain_s + max(0.0, at.arriving_per_s) for q, at in wanted.items() if at}
    mean = sum(known.values()) / len(known) if known else 0.0
    if mean == 0:
        return dict.fromkeys(wanted, 1.0)
    return {queue: max(known.get(queue, mean), mean * _IDLE_PART) for queue in wanted}


def _place_free(view: View, bins: list[_Bin], weights: Mapping[MessageQueue, float]) -> None:
    """The heaviest first, each to the least loaded."""
    held = {queue for bin_ in bins for queue in bin_.queues}
    free = [queue for queue in view.queues if queue not in held]
    for queue in sorted(free, key=lambda queue: (-weights[queue], queue_place(queue))):
        taker = min(bins, key=_Bin.lightness)
        taker.queues.append(queue)
        taker.load += weights[queue]


def _closest(
    queues: list[MessageQueue], weights: Mapping[MessageQueue, float], wanted: float
) -> MessageQueue:
    return min(queues, key=lambda queue: (abs(wanted - weights[queue]), queue_place(queue)))


def _move(giver: _Bin, taker: _Bin, queue: MessageQueue, weights: Mapping[MessageQueue, float]) -> None:
    giver.queues.remove(queue)
    giver.load -= weights[queue]
    taker.queues.append(queue)
    taker.load += weights[queue]
