"""Leased handover: a queue is read only while its lease is held, and given up in order. PURE.

    take:  ASKING (lock it) -> STARTING (where to read from?) -> HELD
    leave: HELD -> DRAINING (running handlers finish) -> COMMITTING (the offset is at the broker) -> unlocked, gone
    lapse: HELD -> (not trusted for a while, granted again) -> RECHECKING (did anybody else hold it meanwhile?) -> HELD, or STARTING anew

Events come in with the time, effects go out; the client and the simulator do them and report back. The planner says how many queues
this member should have and which it likes; the lock table of the brokers arbitrates, so members may see different views without
harm: a queue is with nobody for a moment, never with two. `trust.py` says how long a lease may be relied on, `takeover.py` when those of a member
that is gone may be ended. `may_hand_out` is asked before every single message.
"""

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trimtab.balance.holders import LOOK_AGAIN_MS, Holders, Told
from trimtab.balance.leased_effects import (
    Abandon,
    Acquire,
    AskAge,
    Commit,
    Drain,
    Evict,
    Happened,
    LeasedEffect,
    LookAtMembers,
    Measure,
    Question,
    Recheck,
    Renew,
    TakeTurn,
    Unlock,
)
from trimtab.balance.loads import MEASURE_EVERY_MS, Ends, Loads
from trimtab.balance.locks import LEASE_MS
from trimtab.balance.peers import RESTART_GRACE_MS, Peers
from trimtab.balance.rebalance_effects import Changed, ReadStart, ShareFailed, StartPull
from trimtab.balance.recorder import Kind
from trimtab.balance.strategies.plans import Load, Plan, Planner, View, follows_load, misfit
from trimtab.balance.strategies.sticky import Sticky
from trimtab.balance.takeover import LOOK_EVERY_MS, Absences
from trimtab.balance.trust import RENEW_EVERY_MS, Grant, Trust
from trimtab.balance.turns import Turns
from trimtab.errors import AllocationError
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
DRAIN_MS_MAX: Final = 30_000
COMMIT_AGAIN_MS: Final = 200
UNLOCK_AGAIN_MS: Final = 500
"""An unlock that failed is sent again so often, until the lease has ended by itself."""
NO_EPOCHS: Final[Mapping[MessageQueue, int]] = {}
"""Apache's brokers count none."""
EVICTORS: Final = 3
"""The first members in order end the leases of one that is gone even if they need none: who does may have joined after it went, and
cannot prove its absence. Not all of them do: the broker should not hear the same from a thousand."""
NEVER_MS: Final = 2**62
_EVEN: Final = Sticky()
"""How queues are shared while the planner's settings cannot share them."""
TICK_MS: Final = 25
"""How often `on_tick` should be called."""


class Phase(enum.Enum):
    """Where a queue is on its way to this member or away from it."""

    ASKING = "asking"
    STARTING = "starting"
    HELD = "held"
    RECHECKING = "rechecking"
    DRAINING = "draining"
    COMMITTING = "committing"


MAY_COMMIT: Final = frozenset({Phase.HELD, Phase.DRAINING, Phase.COMMITTING})


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


class LeasedRebalance:
    """One member of one group. See the module's own words."""

    def __init__(
        self,
        group: str,
        client_id: str,
        planner: Planner,
        *,
        has_new_id: bool = True,
        drain_ms_max: int = DRAIN_MS_MAX,
        restart_grace_ms: int = RESTART_GRACE_MS,
        measure_every_ms: int = MEASURE_EVERY_MS,
    ) -> None:
        self.group = group
        self.client_id = client_id
        self.planner = planner
        self._misfit: str | None = None
        self._fit_of: tuple[tuple[str, ...], tuple[MessageQueue, ...]] | None = None
        self.trust = Trust(has_new_id=has_new_id)
        self._drain_ms_max = drain_ms_max
        self._peers = Peers(client_id, restart_grace_ms=restart_grace_ms)
        self._absences = Absences()
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._all_queues: tuple[MessageQueue, ...] = ()
        self._holders = Holders(client_id)
        self._measured = Loads()
        self._loads: Mapping[MessageQueue, Load] = {}
        self._measures_every_ms = measure_every_ms if follows_load(planner) else None
        self._measuring: tuple[Measure, int] | None = None
        """What is being measured, and since when."""
        self._turns = Turns(measure_every_ms)
        self._may_move = False
        self._measured_ms = -NEVER_MS
        self._holdings: dict[MessageQueue, Holding] = {}
        self._refused: set[MessageQueue] = set()
        self._unlocking: dict[MessageQueue, int] = {}
        """Queues that a broker is told to unlock, and when their leases have ended even if it never hears of it."""
        self._unlock_again_ms: dict[MessageQueue, int] = {}
        self._asked: dict[tuple[type[Question], str], Question] = {}
        """Questions to brokers that are not answered yet: one of a kind and broker at a time."""
        self._renewed_ms: dict[str, int] = {}
        self._looked_ms: dict[str, int] = {}
        self._sweep_ms = 0
        self._moved_ms = 0
        self._told: dict[str, tuple[MessageQueue, ...]] = {}
        self._cause = "start"
        self._is_stopping = False
        self._has_left = False
        self._has_rival = False

    def __repr__(self) -> str:
        phases = [holding.phase.value for holding in self._holdings.values()]
        counts = ", ".join(f"{phase}={phases.count(phase)}" for phase in dict.fromkeys(phases))
        return f"<LeasedRebalance {self.group} {self.client_id} {counts or 'nothing'}>"

    # --- what is so -------------------------------------------------------------------------------------------

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

    def may_hand_out(self, queue: MessageQueue, now_ms: int) -> bool:
        """Whether a handler may be started for a message of the queue."""
        holding = self._holdings.get(queue)
        return holding is not None and holding.may_hand_out(now_ms)

    def may_commit(self, queue: MessageQueue, now_ms: int) -> bool:
        """Whether the offset of a queue that is held, or drained, may be written."""
        holding = self._holdings.get(queue)
        if holding is None or holding.is_doubted or holding.phase not in MAY_COMMIT:
            return False
        return self.trust.is_trusted(queue, now_ms)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held and nothing is on its way."""
        return not self._holdings and not self._unlocking

    # --- views ------------------------------------------------------------------------------------------------

    def on_view(
        self,
        queues: Mapping[str, Iterable[MessageQueue]],
        members: Iterable[str],
        now_ms: int,
        *,
        stable: Iterable[str] = (),
        holders: Told | None = None,
        cause: str = "",
    ) -> list[LeasedEffect]:
        """The group's topics and members as they are seen now, and who holds what where a broker tells it.

        `stable` members keep their ids over a restart.
        """
        before = self._queues, self._peers.counted
        self._queues = {topic: tuple(found) for topic, found in queues.items()}
        if self._queues != before[0]:
            self._all_queues = tuple(queue for found in self._queues.values() for queue in found)
            self._holders.on_queues(self._all_queues)
            self._measured.keep_only(frozenset(self._all_queues))
        change = self._peers.on_seen(members, stable, now_ms)
        self._holders.on_told(holders or {}, self._holdings, now_ms)
        self._holders.on_members(self._peers.present, frozenset(self._peers.counted))
        effects: list[LeasedEffect] = []
        if before != (self._queues, self._peers.counted):
            self._moved_ms, self._sweep_ms = now_ms, now_ms
            self._measured_ms = -NEVER_MS
            self._refused.clear()
            self._cause = cause or change or "the queues changed"
            effects.append(Happened(Kind.VIEW, cause=self._cause, detail=self._view_in_words()))
        return effects + self._act(now_ms)

    def on_measured(
        self,
        question: Measure,
        ends: Mapping[MessageQueue, Ends],
        holders: Told,
        sent_ms: int,
        now_ms: int,
    ) -> list[LeasedEffect]:
        """How far the group and its queues have come, and who holds what, as brokers and members told it after `sent_ms`."""
        if self._measuring is not None and self._measuring[0] is question:
            self._measuring = None
        self._measured_ms = now_ms
        self._holders.on_told(holders, self._holdings, now_ms)
        self._holders.on_members(self._peers.present, frozenset(self._peers.counted))
        self._loads = self._measured.on_measured(ends, now_ms)
        self._may_move = self._turns.may_move(sent_ms)
        effects = self._act(now_ms)
        self._may_move = False
        return effects

    def _measures(self, now_ms: int) -> list[LeasedEffect]:
        if now_ms < self._measure_ms() or self._is_stopping or not self._queues:
            return []
        return self._measure(now_ms)

    def _measure_ms(self) -> int:
        """When it is to be measured again."""
        if self._measuring is not None:
            return NEVER_MS
        every_ms, again_ms = self._measures_every_ms, self._holders.look_again_ms
        due_ms = NEVER_MS if every_ms is None else self._measured_ms + every_ms
        return due_ms if again_ms is None else min(due_ms, max(again_ms, self._measured_ms + LOOK_AGAIN_MS))

    def _measure(self, now_ms: int) -> list[LeasedEffect]:
        question = Measure()
        self._measuring = question, now_ms
        return [question]

    def on_turn(self, _question: TakeTurn, *, is_granted: bool, now_ms: int) -> list[LeasedEffect]:
        """Whether this member may move queues now; if so it measures anew first."""
        if self._turns.on_answer(is_granted=is_granted, now_ms=now_ms):
            return self._measure(now_ms)
        return []

    def _turns_end(self, now_ms: int) -> list[LeasedEffect]:
        leaving = {
            q for q, holding in self._holdings.items() if holding.phase in (Phase.DRAINING, Phase.COMMITTING)
        }
        return [*self._turns.on_tick(frozenset(leaving | self._unlocking.keys()), now_ms)]

    def on_tick(self, now_ms: int) -> list[LeasedEffect]:
        """Time passed: renewals, fences, looks at who is there, queues that may have become free."""
        effects: list[LeasedEffect] = []
        effects += self._fences(now_ms)
        effects += self._renewals(now_ms)
        effects += self._looks(now_ms)
        effects += self._overdue(now_ms)
        effects += self._unlocks_again(now_ms)
        effects += self._measures(now_ms)
        effects += self._turns_end(now_ms)
        if self._peers.on_tick(now_ms):
            self._holders.on_members(self._peers.present, frozenset(self._peers.counted))
            self._moved_ms, self._sweep_ms = now_ms, now_ms
            self._cause = "a member did not come back"
        if now_ms >= self._sweep_ms:
            effects += self._act(now_ms)
        return effects

    def next_ms(self, now_ms: int) -> int:
        """When `on_tick` has something to do next, as things are now. Whoever ticks less often calls it after every event."""
        times = [self._sweep_ms, self._peers.next_ms(), *self._unlock_again_ms.values()]
        times += [self._measure_ms(), self._turns.next_ms() or NEVER_MS]
        times += [
            self._looked_ms.get(broker, now_ms - LOOK_EVERY_MS) + LOOK_EVERY_MS
            for broker in self._absences.brokers()
            if (LookAtMembers, broker) not in self._asked
        ]
        brokers: dict[str, None] = {}
        for queue, holding in self._holdings.items():
            if holding.phase is Phase.ASKING:
                continue
            brokers[queue.broker_name] = None
            if holding.phase is Phase.HELD and not holding.is_fenced:
                times.append(self.trust.ends_ms(queue))
            elif holding.phase is Phase.DRAINING:
                times.append(holding.leaving_since_ms + self._drain_ms_max + 1)
            elif holding.phase is Phase.COMMITTING and holding.asked is None:
                times.append(holding.since_ms + COMMIT_AGAIN_MS)
        for broker in brokers:
            if (Renew, broker) not in self._asked and not self._has_left:
                due_ms = self._renewed_ms.get(broker, now_ms - RENEW_EVERY_MS) + RENEW_EVERY_MS
                times.append(max(due_ms, self.trust.may_ask_ms(broker)))
        return max(now_ms, min(times))

    def on_stop(self, now_ms: int) -> list[LeasedEffect]:
        """Give everything up in order, and take nothing more."""
        self._is_stopping = True
        self._cause = "stop"
        return [*self._turns.end(), *self._act(now_ms)]

    @property
    def is_drained(self) -> bool:
        """Whether no handler is at work any more."""
        return all(holding.phase is Phase.COMMITTING for holding in self._holdings.values())

    def on_farewell(self) -> None:
        """The brokers list this member no longer: nothing is renewed, so what is held ends by itself before others may end it."""
        self._has_left = True

    # --- deciding ---------------------------------------------------------------------------------------------

    def _act(self, now_ms: int) -> list[LeasedEffect]:
        knew_misfit = self._misfit is not None
        try:
            plan = self._plan(now_ms)
        except AllocationError as error:
            self._sweep_ms = now_ms + CALM_SWEEP_EVERY_MS
            return [ShareFailed("", self.planner.name, str(error))]
        effects: list[LeasedEffect] = []
        if self._misfit is not None and not knew_misfit:
            effects.append(Happened(Kind.MISFIT, cause=self._misfit, detail=self.planner.name))
        if self._may_move:
            self._may_move = False
            self._cause = "load" if plan.give_up else self._cause
            effects += self._turns.used(frozenset(plan.give_up), now_ms)
        elif plan.wants_turn and not self._is_stopping:
            effects += self._turns.wish(min(queue.broker_name for queue in self._all_queues), now_ms)
        for queue in plan.give_up:
            effects += self._leave(self._holdings[queue], now_ms)
        effects += self._acquire(plan, now_ms)
        return effects + self._changes()

    def _fitting_plan(self, view: View) -> Plan:
        """The planner's, or an even share while its settings cannot share this group: no queue waits for a setting."""
        seen = (view.members, view.queues)
        if seen != self._fit_of:
            self._fit_of, self._misfit = seen, misfit(self.planner, view)
        try:
            return self.planner.plan(view)
        except AllocationError:
            if self._misfit is None:
                raise
            return _EVEN.plan(view)

    def _plan(self, now_ms: int) -> Plan:
        held = [
            queue
            for queue, holding in self._holdings.items()
            if holding.phase in (Phase.HELD, Phase.STARTING, Phase.RECHECKING)
        ]
        if self._is_stopping or not self._queues:
            return Plan(keep=(), give_up=tuple(held))
        return self._fitting_plan(
            View(
                group=self.group,
                me=self.client_id,
                queues=self._all_queues,
                members=self._peers.counted,
                held=frozenset(held),
                holders=self._holders.known(now_ms),
                refused=frozenset(self._refused),
                waiting=self._holders.waiting(now_ms),
                loads=self._loads,
                may_move=self._may_move,
            )
        )

    def _acquire(self, plan: Plan, now_ms: int) -> list[LeasedEffect]:
        asking = sum(holding.phase is Phase.ASKING for holding in self._holdings.values())
        missing = plan.acquire_max - asking
        if missing <= 0:
            self._sweep_ms = NEVER_MS
            return []
        untried = [queue for queue in plan.acquire if queue not in self._refused]
        if not untried:
            # Everybody else has them. Somebody may be handing over, so ask again: soon while the group moves, seldom after that.
            self._refused.clear()
            in_motion = now_ms - self._moved_ms < MOTION_MS
            self._sweep_ms = now_ms + (SWEEP_EVERY_MS if in_motion else CALM_SWEEP_EVERY_MS)
            return []
        self._sweep_ms = now_ms + SWEEP_EVERY_MS
        return self._ask_for(untried, missing, len(plan.acquire), now_ms)

    def _ask_for(
        self, queues: Iterable[MessageQueue], missing: int, candidates: int, now_ms: int
    ) -> list[LeasedEffect]:
        """Asks for as many as are missing; for more, if looking at all would else take too many requests."""
        most = max(missing, candidates // SWEEP_REQUESTS_MAX)
        chosen: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        open_brokers: dict[str, bool] = {}
        for queue in queues:
            broker = queue.broker_name
            if broker not in open_brokers:
                is_free = (Acquire, broker) not in self._asked
                open_brokers[broker] = is_free and self.trust.may_ask(broker, now_ms)
            if not open_brokers[broker] or queue in self._holdings or queue in self._unlocking:
                continue
            chosen[broker].append(queue)
            open_brokers[broker] = len(chosen[broker]) < ACQUIRE_QUEUES_MAX
            most -= 1
            if not most:
                break
        effects: list[LeasedEffect] = []
        for broker, asked in chosen.items():
            question = Acquire(broker, tuple(asked))
            self._asked[Acquire, broker] = question
            for queue in asked:
                self._holdings[queue] = Holding(queue, Phase.ASKING, now_ms, question, cause=self._cause)
                self._holders.asked(queue)
            effects.append(question)
        return effects

    # --- taking -----------------------------------------------------------------------------------------------

    def on_acquired(
        self,
        question: Acquire,
        granted: Iterable[MessageQueue],
        sent_ms: int,
        now_ms: int,
        *,
        epochs: Mapping[MessageQueue, int] = NO_EPOCHS,
    ) -> list[LeasedEffect]:
        """What the broker granted of what was asked for at `sent_ms`, and the epochs of these leases, if it has such."""
        self._answered(question)
        granted_now = set(granted)
        surplus: list[MessageQueue] = []
        effects: list[LeasedEffect] = []
        room = self._room(now_ms)
        for queue in question.queues:
            holding = self._holdings.get(queue)
            if holding is None or holding.asked is not question:
                continue
            del self._holdings[queue]
            if queue not in granted_now:
                self._refused.add(queue)
            elif room > 0 and self.trust.on_granted(queue, sent_ms):
                room -= 1
                holding.epoch, holding.grant = epochs.get(queue), self.trust.grant(queue)
                effects.append(self._begin(holding))
            else:
                surplus.append(queue)
        if surplus:
            effects.append(self._unlock(question.broker_name, surplus, now_ms))
        return effects + self._act(now_ms)

    def _acquire_failed(self, question: Acquire, now_ms: int, *, may_be_granted: bool) -> list[LeasedEffect]:
        """Nobody knows what was granted: it is given back, or it would be with nobody until the lease ends."""
        self._answered(question)
        strays = [queue for queue in question.queues if self._is_asked_by(queue, question)]
        for queue in strays:
            del self._holdings[queue]
        self._refused.update(strays)
        unlock = [self._unlock(question.broker_name, strays, now_ms)] if strays and may_be_granted else []
        return [*unlock, *self._act(now_ms)]

    def _is_asked_by(self, queue: MessageQueue, question: Question) -> bool:
        holding = self._holdings.get(queue)
        return holding is not None and holding.asked is question

    def _room(self, now_ms: int) -> int:
        """How many of the queues that are asked for now are wanted."""
        if self._is_stopping:
            return 0
        try:
            return self._plan(now_ms).acquire_max
        except AllocationError:
            return 0

    def _begin(self, holding: Holding) -> ReadStart:
        question = ReadStart(holding.queue)
        holding.phase, holding.asked = Phase.STARTING, question
        self._holdings[holding.queue] = holding
        self._holders.took(holding.queue)
        return question

    def on_start(self, question: ReadStart, offset: int, now_ms: int) -> list[LeasedEffect]:
        """Where to read from; a negative offset: not now."""
        holding = self._holdings.get(question.queue)
        if holding is None or holding.asked is not question:
            return []
        if offset < 0:
            self._forget(holding)
            self._holders.left(holding.queue, now_ms)
            self._refused.add(holding.queue)
            return [self._unlock(holding.queue.broker_name, [holding.queue], now_ms)]
        took_ms = now_ms - holding.since_ms
        holding.phase, holding.asked, holding.since_ms = Phase.HELD, None, now_ms
        happened = Happened(
            Kind.ACQUIRED, cause=holding.cause, queue=holding.queue, offset=offset, duration_ms=took_ms
        )
        return [StartPull(question.queue, offset), happened, *self._changes()]

    # --- leaving ----------------------------------------------------------------------------------------------

    def _leave(self, holding: Holding, now_ms: int) -> list[LeasedEffect]:
        self._holders.left(holding.queue, now_ms)
        if holding.phase is Phase.STARTING:
            self._forget(holding)
            return [self._unlock(holding.queue.broker_name, [holding.queue], now_ms)]
        question = Drain(holding.queue)
        # Nobody has said yet whether somebody else had it: that must be known before its offset is written.
        holding.is_doubted = holding.is_doubted or holding.phase is Phase.RECHECKING
        holding.phase, holding.asked = Phase.DRAINING, question
        holding.leaving_since_ms, holding.cause = now_ms, self._cause
        return [question, Happened(Kind.DRAINING, cause=self._cause, queue=holding.queue)]

    def on_drained(self, question: Drain, now_ms: int) -> list[LeasedEffect]:
        """No handler runs for the queue any more."""
        holding = self._holdings.get(question.queue)
        if holding is None or holding.asked is not question:
            return []
        return self._commit(holding, now_ms)

    def _commit(self, holding: Holding, now_ms: int) -> list[LeasedEffect]:
        if not self.trust.is_trusted(holding.queue, now_ms):
            lost = self._lose(
                holding, Kind.FENCED, "the lease could not be renewed while the queue was given up", now_ms
            )
            # The broker may still count it as this member's, and nobody else can end the lease of one who is there.
            return [*lost, self._unlock(holding.queue.broker_name, [holding.queue], now_ms)]
        question = Recheck(holding.queue) if holding.is_doubted else Commit(holding.queue)
        holding.phase, holding.asked = Phase.COMMITTING, question
        return [question]

    def on_committed(self, question: Commit, *, is_written: bool, now_ms: int) -> list[LeasedEffect]:
        """Whether the offset is at the broker. If not, it is tried again while the lease is trusted."""
        holding = self._holdings.get(question.queue)
        if holding is None or holding.asked is not question:
            return []
        if not is_written:
            holding.asked, holding.since_ms = None, now_ms
            return []
        self._forget(holding)
        self._sweep_ms = now_ms
        released = Happened(
            Kind.RELEASED,
            cause=holding.cause,
            queue=holding.queue,
            duration_ms=now_ms - holding.leaving_since_ms,
        )
        unlock = self._unlock(holding.queue.broker_name, [holding.queue], now_ms)
        return [unlock, released, *self._changes()]

    def on_commit_refused(self, queue: MessageQueue, epoch: int, now_ms: int) -> list[LeasedEffect]:
        """The broker has granted the queue anew since it was granted under this epoch."""
        holding = self._holdings.get(queue)
        if holding is None or holding.epoch != epoch:
            return []
        self._sweep_ms = now_ms
        lost = self._lose(
            holding, Kind.LOST, "the broker refused its offset: the queue was granted anew", now_ms
        )
        return [*lost, self._unlock(queue.broker_name, [queue], now_ms)]

    def _unlock(self, broker_name: str, queues: Iterable[MessageQueue], now_ms: int) -> Unlock:
        question = Unlock(broker_name, tuple(queues))
        for queue in question.queues:
            self._unlocking[queue] = now_ms + LEASE_MS
        return question

    def on_unlocked(self, question: Unlock, now_ms: int) -> list[LeasedEffect]:
        """The broker knows, or the leases have ended by themselves."""
        for queue in question.queues:
            self._unlocking.pop(queue, None)
            self._unlock_again_ms.pop(queue, None)
        self._refused.difference_update(question.queues)
        self._sweep_ms = min(self._sweep_ms, now_ms + SWEEP_EVERY_MS)
        return []

    def _unlocks_again(self, now_ms: int) -> list[LeasedEffect]:
        """Else nobody could have the queues until their leases end."""
        due: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in [queue for queue, due_ms in self._unlock_again_ms.items() if now_ms >= due_ms]:
            del self._unlock_again_ms[queue]
            if now_ms < self._unlocking[queue]:
                due[queue.broker_name].append(queue)
            else:
                del self._unlocking[queue]
        return [Unlock(broker, tuple(queues)) for broker, queues in due.items()]

    def _overdue(self, now_ms: int) -> list[LeasedEffect]:
        """Handlers that do not end, and commits to be tried again."""
        effects: list[LeasedEffect] = []
        for holding in list(self._holdings.values()):
            if holding.phase is Phase.DRAINING and now_ms - holding.leaving_since_ms > self._drain_ms_max:
                effects += self._commit(holding, now_ms)
            elif holding.asked is None and holding.phase is Phase.COMMITTING:
                is_due = now_ms - holding.since_ms >= COMMIT_AGAIN_MS
                effects += self._commit(holding, now_ms) if is_due else []
        return effects

    def _lose(self, holding: Holding, kind: Kind, cause: str, now_ms: int) -> list[LeasedEffect]:
        self._forget(holding)
        self._holders.left(holding.queue, now_ms)
        return [Abandon(holding.queue), Happened(kind, cause=cause, queue=holding.queue), *self._changes()]

    def _forget(self, holding: Holding) -> None:
        del self._holdings[holding.queue]
        self.trust.forget(holding.queue)

    def on_moved(self, queue: MessageQueue, now_ms: int) -> list[LeasedEffect]:
        """The queue's offset was set elsewhere: give it up in order, which writes the new one, and take it anew from there."""
        holding = self._holdings.get(queue)
        if holding is None or holding.phase is not Phase.HELD:
            return []
        self._cause = "its offset was set elsewhere"
        self._sweep_ms = now_ms
        return self._leave(holding, now_ms)

    # --- leases -----------------------------------------------------------------------------------------------

    def _renewals(self, now_ms: int) -> list[LeasedEffect]:
        due: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue, holding in self._holdings.items():
            if holding.phase is not Phase.ASKING and not self._has_left:
                due[queue.broker_name].append(queue)
        effects: list[LeasedEffect] = []
        for broker, queues in due.items():
            is_soon = now_ms - self._renewed_ms.get(broker, -RENEW_EVERY_MS) < RENEW_EVERY_MS
            if is_soon or (Renew, broker) in self._asked or not self.trust.may_ask(broker, now_ms):
                continue
            question = Renew(broker, tuple(queues))
            self._asked[Renew, broker] = question
            self._renewed_ms[broker] = now_ms
            effects.append(question)
        return effects

    def on_renewed(
        self,
        question: Renew,
        granted: Iterable[MessageQueue],
        sent_ms: int,
        now_ms: int,
        *,
        epochs: Mapping[MessageQueue, int] = NO_EPOCHS,
    ) -> list[LeasedEffect]:
        """What the broker still grants. The rest is somebody else's."""
        self._answered(question)
        granted_now = set(granted)
        effects: list[LeasedEffect] = []
        for queue in question.queues:
            holding = self._holdings.get(queue)
            if holding is None or holding.phase is Phase.ASKING:
                if queue in granted_now:
                    effects += self._loose(question.broker_name, [queue], now_ms)
            elif queue in granted_now:
                effects += self._renewed(holding, epochs.get(queue), sent_ms, now_ms)
            else:
                effects += self._lose(holding, Kind.LOST, "another member has the lease", now_ms)
                self._sweep_ms = now_ms
        return effects

    def _loose(self, broker_name: str, queues: Iterable[MessageQueue], now_ms: int) -> list[LeasedEffect]:
        """Given up while a renewal travelled, which may have locked them again after the unlock."""
        loose = [queue for queue in queues if queue not in self._holdings and queue not in self._unlocking]
        return [self._unlock(broker_name, loose, now_ms)] if loose and not self._has_rival else []

    def _renewed(self, holding: Holding, epoch: int | None, sent_ms: int, now_ms: int) -> list[LeasedEffect]:
        is_another = None not in (epoch, holding.epoch) and epoch != holding.epoch
        was_interrupted = is_another or not self.trust.is_trusted(holding.queue, now_ms)
        if not self.trust.on_granted(holding.queue, sent_ms) or not was_interrupted:
            return []
        # Somebody else may have had the queue, and given it back, while this member did not trust its lease.
        holding.epoch = epoch
        if holding.phase is Phase.STARTING:
            return [self._begin(holding)]
        if holding.phase in (Phase.DRAINING, Phase.COMMITTING):
            holding.is_doubted = True
            return []
        question = Recheck(holding.queue)
        holding.phase, holding.asked = Phase.RECHECKING, question
        return [question]

    def on_rechecked(self, question: Recheck, *, is_unchanged: bool, now_ms: int) -> list[LeasedEffect]:
        """Whether the group's offset is still this member's own word. If so it goes on, else it begins anew."""
        holding = self._holdings.get(question.queue)
        if holding is None or holding.asked is not question:
            return []
        if holding.phase is Phase.COMMITTING:
            return self._rechecked_on_leaving(holding, is_unchanged=is_unchanged, now_ms=now_ms)
        if is_unchanged:
            holding.phase, holding.asked = Phase.HELD, None
            return self._act(now_ms)
        holding.since_ms, holding.cause = now_ms, "another member held it meanwhile"
        lost = Happened(Kind.LOST, cause=holding.cause, queue=holding.queue)
        return [Abandon(holding.queue), lost, self._begin(holding)]

    def _rechecked_on_leaving(
        self, holding: Holding, *, is_unchanged: bool, now_ms: int
    ) -> list[LeasedEffect]:
        if is_unchanged:
            holding.is_doubted = False
            return self._commit(holding, now_ms)
        lost = self._lose(holding, Kind.LOST, "another member held it while it was given up", now_ms)
        return [*lost, self._unlock(holding.queue.broker_name, [holding.queue], now_ms)]

    def _fences(self, now_ms: int) -> list[LeasedEffect]:
        effects: list[LeasedEffect] = []
        for queue, holding in self._holdings.items():
            if holding.phase is not Phase.HELD:
                continue
            is_fenced = not self.trust.is_trusted(queue, now_ms)
            if is_fenced and not holding.is_fenced:
                effects.append(Happened(Kind.FENCED, cause="the lease could not be renewed", queue=queue))
            holding.is_fenced = is_fenced
        return effects

    def on_listed(self, broker_name: str, now_ms: int) -> list[LeasedEffect]:
        """The broker acknowledged a heartbeat of this member."""
        asks: list[LeasedEffect] = [AskAge(broker_name)] if self.trust.on_listed(broker_name, now_ms) else []
        return asks + (self._act(now_ms) if now_ms >= self._sweep_ms else [])

    def on_age(self, question: AskAge, up_ms: int, now_ms: int) -> list[LeasedEffect]:
        """For how long a broker that had never listed this member before has been up."""
        self.trust.on_age(question.broker_name, up_ms)
        return self._act(now_ms) if now_ms >= self._sweep_ms else []

    def on_connection_lost(self, broker_name: str, now_ms: int) -> list[LeasedEffect]:
        """The connection to the broker is gone; its leases are not trusted until they are renewed over a new one."""
        self.trust.on_lost(broker_name, now_ms)
        self._peers.on_broker_lost(now_ms)
        self._renewed_ms.pop(broker_name, None)
        return self._fences(now_ms)

    # --- members that are gone --------------------------------------------------------------------------------

    def _looks(self, now_ms: int) -> list[LeasedEffect]:
        effects: list[LeasedEffect] = []
        for broker in self._absences.brokers():
            is_soon = now_ms - self._looked_ms.get(broker, -LOOK_EVERY_MS) < LOOK_EVERY_MS
            if is_soon or (LookAtMembers, broker) in self._asked:
                continue
            question = LookAtMembers(broker)
            self._asked[LookAtMembers, broker] = question
            self._looked_ms[broker] = now_ms
            effects.append(question)
        return effects

    def on_members(
        self,
        question: LookAtMembers | None,
        broker_name: str,
        members: Iterable[str],
        sent_ms: int,
        now_ms: int,
    ) -> list[LeasedEffect]:
        """A broker's list of the group, asked for at `sent_ms`; by this machine's question or for a view."""
        if question is not None:
            self._answered(question)
        gone = self._absences.on_members(broker_name, members, sent_ms, now_ms)
        effects: list[LeasedEffect] = []
        for member in gone:
            if member in self._peers.counted or (Evict, broker_name) in self._asked:
                continue
            if not self._room(now_ms) and self.client_id not in self._peers.counted[:EVICTORS]:
                self._absences.on_ended(broker_name, member)  # I need nothing of it; others will see to it
                continue
            there = tuple(
                queue
                for queues in self._queues.values()
                for queue in queues
                if queue.broker_name == broker_name and not self._has(queue)
            )
            evict = Evict(broker_name, member, there)
            self._asked[Evict, broker_name] = evict
            effects.append(evict)
        return effects

    def _has(self, queue: MessageQueue) -> bool:
        holding = self._holdings.get(queue)
        return holding is not None and holding.phase is not Phase.ASKING

    def on_evicted(self, question: Evict, now_ms: int) -> list[LeasedEffect]:
        """The broker has unlocked what the one that is gone had."""
        self._answered(question)
        self._absences.on_ended(question.broker_name, question.member)
        if not self._room(now_ms):
            return []  # done for others; it may have left in order, and then nothing was there to take
        self._refused.clear()
        self._moved_ms, self._sweep_ms = now_ms, now_ms
        self._cause = f"{question.member} is gone"
        happened = Happened(Kind.TAKEN_OVER, cause=self._cause, other=question.member)
        return [happened, *self._act(now_ms)]

    # --- another one with the same id -------------------------------------------------------------------------

    def on_rival(self, cause: str) -> list[LeasedEffect]:
        """Another process has this member's id, and with it its leases. Everything is let go, nothing is unlocked: that would free what is the other's."""
        self._is_stopping = self._has_left = self._has_rival = True
        self._unlocking.clear()
        self._unlock_again_ms.clear()
        effects: list[LeasedEffect] = []
        for holding in list(self._holdings.values()):
            if holding.phase is Phase.ASKING:
                self._forget(holding)
            else:
                effects += self._lose(holding, Kind.LOST, cause, holding.since_ms)
        return effects

    # --- questions without an answer --------------------------------------------------------------------------

    def on_failed(
        self, question: Question, now_ms: int, *, may_have_happened: bool = True
    ) -> list[LeasedEffect]:
        """A question got no answer, or an error: it is asked again when its time has come."""
        if isinstance(question, Acquire):
            return self._acquire_failed(question, now_ms, may_be_granted=may_have_happened)
        if isinstance(question, ReadStart):
            return self.on_start(question, -1, now_ms)
        if isinstance(question, Commit):
            return self.on_committed(question, is_written=False, now_ms=now_ms)
        if isinstance(question, Unlock):
            again_ms = now_ms + UNLOCK_AGAIN_MS
            self._unlock_again_ms.update(
                {queue: again_ms for queue in question.queues if queue in self._unlocking}
            )
            return []
        if isinstance(question, Recheck):
            return self.on_rechecked(question, is_unchanged=False, now_ms=now_ms)
        if isinstance(question, TakeTurn):
            return self.on_turn(question, is_granted=False, now_ms=now_ms)
        if isinstance(question, Measure):
            return self.on_measured(question, {}, {}, now_ms, now_ms)
        self._answered(question)
        if isinstance(question, Renew) and may_have_happened:
            return self._loose(question.broker_name, question.queues, now_ms)
        return []

    # --- telling ----------------------------------------------------------------------------------------------

    def _answered(self, question: Question) -> None:
        if not isinstance(question, (Acquire, Renew, LookAtMembers, Evict)):
            return
        key = type(question), question.broker_name
        if self._asked.get(key) is question:
            del self._asked[key]

    def _changes(self) -> list[LeasedEffect]:
        """One line for each topic whose holdings changed, once nothing of it is on its way."""
        on_its_way = {
            queue.topic
            for queue, holding in self._holdings.items()
            if holding.phase not in (Phase.ASKING, Phase.HELD)
        }
        effects: list[LeasedEffect] = []
        for topic in dict.fromkeys((*self._queues, *self._told)):
            mine = self.held(topic)
            if topic in on_its_way or set(mine) == set(self._told.get(topic, ())):
                continue
            self._told[topic] = mine
            effects.append(
                Changed(
                    strategy=self.planner.name,
                    group=self.group,
                    topic=topic,
                    client_id=self.client_id,
                    queue_count=len(self._queues.get(topic, ())),
                    member_count=len(self._peers.counted),
                    mine=mine,
                )
            )
        return effects

    def _view_in_words(self) -> str:
        count = sum(len(queues) for queues in self._queues.values())
        return f"{count} queues, {len(self._peers.counted)} members"
