"""What the rebalance machine wants done. PURE values; the client and the simulator do them.

`Lock`, `ReadStart` and `Release` are questions: they are given back with their answer, and each is equal to itself alone.
"""

import enum
from dataclasses import dataclass
from typing import TypeAlias

from trimtab.balance.ordered import RELEASE_WAIT_MS_MAX
from trimtab.model import MessageQueue


class Why(enum.Enum):
    """Why a queue is given up."""

    NOT_MINE = "another member has it in its share"
    SILENT = "no pull for 120 s"
    UNSUBSCRIBED = "its topic is no longer subscribed"
    MOVED = "its offset was set elsewhere"


@dataclass(frozen=True, slots=True, eq=False)
class Lock:
    """Ask the brokers to lock these for the group; answer with `on_locked`."""

    queues: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReadStart:
    """Forget any offset kept in memory, find out where to read from, answer with `on_start`."""

    queue: MessageQueue


@dataclass(frozen=True, slots=True)
class StartPull:
    """Read the queue from this offset on."""

    queue: MessageQueue
    offset: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Stop reading, start no handler, persist the offset and forget it."""

    queue: MessageQueue
    why: Why


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """As `Drop`, but wait so long for the handler that runs; answer with `on_released`."""

    queue: MessageQueue
    why: Why
    wait_ms_max: int = RELEASE_WAIT_MS_MAX


@dataclass(frozen=True, slots=True)
class Unlock:
    """Tell the broker that the queue is free."""

    queue: MessageQueue


@dataclass(frozen=True, slots=True)
class UnlockLater:
    """After this time call `on_unlock_due`."""

    queue: MessageQueue
    after_ms: int


@dataclass(frozen=True, slots=True)
class Changed:
    """A round is over and something changed: log it, bump the topic's subscription version, heartbeat."""

    strategy: str
    group: str
    topic: str
    client_id: str
    queue_count: int
    member_count: int
    mine: tuple[MessageQueue, ...]

    def __str__(self) -> str:
        """The line for the log."""
        return (
            f"rebalanced: strategy={self.strategy} group={self.group} topic={self.topic} clientId={self.client_id}"
            f" queues={self.queue_count} members={self.member_count} mine={len(self.mine)}"
            f" [{', '.join(f'{queue.broker_name}:{queue.queue_id}' for queue in self.mine)}]"
        )


@dataclass(frozen=True, slots=True)
class ShareFailed:
    """The strategy raised; what is held stays as it is."""

    topic: str
    strategy: str
    reason: str


Effect: TypeAlias = (
    Lock | ReadStart | StartPull | Drop | Release | Unlock | UnlockLater | Changed | ShareFailed
)
