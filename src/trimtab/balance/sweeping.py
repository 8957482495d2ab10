"""Which free queues a leased member asks for, and when it looks again at those that others had. PURE."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from typing import Final

from trimtab.balance.strategies.plans import Plan
from trimtab.model import MessageQueue

SWEEP_EVERY_MS: Final = 50
"""How soon queues that others had are asked for again, while the group is in motion."""
CALM_SWEEP_EVERY_MS: Final = 2_000
MOTION_MS: Final = 20_000
"""So long after a change of the view somebody may still be handing over."""
SWEEP_REQUESTS_MAX: Final = 1
"""How many requests to one broker a look at all queues may take."""
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
        self.refused: set[MessageQueue] = set()
        """What somebody else had when this sweep asked for it."""
        self._moved_ms = 0

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
        self.refused.difference_update(queues)
        self.due_ms = min(self.due_ms, now_ms + SWEEP_EVERY_MS)

    def choose(
        self,
        plan: Plan,
        asking: int,
        may_ask: Callable[[str], bool],
        taken: Iterable[Container[MessageQueue]],
        now_ms: int,
    ) -> Chosen:
        """What to ask for now, besides the queues that are being asked for; none that is `taken`, and nothing of a broker that may not be asked."""
        missing = plan.acquire_max - asking
        if missing <= 0:
            self.due_ms = _NEVER_MS
            return {}
        untried = [queue for queue in plan.acquire if queue not in self.refused]
        if not untried:
            # Everybody else has them. Somebody may be handing over, so ask again: soon while the group moves, seldom after that.
            self.refused.clear()
            in_motion = now_ms - self._moved_ms < MOTION_MS
            self.due_ms = now_ms + (SWEEP_EVERY_MS if in_motion else CALM_SWEEP_EVERY_MS)
            return {}
        self.due_ms = now_ms + SWEEP_EVERY_MS
        # More than are missing, if looking at all would else take too many requests.
        most = max(missing, len(plan.acquire) // SWEEP_REQUESTS_MAX)
        return _by_broker(untried, most, may_ask, tuple(taken))


def _by_broker(
    queues: Iterable[MessageQueue],
    most: int,
    may_ask: Callable[[str], bool],
    taken: tuple[Container[MessageQueue], ...],
) -> Chosen:
    chosen: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    open_brokers: dict[str, bool] = {}
    for queue in queues:
        broker = queue.broker_name
        if broker not in open_brokers:
            open_brokers[broker] = may_ask(broker)
        if not open_brokers[broker] or any(queue in those for those in taken):
            continue
        chosen[broker].append(queue)
        open_brokers[broker] = len(chosen[broker]) < ACQUIRE_QUEUES_MAX
        most -= 1
        if not most:
            break
    return chosen
