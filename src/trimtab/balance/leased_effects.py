"""What the leased machine wants done. PURE values; the client and the simulator do them.

Questions are given back with their answer (or with `on_failed`), and each is equal to itself alone. `ReadStart`, `StartPull`, `Changed` and
`ShareFailed` are those of classic mode.
"""

from dataclasses import dataclass
from typing import TypeAlias

from trimtab.balance.rebalance_effects import Changed, ReadStart, ShareFailed, StartPull
from trimtab.balance.recorder import Kind
from trimtab.model import MessageQueue


@dataclass(frozen=True, slots=True, eq=False)
class Acquire:
    """Ask one broker to lock these for the group; answer with `on_acquired`."""

    broker_name: str
    queues: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Renew:
    """Ask one broker to lock again what is held; answer with `on_renewed`."""

    broker_name: str
    queues: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Drain:
    """Stop pulling and start no handler; answer with `on_drained` when the running ones are done."""

    queue: MessageQueue


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """Write the queue's offset to its broker and wait for the word that it is there; answer with `on_committed`."""

    queue: MessageQueue


@dataclass(frozen=True, slots=True, eq=False)
class Recheck:
    """Read the group's offset at the broker: is it the one that this member wrote or read last? Answer with `on_rechecked`."""

    queue: MessageQueue


@dataclass(frozen=True, slots=True, eq=False)
class Unlock:
    """Tell one broker that these are free, and keep nothing of them; answer with `on_unlocked`.

    It wants an answer because a broker may take two requests out of turn: the queue is not asked for again before.
    """

    broker_name: str
    queues: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True)
class Abandon:
    """The queue belongs to somebody else, or may soon: stop pulling, start no handler, commit nothing, forget it."""

    queue: MessageQueue


@dataclass(frozen=True, slots=True, eq=False)
class LookAtMembers:
    """Ask this broker who is in the group; answer with `on_members`."""

    broker_name: str


@dataclass(frozen=True, slots=True, eq=False)
class Evict:
    """Unlock these in the name of a member that is gone; answer with `on_evicted`."""

    broker_name: str
    member: str
    queues: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AskAge:
    """Ask this broker for how long it has been up; answer with `on_age`."""

    broker_name: str


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """Ask all brokers how far the group and its queues have come, and who holds what; answer with `on_measured`."""


@dataclass(frozen=True, slots=True, eq=False)
class TakeTurn:
    """Lock what stands for the group's turn to move queues; answer with `on_turn`."""

    broker_name: str
    turn: MessageQueue


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Unlock the turn; nobody waits for an answer."""

    broker_name: str
    turn: MessageQueue


@dataclass(frozen=True, slots=True)
class Happened:
    """For the flight recorder."""

    kind: Kind
    cause: str = ""
    queue: MessageQueue | None = None
    other: str = ""
    offset: int | None = None
    duration_ms: int | None = None
    detail: str = ""


Question: TypeAlias = (
    Acquire
    | Renew
    | Recheck
    | ReadStart
    | Drain
    | Commit
    | Unlock
    | LookAtMembers
    | Evict
    | AskAge
    | Measure
    | TakeTurn
)

LeasedEffect: TypeAlias = (
    Acquire
    | Renew
    | Recheck
    | ReadStart
    | StartPull
    | Drain
    | Commit
    | Unlock
    | Abandon
    | LookAtMembers
    | Evict
    | AskAge
    | Measure
    | TakeTurn
    | EndTurn
    | Changed
    | ShareFailed
    | Happened
)
