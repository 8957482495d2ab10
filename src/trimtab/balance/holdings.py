"""The queues whose lease a member has, and how far each is on its way. PURE."""

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from trimtab.balance.leased_effects import Question
from trimtab.balance.trust import Grant
from trimtab.model import MessageQueue


class Phase(enum.Enum):
    """Where a queue is on its way to this member or away from it."""

    STARTING = "starting"
    HELD = "held"
    RECHECKING = "rechecking"
    DRAINING = "draining"
    COMMITTING = "committing"


MAY_COMMIT: Final = frozenset({Phase.HELD, Phase.DRAINING, Phase.COMMITTING})
LEAVING: Final = (Phase.DRAINING, Phase.COMMITTING)
COMMIT_AGAIN_MS: Final = 200
NEVER_MS: Final = 2**62


@dataclass(slots=True)
class Holding:
    """One queue of this member; `asked` is the question whose answer it waits for."""

    queue: MessageQueue
    phase: Phase
    since_ms: int
    asked: Question | None = None
    is_fenced: bool = False
    is_doubted: bool = False
    """On its way out, and somebody else may have held it since: the offset is looked at before it is written."""
    epoch: int | None = None
    """Under which lease it is held, where the broker counts them."""
    leaving_since_ms: int = 0
    cause: str = ""
    grant: Grant = field(default_factory=Grant)
    """The lease by which it is held; one that was given up or lost is trusted no more."""

    def may_hand_out(self, now_ms: int) -> bool:
        """Whether a handler may be started for a message of the queue. Asked before every message, so it looks up nothing."""
        return now_ms < self.grant.until_ms and self.phase is Phase.HELD

    def next_ms(self, drain_ms_max: int) -> int:
        """When something is to be done about it, if nothing happens meanwhile: a fence, handlers that do not end, a commit again."""
        if self.phase is Phase.HELD and not self.is_fenced:
            return self.grant.until_ms
        if self.phase is Phase.DRAINING:
            return self.leaving_since_ms + drain_ms_max + 1
        if self.phase is Phase.COMMITTING and self.asked is None:
            return self.since_ms + COMMIT_AGAIN_MS
        return NEVER_MS


class Holdings(dict[MessageQueue, Holding]):
    """By queue, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.brokers: dict[str, int] = {}
        """How many queues each broker has of them, of those that have any."""

    def __setitem__(self, queue: MessageQueue, holding: Holding) -> None:
        if queue not in self:
            self.brokers[queue.broker_name] = self.brokers.get(queue.broker_name, 0) + 1
        super().__setitem__(queue, holding)

    def __delitem__(self, queue: MessageQueue) -> None:
        super().__delitem__(queue)
        self.brokers[queue.broker_name] -= 1
        if not self.brokers[queue.broker_name]:
            del self.brokers[queue.broker_name]

    def by_broker(self, brokers: Iterable[str]) -> dict[str, list[MessageQueue]]:
        """The queues of these brokers."""
        wanted = frozenset(brokers)
        found: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in self:
            if queue.broker_name in wanted:
                found[queue.broker_name].append(queue)
        return found

    def next_ms(self, drain_ms_max: int) -> int:
        """When something is to be done about one of them, if nothing happens meanwhile."""
        next_ms = NEVER_MS
        for holding in self.values():
            # Nearly all are so; whoever drives the machine asks after every event.
            is_usual = holding.phase is Phase.HELD and not holding.is_fenced
            at_ms = holding.grant.until_ms if is_usual else holding.next_ms(drain_ms_max)
            next_ms = min(next_ms, at_ms)
        return next_ms

    def in_phase(self, *phases: Phase) -> Iterator[MessageQueue]:
        """The queues that are so far."""
        return (queue for queue, holding in self.items() if holding.phase in phases)

    def held(self, topic: str | None = None) -> tuple[MessageQueue, ...]:
        """The queues that are read now."""
        return tuple(queue for queue in self.in_phase(Phase.HELD) if topic in (None, queue.topic))

    def kept(self) -> list[MessageQueue]:
        """Those that are this member's and not on their way out."""
        return list(self.in_phase(Phase.HELD, Phase.STARTING, Phase.RECHECKING))

    def waiting_for(self, question: Question, queue: MessageQueue) -> Holding | None:
        """The queue's holding, if it still waits for the answer to this very question."""
        holding = self.get(queue)
        return holding if holding is not None and holding.asked is question else None

    def topics_in_motion(self) -> set[str]:
        """Topics of which some queue is on its way to this member or away from it."""
        return {queue.topic for queue, holding in self.items() if holding.phase is not Phase.HELD}
