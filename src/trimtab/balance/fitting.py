"""A planner whose settings may not fit the group: then shares are even, and it says why. No queue waits for a setting. PURE."""

from typing import TYPE_CHECKING, Final

from trimtab.balance.strategies.plans import Plan, Planner, View, misfit
from trimtab.balance.strategies.sticky import Sticky
from trimtab.errors import AllocationError

if TYPE_CHECKING:
    from trimtab.model import MessageQueue

_EVEN: Final = Sticky()


class Fitting:
    """See the module's own words."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.misfit: str | None = None
        """Why the settings do not fit the group that was seen last."""
        self._seen: tuple[tuple[str, ...], tuple[MessageQueue, ...]] | None = None

    def plan(self, view: View) -> Plan:
        """The planner's, or an even share while its settings cannot share this group."""
        seen = (view.members, view.queues)
        if seen != self._seen:
            self._seen, self.misfit = seen, misfit(self.planner, view)
        try:
            return self.planner.plan(view)
        except AllocationError:
            if self.misfit is None:
                raise
            return _EVEN.plan(view)
