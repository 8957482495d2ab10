"""Which queues one member of a group holds, and how it comes by them and lets them go: points C6 to C9. PURE.

Events come in with the time, effects go out; the client and the simulator do the effects and report back. A *view* is what the
member sees of a topic: its queues and the group's members. The strategy makes the member's *share* of it. What is held and not in the
share is given up; what is in the share and not held is taken:

    take:  LOCKING (ordered only) -> STARTING (where to read from?) -> HELD (its one pull request runs)
    leave: HELD -> gone at once, or LEAVING (ordered) until the handler that runs let go of it

A queue is in one phase at a time, and `HELD` is entered once per taking, so that there is at most one pull request per queue and
group. An effect that wants an answer is given back with it; an answer to a question that the member no longer asks is dropped,
because the view moved on while it travelled. A round that changed something ends with exactly one `Changed`.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from trimtab.balance.order import sorted_names, sorted_queues
from trimtab.balance.ordered import LATE_UNLOCK_MS
from trimtab.balance.rebalance_effects import (
    Changed,
    Drop,
    Effect,
    Lock,
    ReadStart,
    Release,
    ShareFailed,
    StartPull,
    Unlock,
    UnlockLater,
    Why,
)
from trimtab.balance.strategies import Strategy
from trimtab.model import MessageQueue

SILENT_PULL_MS_MAX: Final = 120_000
REBALANCE_EVERY_MS: Final = 20_000


class Phase(enum.Enum):
    """Where a queue is on its way to this member or away from it."""

    LOCKING = "locking"
    STARTING = "starting"
    HELD = "held"
    LEAVING = "leaving"


@dataclass(slots=True)
class Holding:
    """One queue of this member. `asked` is the question whose answer it waits for."""

    queue: MessageQueue
    phase: Phase
    since_ms: int
    pulled_ms: int
    asked: Lock | ReadStart | Release | None = None


@dataclass(slots=True)
class _Round:
    """The last view of a topic, in numbers, and what it led to."""

    share: dict[MessageQueue, None] = field(default_factory=dict)
    queue_count: int = 0
    member_count: int = 0
    waiting: dict[MessageQueue, None] = field(default_factory=dict)
    has_changed: bool = False


class Rebalance:
    """One member of one group. See the module's own words."""

    def __init__(
        self,
        group: str,
        client_id: str,
        strategy: Strategy,
        *,
        is_ordered: bool = False,
        is_broadcast: bool = False,
        is_push: bool = True,
    ) -> None:
        self.group = group
        self.client_id = client_id
        self.strategy = strategy
        self.needs_lock = is_ordered and not is_broadcast
        self.is_broadcast = is_broadcast
        self._is_push = is_push
        self._holdings: dict[MessageQueue, Holding] = {}
        self._rounds: dict[str, _Round] = {}

    def __repr__(self) -> str:
        phases = [holding.phase for holding in self._holdings.values()]
        counts = ", ".join(f"{phase.value}={phases.count(phase)}" for phase in Phase if phase in phases)
        return f"<Rebalance {self.group} {self.client_id} {counts or 'nothing'}>"

    def __len__(self) -> int:
        """Queues in any phase."""
        return len(self._holdings)

    def holding(self, queue: MessageQueue) -> Holding | None:
        """The queue's state, if it has any."""
        return self._holdings.get(queue)

    def held(self, topic: str | None = None) -> tuple[MessageQueue, ...]:
        """The queues that are read now."""
        return tuple(
            queue
            for queue, holding in self._holdings.items()
            if holding.phase is Phase.HELD and topic in (None, queue.topic)
        )

    # --- views ------------------------------------------------------------------------------------------------

    def on_view(
        self, topic: str, queues: Iterable[MessageQueue] | None, members: Iterable[str] | None, now_ms: int
    ) -> list[Effect]:
        """The topic and the group as they are seen now; None for what could not be seen, which changes nothing."""
        if queues is None or (members is None and not self.is_broadcast):
            return []
        all_queues = sorted_queues(queues)
        all_members = sorted_names(members or ())
        share = self._share(all_queues, all_members)
        if isinstance(share, str):
            return [ShareFailed(topic, self.strategy.name, share)]
        step = self._rounds.setdefault(topic, _Round())
        step.share = dict.fromkeys(share)
        step.queue_count, step.member_count = len(all_queues), len(all_members)
        effects: list[Effect] = []
        for holding in [holding for queue, holding in self._holdings.items() if queue.topic == topic]:
            effects += self._look_at(holding, step, now_ms)
        effects += self._take([queue for queue in step.share if queue not in self._holdings], step, now_ms)
        return effects + self._end_of_round(topic, step)

    def on_subscriptions(self, topics: Iterable[str], now_ms: int) -> list[Effect]:
        """The topics of the group, the retry topic among them; queues of others are given up."""
        kept = set(topics)
        for topic in [topic for topic in self._rounds if topic not in kept]:
            del self._rounds[topic]
        effects: list[Effect] = []
        for holding in list(self._holdings.values()):
            if holding.queue.topic not in kept:
                effects += self._leave(holding, _Round(), Why.UNSUBSCRIBED, now_ms)
        return effects

    def _share(
        self, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> tuple[MessageQueue, ...] | str:
        if self.is_broadcast:
            return tuple(queues)
        try:
            return tuple(self.strategy.allocate(self.group, self.client_id, queues, members))
        except Exception as error:  # noqa: BLE001 - a user's strategy may raise anything, and that must not cost the queues
            return f"{type(error).__name__}: {error}"

    def _look_at(self, holding: Holding, step: _Round, now_ms: int) -> list[Effect]:
        if holding.queue not in step.share:
            return self._leave(holding, step, Why.NOT_MINE, now_ms)
        if holding.phase is Phase.LEAVING and holding.asked is None:
            return self._leave(holding, step, Why.NOT_MINE, now_ms)  # it was stuck; let go, then taken anew
        is_silent = now_ms - holding.pulled_ms > SILENT_PULL_MS_MAX
        if holding.phase is Phase.HELD and is_silent and self._is_push:
            return self._leave(holding, step, Why.SILENT, now_ms)
        return []

    # --- taking -----------------------------------------------------------------------------------------------

    def _take(self, queues: Sequence[MessageQueue], step: _Round, now_ms: int) -> list[Effect]:
        if not queues:
            return []
        lock = Lock(tuple(queues)) if self.needs_lock else None
        effects: list[Effect] = []
        for queue in queues:
            step.waiting[queue] = None
            if lock is not None:
                self._holdings[queue] = Holding(queue, Phase.LOCKING, now_ms, now_ms, lock)
            else:
                effects.append(self._begin(Holding(queue, Phase.STARTING, now_ms, now_ms)))
        return effects if lock is None else [lock]

    def _begin(self, holding: Holding) -> ReadStart:
        question = ReadStart(holding.queue)
        holding.phase, holding.asked = Phase.STARTING, question
        self._holdings[holding.queue] = holding
        return question

    def on_locked(self, question: Lock, granted: Iterable[MessageQueue], now_ms: int) -> list[Effect]:
        """What the brokers granted. A refused queue is left alone until the next round."""
        granted_now = set(granted)
        effects: list[Effect] = []
        for queue in question.queues:
            holding = self._holdings.get(queue)
            if holding is None or holding.asked is not question:
                # Nobody waits for it any more; whoever has it in the share shall not wait for us.
                effects += [Unlock(queue)] if queue in granted_now and holding is None else []
            elif queue in granted_now:
                holding.pulled_ms = now_ms
                effects.append(self._begin(holding))
            else:
                effects += self._give_way(queue)
        return effects

    def on_start(self, question: ReadStart, offset: int, now_ms: int) -> list[Effect]:
        """Where to read from; a negative offset: not now."""
        holding = self._holdings.get(question.queue)
        if holding is None or holding.asked is not question:
            return []
        if offset < 0:
            return self._give_way(question.queue)
        holding.phase, holding.asked = Phase.HELD, None
        holding.since_ms = holding.pulled_ms = now_ms
        return [StartPull(question.queue, offset), *self._settle(question.queue, has_changed=True)]

    def on_pull(self, queue: MessageQueue, now_ms: int) -> None:
        """The queue's pull request was at work."""
        holding = self._holdings.get(queue)
        if holding is not None:
            holding.pulled_ms = now_ms

    def _give_way(self, queue: MessageQueue) -> list[Effect]:
        """A queue that could not be taken in this round."""
        del self._holdings[queue]
        return self._settle(queue, has_changed=False)

    # --- leaving ----------------------------------------------------------------------------------------------

    def _leave(self, holding: Holding, step: _Round, why: Why, now_ms: int) -> list[Effect]:
        queue = holding.queue
        if holding.phase in (Phase.LOCKING, Phase.STARTING):
            was_locked = holding.phase is Phase.STARTING and self.needs_lock
            del self._holdings[queue]
            step.waiting.pop(queue, None)
            return [Unlock(queue)] if was_locked else []
        if self.needs_lock:
            if holding.asked is not None:
                return []
            question = Release(queue, why)
            holding.phase, holding.asked, holding.since_ms = Phase.LEAVING, question, now_ms
            step.waiting[queue] = None
            return [question]
        del self._holdings[queue]
        step.has_changed = True
        return [Drop(queue, why)]

    def on_released(
        self, question: Release, *, was_released: bool, has_messages: bool, now_ms: int
    ) -> list[Effect]:
        """Whether the handler that ran let go in time. If not, the next round tries again."""
        queue = question.queue
        holding = self._holdings.get(queue)
        if holding is None or holding.asked is not question:
            return []
        if not was_released:
            holding.asked = None
            return self._settle(queue, has_changed=False)
        del self._holdings[queue]
        step = self._rounds.get(queue.topic)
        if step is not None and queue in step.share:
            step.has_changed = True
            return self._take([queue], step, now_ms)
        unlock = UnlockLater(queue, LATE_UNLOCK_MS) if has_messages else Unlock(queue)
        return [unlock, *self._settle(queue, has_changed=True)]

    def on_unlock_due(self, queue: MessageQueue) -> list[Effect]:
        """The time for a late unlock; nothing if the queue came back meanwhile."""
        return [] if queue in self._holdings else [Unlock(queue)]

    def on_moved(self, queue: MessageQueue, now_ms: int) -> list[Effect]:
        """The queue's offset was set elsewhere: let it go, so that the next round takes it from there."""
        holding = self._holdings.get(queue)
        return [] if holding is None else self._leave(holding, self._round_of(queue.topic), Why.MOVED, now_ms)

    # --- the end of a round -----------------------------------------------------------------------------------

    def _round_of(self, topic: str) -> _Round:
        return self._rounds.get(topic) or _Round()

    def _settle(self, queue: MessageQueue, *, has_changed: bool) -> list[Effect]:
        step = self._rounds.get(queue.topic)
        if step is None:
            return []
        step.waiting.pop(queue, None)
        step.has_changed = step.has_changed or has_changed
        return self._end_of_round(queue.topic, step)

    def _end_of_round(self, topic: str, step: _Round) -> list[Effect]:
        if step.waiting or not step.has_changed:
            return []
        step.has_changed = False
        return [
            Changed(
                strategy=self.strategy.name if not self.is_broadcast else "BROADCASTING",
                group=self.group,
                topic=topic,
                client_id=self.client_id,
                queue_count=step.queue_count,
                member_count=step.member_count,
                mine=tuple(step.share),
            )
        ]
