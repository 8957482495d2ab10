"""When a leased member asks how far the group has come and who holds what, and what it made of the answers. PURE."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from trimtab.balance.holders import LOOK_AGAIN_MS
from trimtab.balance.leased_effects import Measure
from trimtab.balance.loads import Ends, Loads
from trimtab.model import MessageQueue

if TYPE_CHECKING:
    from trimtab.balance.strategies.plans import Load

_NEVER_MS: Final = 2**62


class Measuring:
    """Regular for a planner that follows load; for every planner while nobody holds some queue."""

    def __init__(self, every_ms: int | None) -> None:
        self._every_ms = every_ms
        self._measured = Loads()
        self._asked: Measure | None = None
        self._answered_ms = -_NEVER_MS
        self.loads: Mapping[MessageQueue, Load] = {}
        """As they were last measured."""

    def ask(self) -> Measure:
        """Asks anew; an answer to what was asked before is used all the same, but ends no wait."""
        self._asked = Measure()
        return self._asked

    def on_answer(self, question: Measure, ends: Mapping[MessageQueue, Ends], now_ms: int) -> None:
        """How far the group and its queues have come."""
        if self._asked is question:
            self._asked = None
        self._answered_ms = now_ms
        self.loads = self._measured.on_measured(ends, now_ms)

    def on_queues(self, queues: frozenset[MessageQueue]) -> None:
        """The group's queues; nothing of others is kept."""
        self._measured.keep_only(queues)

    def soon(self) -> None:
        """What was measured is no longer so."""
        self._answered_ms = -_NEVER_MS

    def next_ms(self, look_again_ms: int | None) -> int:
        """When it is to be measured again; `look_again_ms` is when it should be because nobody holds some queue."""
        if self._asked is not None:
            return _NEVER_MS
        due_ms = _NEVER_MS if self._every_ms is None else self._answered_ms + self._every_ms
        if look_again_ms is None:
            return due_ms
        return min(due_ms, max(look_again_ms, self._answered_ms + LOOK_AGAIN_MS))
