"""Which of the two handover modes a consumer uses, and which strategy in each. PURE."""

from collections.abc import Collection
from dataclasses import dataclass

from trimtab.balance.strategies import (
    Averagely,
    LeasedCanary,
    Planner,
    Strategy,
    Weighted,
    by_name,
    planner_by_name,
)
from trimtab.balance.strategies.plans import Planned
from trimtab.errors import SettingsError

CLASSIC = "classic"
LEASED = "leased"


@dataclass(frozen=True, slots=True)
class ModePlan:
    """What the user chose."""

    mode: str
    planner: Planner
    """In leased mode."""
    strategy: Strategy
    """In classic mode, and while members of another kind are in the group."""

    def name(self, mode: str) -> str:
        """The strategy's name in a mode."""
        return self.planner.name if mode == LEASED else self.strategy.name


def mode_plan(mode: str | None, strategy: str | Strategy | Planner | None, *, is_broadcast: bool) -> ModePlan:
    """Leased unless classic is asked for; broadcasting shares nothing, so there is nothing to hand over."""
    if mode not in (None, CLASSIC, LEASED):
        raise SettingsError(f"mode {mode!r} is neither {LEASED!r} nor {CLASSIC!r}")
    if is_broadcast and mode == LEASED:
        raise SettingsError("broadcasting shares no queues: there is nothing to lease; leave mode out")
    chosen = CLASSIC if is_broadcast else mode or LEASED
    if isinstance(strategy, str):
        planner = planner_by_name(strategy)
        plain = by_name(strategy) if chosen == CLASSIC else _plain(planner, strategy)
        return ModePlan(chosen, planner, plain)
    if strategy is None:
        return ModePlan(chosen, planner_by_name("sticky"), Averagely())
    if isinstance(strategy, Planner):
        if chosen == CLASSIC:
            raise SettingsError(f"strategy {strategy.name!r} needs leases; use mode {LEASED!r}")
        return ModePlan(chosen, strategy, Averagely())
    return ModePlan(chosen, Planned(strategy), strategy)


def check_choice(planner: Planner, client_id: str | None, topics: Collection[str]) -> None:
    """Refuses what is known to be wrong before the group was seen: a member without weight, a canary's queue of a foreign topic."""
    if isinstance(planner, Weighted):
        planner.check_member(client_id)
    if isinstance(planner, LeasedCanary):
        strangers = sorted({queue.topic for queue in planner.setting.queues or ()}.difference(topics))
        if strangers:
            raise SettingsError(
                f"the canary's queues are of topic {', '.join(strangers)}, which is not subscribed to"
            )


def _plain(planner: Planner, name: str) -> Strategy:
    return by_name(name) if isinstance(planner, Planned) else Averagely()
