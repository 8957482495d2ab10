"""Whose turn it is to move queues because of load: one member of the group at a time. PURE.

Strategies that follow load promise at most so many moves in a round, for the whole group. Members measure at different moments and see
different things, so what each would do alone is no bound for all. The turn is a lease like those on queues, on a name that is no queue, at
the broker whose name comes first; the lock table decides, on any broker. Who has it measures anew, gives up what it wants to give
up, and keeps the turn until those queues have been free for a whole round. Who dies with it delays others, nothing else.
"""

import enum
from typing import Final

from trimtab.balance.leased_effects import EndTurn, TakeTurn
from trimtab.model import MessageQueue

TURN_TOPIC: Final = "%TRIMTAB%turn"
ROUND_MS: Final = 10_000
"""In so long the group makes no more moves than one turn allows."""
SETTLE_MS: Final = 3_000
"""How long after a queue was given up the member that takes it may still be on its way to it."""


class _Turn(enum.Enum):
    NONE = "none"
    ASKED = "asked"
    TAKEN = "taken"
    """And waiting for a measurement that was made after it was taken."""
    USED = "used"


def turn_at(broker_name: str) -> MessageQueue:
    """What is locked at the broker in the place of a queue."""
    return MessageQueue(TURN_TOPIC, broker_name, 0)


class Turns:
    """See the module's own words."""

    def __init__(self, retry_ms: int) -> None:
        self._retry_ms = retry_ms
        self._state = _Turn.NONE
        self._broker = ""
        self._since_ms = 0
        self._tried_ms = -retry_ms
        self._given: frozenset[MessageQueue] = frozenset()

    def wish(self, broker_name: str, now_ms: int) -> list[TakeTurn]:
        """Somebody here wants to give queues up."""
        if self._state is not _Turn.NONE or now_ms - self._tried_ms < self._retry_ms:
            return []
        self._state, self._broker, self._tried_ms = _Turn.ASKED, broker_name, now_ms
        return [TakeTurn(broker_name, turn_at(broker_name))]

    def on_answer(self, *, is_granted: bool, now_ms: int) -> bool:
        """Whether the turn is this member's from now on."""
        if self._state is not _Turn.ASKED:
            return False
        self._state, self._since_ms = (_Turn.TAKEN if is_granted else _Turn.NONE), now_ms
        return is_granted

    def may_move(self, measured_ms: int) -> bool:
        """Whether queues may be given up because of what was asked for at this time."""
        return self._state is _Turn.TAKEN and measured_ms >= self._since_ms

    def used(self, given: frozenset[MessageQueue], now_ms: int) -> list[EndTurn]:
        """These are being given up; if it is nothing, the next one may have the turn."""
        self._state, self._given, self._since_ms = _Turn.USED, given, now_ms
        return [] if given else self.end()

    def on_tick(self, leaving: frozenset[MessageQueue], now_ms: int) -> list[EndTurn]:
        """Ends the turn a round after all that was given up has been free; `leaving` are the queues that are not yet."""
        if self._state is _Turn.TAKEN and now_ms - self._since_ms > ROUND_MS:
            return self.end()
        if self._state is not _Turn.USED:
            return []
        if self._given & leaving:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= ROUND_MS + SETTLE_MS:
            return self.end()
        return []

    def next_ms(self) -> int | None:
        """When `on_tick` may have something to do."""
        if self._state is _Turn.TAKEN:
            return self._since_ms + ROUND_MS + 1
        return self._since_ms + ROUND_MS + SETTLE_MS if self._state is _Turn.USED else None

    def end(self) -> list[EndTurn]:
        """Gives the turn back, if it is this member's."""
        had, self._state, self._given = self._state, _Turn.NONE, frozenset()
        return [EndTurn(self._broker, turn_at(self._broker))] if had in (_Turn.TAKEN, _Turn.USED) else []
