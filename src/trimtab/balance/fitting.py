"""The planner that a member uses: its own, or a canary around it that was ordered for the group. PURE.

Settings may not fit the group: then shares are even, and it says why. No queue waits for a setting.
"""

from typing import TYPE_CHECKING, Final

from trimtab.balance.strategies.canary import CanarySetting, LeasedCanary
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
        """The one in use."""
        self._own = planner
        self._ordered: CanarySetting | None = None
        self.misfit: str | None = None
        """Why the settings do not fit the group that was seen last."""
        self._seen: tuple[tuple[str, ...], tuple[MessageQueue, ...]] | None = None

    def order(self, canary: CanarySetting | None) -> bool:
        """A canary for the whole group, or none any more; whether that is news."""
        if canary == self._ordered:
            return False
        within = self._own.within if isinstance(self._own, LeasedCanary) else self._own
        self.planner = self._own if canary is None else LeasedCanary(within, canary)
        self._ordered, self._seen, self.misfit = canary, None, None
        return True

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
