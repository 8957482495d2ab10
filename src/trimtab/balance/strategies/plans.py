"""Sharing with leases: what a member knows, and what it should do about it.

A strategy for leases (a `Planner`) does not name my whole share out of nothing. It looks at what I hold and says what to keep, what to
give up, and which queues to try to lock, in which order and how many. The lock table at the brokers arbitrates, so members may be
mistaken about each other without harm. A planner sees the queues of **all** topics of the group at once: shares are even in total.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol, overload, runtime_checkable

from trimtab.balance.order import sorted_names, sorted_queues
from trimtab.balance.strategies.base import Strategy
from trimtab.errors import AllocationError, SettingsError
from trimtab.model import MessageQueue

_REMEMBERED_SHARES_MAX = 256


@dataclass(frozen=True, slots=True)
class Load:
    """What waits in a queue for the group, and what comes in."""

    lag: int
    arriving_per_s: float


@dataclass(frozen=True, slots=True)
class View:
    """The group as I see it."""

    group: str
    me: str
    queues: tuple[MessageQueue, ...]
    members: tuple[str, ...]
    held: frozenset[MessageQueue] = frozenset()
    """What I hold. A queue that is no longer among `queues` is given up."""
    holders: Mapping[MessageQueue, str] | None = None
    """Who holds what, where somebody can tell: then moves are the fewest possible. None: leases alone."""
    refused: AbstractSet[MessageQueue] = frozenset()
    """Queues whose lease somebody else had when I last asked; they are tried last."""
    waiting: frozenset[MessageQueue] = frozenset()
    """Queues that nobody has held for a while, as far as `holders` tells."""
    loads: Mapping[MessageQueue, Load] = field(default_factory=lambda: MappingProxyType({}))
    may_move: bool = True
    """Whether it is my turn to give queues up because of load."""

    def __post_init__(self) -> None:
        if not self.me:
            raise AllocationError(f"a plan was asked in group {self.group} for an empty client id")
        for what, given in (("member", self.members), ("queue", self.queues)):
            if not _are_distinct(given):
                raise AllocationError(
                    f"group {self.group}: {what} {_first_double(given)} is listed twice; "
                    + ("every client needs an id of its own" if what == "member" else "look at the routes")
                )


class QueuesLater(Sequence[MessageQueue]):
    """So many queues, whose order is made when somebody looks at it. Equal to a tuple of the same."""

    __slots__ = ("_count", "_made", "_make", "untried")

    def __init__(
        self,
        count: int,
        make: Callable[[], Iterable[MessageQueue]],
        untried: Callable[[], Iterable[MessageQueue]],
    ) -> None:
        """`make` gives them all, the same whenever it is called; `untried` the first of them, up to the first that was refused."""
        self._count = count
        self.untried = untried
        self._make = make
        self._made: tuple[MessageQueue, ...] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(self._queues())

    @overload
    def __getitem__(self, at: int) -> MessageQueue: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[MessageQueue, ...]: ...
    def __getitem__(self, at: int | slice) -> MessageQueue | tuple[MessageQueue, ...]:
        return self._queues()[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (QueuesLater, tuple)) and self._queues() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._queues())

    def __repr__(self) -> str:
        return repr(self._queues())

    def _queues(self) -> tuple[MessageQueue, ...]:
        if self._made is None:
            self._made = tuple(self._make())
            assert len(self._made) == self._count, "there are not as many queues as was said"
        return self._made


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now. `keep` and `give_up` together are what I hold."""

    keep: tuple[MessageQueue, ...]
    give_up: tuple[MessageQueue, ...] = ()
    acquire: Sequence[MessageQueue] = ()
    """Queues to try, the best first. Somebody else may have them."""
    acquire_max: int = 0
    """Stop trying after so many were granted."""
    wants_turn: bool = False
    """I would give queues up because of load, if it were my turn."""

    @property
    def changes_nothing(self) -> bool:
        """Whether I have what I should have."""
        return not self.give_up and self.acquire_max == 0


@runtime_checkable
class Planner(Protocol):
    """A strategy for groups with leases."""

    @property
    def name(self) -> str:
        """As options, logs and reports call it."""

    def plan(self, view: View) -> Plan:
        """What I should keep, give up and try to get."""


def follows_load(planner: Planner) -> bool:
    """Whether a planner looks at loads and holders, so that they have to be measured."""
    return bool(getattr(planner, "follows_load", False))


def misfit(planner: Planner, view: View) -> str | None:
    """Why a planner's settings do not fit the group as it is; None if they do, or if it has none."""
    check = getattr(planner, "check_view", None)
    if check is None:
        return None
    try:
        check(view)
    except (AllocationError, SettingsError) as error:
        return str(error)
    return None


class Planned:
    """Any plain strategy, used with leases: the share of all topics together is what to have."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        # A member that looks for free queues asks many times a second, and the same view always gives the same share.
        self._share = lru_cache(_REMEMBERED_SHARES_MAX)(self._allocated)

    @property
    def name(self) -> str:
        return self._strategy.name

    def plan(self, view: View) -> Plan:
        if view.me not in view.members or not view.queues:
            return outsider(view)
        return towards(view, self._share(view.group, view.me, view.queues, view.members))

    def _allocated(
        self, group: str, me: str, queues: tuple[MessageQueue, ...], members: tuple[str, ...]
    ) -> tuple[MessageQueue, ...]:
        return tuple(self._strategy.allocate(group, me, sorted_queues(queues), sorted_names(members)))


def towards(view: View, share: Iterable[MessageQueue]) -> Plan:
    """The plan that leads from what I hold to exactly this share; refused queues last."""
    wanted = dict.fromkeys(share)
    missing = sorted((queue for queue in wanted if queue not in view.held), key=view.refused.__contains__)
    return Plan(
        keep=tuple(queue for queue in wanted if queue in view.held),
        give_up=sorted_queues(queue for queue in view.held if queue not in wanted),
        acquire=tuple(missing),
        acquire_max=len(missing),
    )


def outsider(view: View) -> Plan:
    """Who is not in the member list holds nothing; a group without queues neither."""
    return Plan(keep=(), give_up=sorted_queues(view.held))


_seen_distinct: deque[Sequence[object]] = deque(maxlen=8)


def _are_distinct(given: Sequence[object]) -> bool:
    """The same tuples come again and again; those looked at last are known by identity, since hashing ten thousand queues takes long."""
    if any(given is seen for seen in _seen_distinct):
        return True
    if len(set(given)) != len(given):
        return False
    if isinstance(given, tuple):
        _seen_distinct.append(given)
    return True


def _first_double(items: Iterable[object]) -> object:
    seen = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    raise AssertionError("asked for a double where there is none")
