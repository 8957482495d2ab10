"""Strategies by name, as options and the command line give them."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TypeVar

from trimtab.balance.strategies.averagely import Averagely
from trimtab.balance.strategies.base import Strategy
from trimtab.balance.strategies.circle import ByCircle
from trimtab.balance.strategies.consistent_hash import ConsistentHash
from trimtab.balance.strategies.lag import Lag
from trimtab.balance.strategies.plans import Planned, Planner
from trimtab.balance.strategies.rendezvous import Rendezvous
from trimtab.balance.strategies.sticky import Sticky
from trimtab.errors import SettingsError

_S = TypeVar("_S", Strategy, Strategy | Planner)

_READY: dict[str, Strategy] = {
    strategy.name: strategy for strategy in (Averagely(), ByCircle(), ConsistentHash(), Rendezvous())
}
_WITH_LEASES: dict[str, Planner] = {planner.name: planner for planner in (Sticky(), Lag())}
# These mean nothing without settings of their own: make one and pass it among `own`.
_TO_BE_MADE = {
    "CONFIG": "ByConfig(queues)",
    "MACHINE_ROOM": "ByMachineRoom(rooms)",
    "MACHINE_ROOM_NEARBY": "MachineRoomNearby(within, rooms)",
    "weighted": "Weighted(weights)",
    "canary": "Canary(within, setting) or LeasedCanary(within, setting)",
}


def by_name(name: str, own: Sequence[Strategy] = ()) -> Strategy:
    """The plain strategy of that name: one of the user's `own` first, then a ready one."""
    known = {**_READY, **_distinct(own)}
    if name in known:
        return known[name]
    if name in _WITH_LEASES:
        raise SettingsError(f"strategy {name!r} needs leases; use mode 'leased' or choose {_listed(known)}")
    raise _unknown(name, known)


def planner_by_name(name: str, own: Sequence[Strategy | Planner] = ()) -> Planner:
    """The strategy of that name for a group with leases; a plain one is led to by leases."""
    known = {**_READY, **_WITH_LEASES, **_distinct(own)}
    found = known.get(name)
    if found is None:
        raise _unknown(name, known)
    return found if isinstance(found, Planner) else Planned(found)


def _distinct(own: Iterable[_S]) -> dict[str, _S]:
    found: dict[str, _S] = {}
    for strategy in own:
        if strategy.name in found:
            raise SettingsError(f"two strategies of your own are called {strategy.name!r}")
        found[strategy.name] = strategy
    return found


def _unknown(name: str, known: Iterable[str]) -> SettingsError:
    if name in _TO_BE_MADE:
        return SettingsError(f"strategy {name!r} needs settings: make a {_TO_BE_MADE[name]} and pass it")
    folded = {other.casefold(): other for other in known}
    close = get_close_matches(name.casefold(), folded, n=1)
    hint = f"did you mean {folded[close[0]]!r}? " if close else ""
    return SettingsError(f"unknown strategy {name!r}; {hint}there are {_listed(known)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
