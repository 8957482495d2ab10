"""Which free queues a leased member asks for, and when it looks again at those that others had. PURE."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final

from trimtab.balance.marks import Marks
from trimtab.balance.strategies.plans import Plan, QueuesLater
from trimtab.model import MessageQueue

SWEEP_EVERY_MS: Final = 50
"""How soon queues that others had are asked for again, while the group is in motion."""
CALM_SWEEP_EVERY_MS: Final = 2_000
MOTION_MS: Final = 20_000
"""So long after a change of the view somebody may still be handing over."""
ACQUIRE_QUEUES_MAX: Final = 500
"""How many queues one request asks for; the next sweep goes on with the others."""
_NEVER_MS: Final = 2**62

Chosen = dict[str, list[MessageQueue]]
"""By broker, what to ask it for."""


class Sweeps:
    """See the module's own words."""

    def __init__(self) -> None:
        self.due_ms = 0
        """When to look again."""
        self.refused = Marks()
        """What somebody else had when this sweep asked for it."""
        self._moved_ms = 0

    def on_queues(self, queues: tuple[MessageQueue, ...]) -> None:
        """The group's queues; all are worth asking for."""
        self.refused = Marks(queues)

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time to look again."""
        return now_ms >= self.due_ms

    def on_motion(self, now_ms: int) -> None:
        """The group is handing over from now on."""
        self._moved_ms = self.due_ms = now_ms

    def now(self, now_ms: int) -> None:
        """Something may have become free."""
        self.due_ms = now_ms

    def calmly(self, now_ms: int) -> None:
        """Nothing can be asked for as things are."""
        self.due_ms = now_ms + CALM_SWEEP_EVERY_MS

    def on_free(self, queues: Iterable[MessageQueue], now_ms: int) -> None:
        """Nobody has these, or nobody of whom a lease was asked in vain."""
        self.refused.discard(queues)
        self.due_ms = min(self.due_ms, now_ms + SWEEP_EVERY_MS)

    def is_over(self, plan: Plan, asking: int) -> bool:
        """Whether as many are being asked for as are missing; then it is not looked again before something happens."""
        if asking < plan.acquire_max:
            return False
        self.due_ms = _NEVER_MS
        return True

    def choose(
        self,
        plan: Plan,
        brokers: Iterable[str],
        taken: AbstractSet[MessageQueue],
        now_ms: int,
    ) -> Chosen:
        """What to ask these brokers for now; none that is `taken`."""
        untried = iter(self._untried(plan.acquire))
        first = next(untried, None)
        if first is None:
            # Everybody else has them. Somebody may be handing over, so ask again: soon while the group moves, seldom after that.
            self.refused.clear()
            in_motion = now_ms - self._moved_ms < MOTION_MS
            self.due_ms = now_ms + (SWEEP_EVERY_MS if in_motion else CALM_SWEEP_EVERY_MS)
            return {}
        self.due_ms = now_ms + SWEEP_EVERY_MS
        # More than are missing, or looking at all would take too many requests.
        return _by_broker(chain((first,), untried), brokers, taken)

    def _untried(self, queues: Sequence[MessageQueue]) -> Iterable[MessageQueue]:
        """Those that nobody refused; the plan was made with what is refused now."""
        return queues.untried() if isinstance(queues, QueuesLater) else self.refused.without(queues)


def _by_broker(
    queues: Iterable[MessageQueue], brokers: Iterable[str], taken: AbstractSet[MessageQueue]
) -> Chosen:
    """As many of each broker as one request may ask for, the first ones first; only of these brokers."""
    filling: Chosen = {broker: [] for broker in brokers}
    chosen: Chosen = {}
    for queue in queues if filling else ():
        asked = filling.get(queue.broker_name)
        if asked is None or queue in taken:
            continue
        if not asked:
            chosen[queue.broker_name] = asked
        asked.append(queue)
        if len(asked) == ACQUIRE_QUEUES_MAX:
            del filling[queue.broker_name]
            if not filling:
                break
    return chosen
