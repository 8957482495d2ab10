"""What waits in queues and what comes in, out of offsets that are measured now and then. PURE."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from trimtab.balance.strategies.plans import Load
from trimtab.model import MessageQueue

MEASURE_EVERY_MS: Final = 5_000
_NEWEST_PART: Final = 0.5
"""How much the newest measurement counts in a rate."""


class Ends(NamedTuple):
    """Of one queue: where the next message will lie, and where the group goes on."""

    next_offset: int
    group_offset: int


class Loads:
    """Makes loads of two measurements that follow each other."""

    def __init__(self) -> None:
        self._last: dict[MessageQueue, tuple[int, Ends]] = {}
        self._per_s: dict[MessageQueue, float] = {}

    def on_measured(self, ends: Mapping[MessageQueue, Ends], now_ms: int) -> dict[MessageQueue, Load]:
        """The loads now. A queue seen for the first time has no rate yet; one that was not measured keeps what it had."""
        for queue, at in ends.items():
            before = self._last.get(queue)
            if before is not None and now_ms > before[0]:
                came = max(0, at.next_offset - before[1].next_offset)
                rate = came * 1_000 / (now_ms - before[0])
                known = self._per_s.get(queue, rate)
                self._per_s[queue] = known + _NEWEST_PART * (rate - known)
            self._last[queue] = now_ms, at
        return {
            queue: Load(max(0, at.next_offset - at.group_offset), self._per_s.get(queue, 0.0))
            for queue, (_, at) in self._last.items()
        }

    def keep_only(self, queues: frozenset[MessageQueue]) -> None:
        """These are the group's queues now."""
        for gone in [queue for queue in self._last if queue not in queues]:
            del self._last[gone]
            self._per_s.pop(gone, None)
