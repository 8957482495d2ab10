"""The rules of ordered consumption: one handler at a time for a queue, under a lock that the broker knows. PURE.

A queue's lock is asked for before it is read, renewed with all others every 20 s, and trusted for 30 s after it was last granted.
Before every handler call the queue is looked at again: `next_turn` says what may be done now.
"""

import enum
from dataclasses import dataclass
from typing import Final

RENEW_EVERY_MS: Final = 20_000
FIRST_RENEWAL_AFTER_MS: Final = 1_000
TRUSTED_MS: Final = 30_000
CONTINUOUS_MS_MAX: Final = 60_000
"""After so long without a break others get a turn."""
BREAK_MS: Final = 10
NOT_LOCKED_WAIT_MS: Final = 100
LOCK_LOST_WAIT_MS: Final = 10
LOCK_REFUSED_WAIT_MS: Final = 3_000
SUSPEND_MS: Final = 1_000
SUSPEND_MS_MIN: Final = 10
SUSPEND_MS_MAX: Final = 30_000
RELEASE_WAIT_MS_MAX: Final = 1_000
"""How long a queue that must be given up waits for the handler that runs."""
LATE_UNLOCK_MS: Final = 20_000
"""A queue with messages in hand is unlocked so much later, as Java does."""


@dataclass(slots=True)
class QueueLock:
    """What is known of the broker's lock on one queue."""

    is_locked: bool = False
    locked_ms: int = 0

    def granted(self, now_ms: int) -> None:
        """The broker said yes, just now."""
        self.is_locked = True
        self.locked_ms = now_ms

    def refused(self) -> None:
        """The broker said no: somebody else has it."""
        self.is_locked = False

    def is_trusted(self, now_ms: int) -> bool:
        """Whether handlers may run on the strength of it."""
        return self.is_locked and now_ms - self.locked_ms <= TRUSTED_MS


class Turn(enum.Enum):
    """What a queue may do next."""

    GO = "go"
    STOP = "stop"
    LOCK_FIRST = "lock first"
    BREAK = "break"


def next_turn(*, is_dropped: bool, lock: QueueLock | None, began_ms: int, now_ms: int) -> Turn:
    """What may be done now, `began_ms` being the begin of this run of turns. Broadcasting has no lock."""
    if is_dropped:
        return Turn.STOP
    if lock is not None and not lock.is_trusted(now_ms):
        return Turn.LOCK_FIRST
    if now_ms - began_ms > CONTINUOUS_MS_MAX:
        return Turn.BREAK
    return Turn.GO


def suspend_ms(wanted_ms: int | None) -> int:
    """How long a queue rests after its handler failed, within RocketMQ's bounds."""
    return min(SUSPEND_MS_MAX, max(SUSPEND_MS_MIN, SUSPEND_MS if wanted_ms is None else wanted_ms))
