"""Leased handover: a queue is read only while its lease is held, and given up in order. PURE.

    take:  ASKING (lock it) -> STARTING (where to read from?) -> HELD
    leave: HELD -> DRAINING (running handlers finish) -> COMMITTING (the offset is at the broker) -> unlocked, gone
    lapse: HELD -> (not trusted for a while, granted again) -> RECHECKING (did anybody else hold it meanwhile?) -> HELD, or STARTING anew

Events come in with the time, effects go out; the client and the simulator do them and report back. The planner says how many queues
this member should have and which it likes; the lock table of the brokers arbitrates, so members may see different views without
harm: a queue is with nobody for a moment, never with two. `trust.py` says how long a lease may be relied on, `takeover.py` when those of a member
that is gone may be ended. `may_hand_out` is asked before every single message.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from trimtab.balance.asking import Asking
from trimtab.balance.fitting import Fitting
from trimtab.balance.holders import Holders, Told
from trimtab.balance.holdings import LEAVING, MAY_COMMIT, Holding, Holdings, Phase
from trimtab.balance.known_queues import all_of
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
from trimtab.balance.loads import MEASURE_EVERY_MS, Ends
from trimtab.balance.measuring import Measuring
from trimtab.balance.peers import RESTART_GRACE_MS, Peers
from trimtab.balance.questions import Questions
from trimtab.balance.rebalance_effects import ReadStart, ShareFailed, StartPull
from trimtab.balance.recorder import Kind
from trimtab.balance.shares_told import SharesTold
from trimtab.balance.strategies.canary import CanarySetting
from trimtab.balance.strategies.plans import Plan, Planner, View, follows_load
from trimtab.balance.sweeping import Sweeps
from trimtab.balance.takeover import EVICTORS, Absences
from trimtab.balance.trust import Trust
from trimtab.balance.turns import Turns
from trimtab.balance.unlocks import Unlocks
from trimtab.errors import AllocationError
from trimtab.model import MessageQueue

DRAIN_MS_MAX: Final = 30_000
NO_EPOCHS: Final[Mapping[MessageQueue, int]] = {}
"""Apache's brokers count none."""
NEVER_MS: Final = 2**62
TICK_MS: Final = 25
"""How often `on_tick` should be called."""


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
        self._fitting = Fitting(planner)
        self.trust = Trust(has_new_id=has_new_id)
        self._drain_ms_max = drain_ms_max
        self._peers = Peers(client_id, restart_grace_ms=restart_grace_ms)
        self._absences = Absences()
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._all_queues: tuple[MessageQueue, ...] = ()
        self._holders = Holders(client_id)
        self._measuring = Measuring(measure_every_ms if follows_load(planner) else None)
        self._turns = Turns(measure_every_ms)
        self._may_move = False
        self._holdings = Holdings()
        self._asking = Asking()
        self._sweeps = Sweeps()
        self._unlocks = Unlocks()
        self._questions = Questions()
        self._shares = SharesTold(group, client_id)
        self._cause = "start"
        self._is_stopping = False
        self._has_left = False
        self._has_rival = False

    def __repr__(self) -> str:
        phases = [holding.phase.value for holding in self._holdings.values()]
        phases += ["asking"] * len(self._asking)
        counts = ", ".join(f"{phase}={phases.count(phase)}" for phase in dict.fromkeys(phases))
        return f"<LeasedRebalance {self.group} {self.client_id} {counts or 'nothing'}>"

    # --- what is so -------------------------------------------------------------------------------------------

    def holding(self, queue: MessageQueue) -> Holding | None:
        """The queue's state, from its grant on until it is given up or lost."""
        return self._holdings.get(queue)

    def held(self, topic: str | None = None) -> tuple[MessageQueue, ...]:
        """The queues that are read now."""
        return self._holdings.held(topic)

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
    def planner(self) -> Planner:
        """By which queues are shared: the member's own, or with the canary that was ordered for the group."""
        return self._fitting.planner

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held and nothing is on its way."""
        return not (self._holdings or self._asking or self._unlocks.queues)

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
            self._all_queues = all_of(self._queues.values())
            self._holders.on_queues(self._all_queues)
            self._sweeps.on_queues(self._all_queues)
            self._measuring.on_queues(frozenset(self._all_queues))
        change = self._peers.on_seen(members, stable, now_ms)
        self._holders.on_told(holders or {}, chain(self._holdings, self._asking), now_ms)
        self._holders.on_members(self._peers.present, self._peers.counted_names)
        effects: list[LeasedEffect] = []
        if before != (self._queues, self._peers.counted):
            self._group_moves(now_ms, cause or change or "the queues changed")
            self._measuring.soon()
            effects.append(Happened(Kind.VIEW, cause=self._cause, detail=self._view_in_words()))
        return effects + self._act(now_ms)

    def on_canary(self, setting: CanarySetting | None, now_ms: int) -> list[LeasedEffect]:
        """The canary that was ordered for the group, or none; nothing happens where that is known."""
        if not self._fitting.order(setting):
            return []
        self._group_moves(now_ms, "the canary was called back" if setting is None else "a canary was ordered")
        return [Happened(Kind.VIEW, cause=self._cause, detail=self._view_in_words()), *self._act(now_ms)]

    def _group_moves(self, now_ms: int, cause: str) -> None:
        """Somebody may hand over from now on: everything is asked for anew."""
        self._sweeps.on_motion(now_ms)
        self._sweeps.refused.clear()
        self._cause = cause

    def on_measured(
        self,
        question: Measure,
        ends: Mapping[MessageQueue, Ends],
        holders: Told,
        sent_ms: int,
        now_ms: int,
    ) -> list[LeasedEffect]:
        """How far the group and its queues have come, and who holds what, as brokers and members told it after `sent_ms`."""
        self._measuring.on_answer(question, ends, now_ms)
        self._holders.on_told(holders, chain(self._holdings, self._asking), now_ms)
        self._holders.on_members(self._peers.present, self._peers.counted_names)
        self._may_move = self._turns.may_move(sent_ms)
        effects = self._act(now_ms)
        self._may_move = False
        return effects

    def _measures(self, now_ms: int) -> list[LeasedEffect]:
        is_due = now_ms >= self._measuring.next_ms(self._holders.look_again_ms)
        return [self._measuring.ask()] if is_due and self._queues and not self._is_stopping else []

    def on_turn(self, _question: TakeTurn, *, is_granted: bool, now_ms: int) -> list[LeasedEffect]:
        """Whether this member may move queues now; if so it measures anew first."""
        if self._turns.on_answer(is_granted=is_granted, now_ms=now_ms):
            return [self._measuring.ask()]
        return []

    def _turns_end(self, now_ms: int) -> list[LeasedEffect]:
        if self._turns.next_ms() is None:
            return []
        leaving = frozenset(self._holdings.in_phase(*LEAVING))
        return [*self._turns.on_tick(leaving | self._unlocks.queues, now_ms)]

    def on_tick(self, now_ms: int) -> list[LeasedEffect]:
        """Time passed: renewals, fences, looks at who is there, queues that may have become free."""
        effects = self._fences(now_ms)
        effects += self._renewals(now_ms)
        effects += self._looks(now_ms)
        effects += self._overdue(now_ms)
        effects += self._unlocks.again(now_ms)
        effects += self._measures(now_ms)
        effects += self._turns_end(now_ms)
        if self._peers.on_tick(now_ms):
            self._holders.on_members(self._peers.present, self._peers.counted_names)
            self._sweeps.on_motion(now_ms)
            self._cause = "a member did not come back"
        if self._sweeps.is_due(now_ms):
            effects += self._act(now_ms)
        return effects

    def next_ms(self, now_ms: int) -> int:
        """When `on_tick` has something to do next, as things are now. Whoever ticks less often calls it after every event."""
        times = [self._sweeps.due_ms, self._peers.next_ms(), self._unlocks.next_ms()]
        times += [self._measuring.next_ms(self._holders.look_again_ms), self._turns.next_ms() or NEVER_MS]
        times.append(self._holdings.next_ms(self._drain_ms_max))
        times += [self._questions.due_ms(LookAtMembers, name, now_ms) for name in self._absences.brokers()]
        for broker in self._holdings.brokers if not self._has_left else ():
            due_ms = self._questions.due_ms(Renew, broker, now_ms)
            times.append(max(due_ms, self.trust.may_ask_ms(broker)))
        return max(now_ms, min(times))

    def next_look_ms(self, broker_name: str, now_ms: int) -> int:
        """When it asks this broker next who is there; of all that `next_ms` looks at, the broker's list of members changes this alone."""
        is_watching = self._absences.is_watching(broker_name)
        return self._questions.due_ms(LookAtMembers, broker_name, now_ms) if is_watching else NEVER_MS

    def on_stop(self, now_ms: int) -> list[LeasedEffect]:
        """Give everything up in order, and take nothing more."""
        self._is_stopping = True
        self._cause = "stop"
        return [*self._turns.end(), *self._act(now_ms)]

    @property
    def is_drained(self) -> bool:
        """Whether no handler is at work any more."""
        phases = {holding.phase for holding in self._holdings.values()}
        return not self._asking and phases <= {Phase.COMMITTING}

    def on_farewell(self) -> None:
        """The brokers list this member no longer: nothing is renewed, so what is held ends by itself before others may end it."""
        self._has_left = True

    # --- deciding ---------------------------------------------------------------------------------------------

    def _act(self, now_ms: int) -> list[LeasedEffect]:
        knew_misfit = self._fitting.misfit is not None
        try:
            plan = self._plan(now_ms)
        except AllocationError as error:
            self._sweeps.calmly(now_ms)
            return [ShareFailed("", self.planner.name, str(error))]
        effects: list[LeasedEffect] = []
        if self._fitting.misfit is not None and not knew_misfit:
            effects.append(Happened(Kind.MISFIT, cause=self._fitting.misfit, detail=self.planner.name))
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

    def _plan(self, now_ms: int) -> Plan:
        held = self._holdings.kept()
        if self._is_stopping or not self._queues:
            return Plan(keep=(), give_up=tuple(held))
        return self._fitting.plan(
            View(
                group=self.group,
                me=self.client_id,
                queues=self._all_queues,
                members=self._peers.counted,
                held=frozenset(held),
                holders=self._holders.known(now_ms),
                refused=self._sweeps.refused.as_now(),
                waiting=self._holders.waiting(now_ms),
                loads=self._measuring.loads,
                may_move=self._may_move,
            )
        )

    def _acquire(self, plan: Plan, now_ms: int) -> list[LeasedEffect]:
        if self._sweeps.is_over(plan, len(self._asking)):
            return []
        knows_nothing = not self._holdings and self._holders.known(now_ms) is None
        if knows_nothing and self._peers.leave_free(len(self._all_queues), now_ms):
            self._sweeps.calmly(now_ms)
            return []
        may_be_asked = self.trust.may_be_asked(now_ms)
        brokers = [name for name in may_be_asked if not self._questions.is_open(Acquire, name)]
        taken = self._holdings.keys() | self._unlocks.queues
        chosen = self._sweeps.choose(plan, brokers, taken, now_ms)
        effects: list[LeasedEffect] = []
        for broker, asked in chosen.items():
            question = self._questions.ask(Acquire(broker, tuple(asked)), now_ms)
            self._asking.ask(question, now_ms, self._cause)
            self._holders.asked(question.queues)
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
        self._questions.on_answered(question)
        asked, granted_now = self._asking.answered(question), set(granted)
        if asked is None:
            return self._act(now_ms)
        surplus: list[MessageQueue] = []
        effects: list[LeasedEffect] = []
        room = self._room(now_ms)
        self._sweeps.refused.add(question.queues)
        self._sweeps.refused.discard(granted_now)
        for queue in [queue for queue in question.queues if queue in granted_now] if granted_now else ():
            if room > 0 and self.trust.on_granted(queue, sent_ms):
                room -= 1
                holding = Holding(queue, Phase.STARTING, asked.since_ms, cause=asked.cause)
                holding.epoch, holding.grant = epochs.get(queue), self.trust.grant(queue)
                effects.append(self._begin(holding))
            else:
                surplus.append(queue)
        if surplus:
            effects.append(self._unlocks.tell(question.broker_name, surplus, now_ms))
        return effects + self._act(now_ms)

    def _acquire_failed(self, question: Acquire, now_ms: int, *, may_be_granted: bool) -> list[LeasedEffect]:
        """Nobody knows what was granted: it is given back, or it would be with nobody until the lease ends."""
        self._questions.on_answered(question)
        strays = question.queues if self._asking.answered(question) is not None else ()
        self._sweeps.refused.add(strays)
        is_loose = strays and may_be_granted
        unlock = [self._unlocks.tell(question.broker_name, strays, now_ms)] if is_loose else []
        return [*unlock, *self._act(now_ms)]

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
        holding = self._holdings.waiting_for(question, question.queue)
        if holding is None:
            return []
        if offset < 0:
            self._forget(holding)
            self._holders.left(holding.queue, now_ms)
            self._sweeps.refused.add([holding.queue])
            return [self._unlocks.tell(holding.queue.broker_name, [holding.queue], now_ms)]
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
            return [self._unlocks.tell(holding.queue.broker_name, [holding.queue], now_ms)]
        question = Drain(holding.queue)
        # Nobody has said yet whether somebody else had it: that must be known before its offset is written.
        holding.is_doubted = holding.is_doubted or holding.phase is Phase.RECHECKING
        holding.phase, holding.asked = Phase.DRAINING, question
        holding.leaving_since_ms, holding.cause = now_ms, self._cause
        return [question, Happened(Kind.DRAINING, cause=self._cause, queue=holding.queue)]

    def on_drained(self, question: Drain, now_ms: int) -> list[LeasedEffect]:
        """No handler runs for the queue any more."""
        holding = self._holdings.waiting_for(question, question.queue)
        if holding is None:
            return []
        return self._commit(holding, now_ms)

    def _commit(self, holding: Holding, now_ms: int) -> list[LeasedEffect]:
        if not self.trust.is_trusted(holding.queue, now_ms):
            lost = self._lose(
                holding, Kind.FENCED, "the lease could not be renewed while the queue was given up", now_ms
            )
            # The broker may still count it as this member's, and nobody else can end the lease of one who is there.
            return [*lost, self._unlocks.tell(holding.queue.broker_name, [holding.queue], now_ms)]
        question = Recheck(holding.queue) if holding.is_doubted else Commit(holding.queue)
        holding.phase, holding.asked = Phase.COMMITTING, question
        return [question]

    def on_committed(self, question: Commit, *, is_written: bool, now_ms: int) -> list[LeasedEffect]:
        """Whether the offset is at the broker. If not, it is tried again while the lease is trusted."""
        holding = self._holdings.waiting_for(question, question.queue)
        if holding is None:
            return []
        if not is_written:
            holding.asked, holding.since_ms = None, now_ms
            return []
        self._forget(holding)
        self._sweeps.now(now_ms)
        released = Happened(
            Kind.RELEASED,
            cause=holding.cause,
            queue=holding.queue,
            duration_ms=now_ms - holding.leaving_since_ms,
        )
        unlock = self._unlocks.tell(holding.queue.broker_name, [holding.queue], now_ms)
        return [unlock, released, *self._changes()]

    def on_commit_refused(self, queue: MessageQueue, epoch: int, now_ms: int) -> list[LeasedEffect]:
        """The broker has granted the queue anew since it was granted under this epoch."""
        holding = self._holdings.get(queue)
        if holding is None or holding.epoch != epoch:
            return []
        self._sweeps.now(now_ms)
        lost = self._lose(
            holding, Kind.LOST, "the broker refused its offset: the queue was granted anew", now_ms
        )
        return [*lost, self._unlocks.tell(queue.broker_name, [queue], now_ms)]

    def on_unlocked(self, question: Unlock, now_ms: int) -> list[LeasedEffect]:
        """The broker knows, or the leases have ended by themselves."""
        self._unlocks.on_answered(question, now_ms)
        self._sweeps.on_free(question.queues, now_ms)
        return []

    def _overdue(self, now_ms: int) -> list[LeasedEffect]:
        """Handlers that do not end, and commits to be tried again."""
        leaving = [holding for holding in self._holdings.values() if holding.phase in LEAVING]
        due = [holding for holding in leaving if now_ms >= holding.next_ms(self._drain_ms_max)]
        return [effect for holding in due for effect in self._commit(holding, now_ms)]

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
        self._sweeps.now(now_ms)
        return self._leave(holding, now_ms)

    # --- leases -----------------------------------------------------------------------------------------------

    def _renewals(self, now_ms: int) -> list[LeasedEffect]:
        due = [
            broker
            for broker in (self._holdings.brokers if not self._has_left else ())
            if now_ms >= self._questions.due_ms(Renew, broker, now_ms) and self.trust.may_ask(broker, now_ms)
        ]
        found = self._holdings.by_broker(due) if due else {}
        return [self._questions.ask(Renew(name, tuple(queues)), now_ms) for name, queues in found.items()]

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
        self._questions.on_answered(question)
        granted_now = set(granted)
        effects: list[LeasedEffect] = []
        for queue in question.queues:
            holding = self._holdings.get(queue)
            if holding is None:
                if queue in granted_now:
                    effects += self._loose(question.broker_name, [queue], now_ms)
            elif queue in granted_now:
                effects += self._renewed(holding, epochs.get(queue), sent_ms, now_ms)
            else:
                effects += self._lose(holding, Kind.LOST, "another member has the lease", now_ms)
                self._sweeps.now(now_ms)
        return effects

    def _loose(self, broker_name: str, queues: Sequence[MessageQueue], now_ms: int) -> list[LeasedEffect]:
        """Given up while a renewal travelled, which may have locked them again after the unlock."""
        free = [queue for queue in queues if queue not in self._holdings and queue not in self._asking]
        loose = self._unlocks.once_more(free)
        return [self._unlocks.tell(broker_name, loose, now_ms)] if loose and not self._has_rival else []

    def _renewed(self, holding: Holding, epoch: int | None, sent_ms: int, now_ms: int) -> list[LeasedEffect]:
        is_another = None not in (epoch, holding.epoch) and epoch != holding.epoch
        was_interrupted = is_another or not self.trust.is_trusted(holding.queue, now_ms)
        if not self.trust.on_granted(holding.queue, sent_ms) or not was_interrupted:
            return []
        # Somebody else may have had the queue, and given it back, while this member did not trust its lease.
        holding.epoch = epoch
        if holding.phase is Phase.STARTING:
            return [self._begin(holding)]
        if holding.phase in LEAVING:
            holding.is_doubted = True
            return []
        question = Recheck(holding.queue)
        holding.phase, holding.asked = Phase.RECHECKING, question
        return [question]

    def on_rechecked(self, question: Recheck, *, is_unchanged: bool, now_ms: int) -> list[LeasedEffect]:
        """Whether the group's offset is still this member's own word. If so it goes on, else it begins anew."""
        holding = self._holdings.waiting_for(question, question.queue)
        if holding is None:
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
        return [*lost, self._unlocks.tell(holding.queue.broker_name, [holding.queue], now_ms)]

    def _fences(self, now_ms: int) -> list[LeasedEffect]:
        effects: list[LeasedEffect] = []
        for queue, holding in self._holdings.items():
            if holding.phase is not Phase.HELD:
                continue
            is_fenced = now_ms >= holding.grant.until_ms
            if is_fenced and not holding.is_fenced:
                effects.append(Happened(Kind.FENCED, cause="the lease could not be renewed", queue=queue))
            holding.is_fenced = is_fenced
        return effects

    def on_listed(self, broker_name: str, now_ms: int) -> list[LeasedEffect]:
        """The broker acknowledged a heartbeat of this member."""
        asks: list[LeasedEffect] = [AskAge(broker_name)] if self.trust.on_listed(broker_name, now_ms) else []
        return asks + (self._act(now_ms) if self._sweeps.is_due(now_ms) else [])

    def on_age(self, question: AskAge, up_ms: int, now_ms: int) -> list[LeasedEffect]:
        """For how long a broker that had never listed this member before has been up."""
        self.trust.on_age(question.broker_name, up_ms)
        return self._act(now_ms) if self._sweeps.is_due(now_ms) else []

    def on_connection_lost(self, broker_name: str, now_ms: int) -> list[LeasedEffect]:
        """The connection to the broker is gone; its leases are not trusted until they are renewed over a new one."""
        self.trust.on_lost(broker_name, now_ms)
        self._peers.on_broker_lost(now_ms)
        self._questions.soon(Renew, broker_name)
        return self._fences(now_ms)

    # --- members that are gone --------------------------------------------------------------------------------

    def _looks(self, now_ms: int) -> list[LeasedEffect]:
        return [
            self._questions.ask(LookAtMembers(broker), now_ms)
            for broker in self._absences.brokers()
            if now_ms >= self._questions.due_ms(LookAtMembers, broker, now_ms)
        ]

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
            self._questions.on_answered(question)
        gone = self._absences.on_members(broker_name, members, sent_ms, now_ms)
        effects: list[LeasedEffect] = []
        room: int | None = None
        for member in gone:
            if member in self._peers.counted_names or self._questions.is_open(Evict, broker_name):
                continue
            room = self._room(now_ms) if room is None else room
            if not room and self.client_id not in self._peers.counted[:EVICTORS]:
                self._absences.on_ended(broker_name, member)  # I need nothing of it; others will see to it
                continue
            there = tuple(
                queue
                for queue in self._all_queues
                if queue.broker_name == broker_name and queue not in self._holdings
            )
            effects.append(self._questions.ask(Evict(broker_name, member, there), now_ms))
        return effects

    def on_evicted(self, question: Evict, now_ms: int) -> list[LeasedEffect]:
        """The broker has unlocked what the one that is gone had."""
        self._questions.on_answered(question)
        self._absences.on_ended(question.broker_name, question.member)
        if not self._room(now_ms):
            return []  # done for others; it may have left in order, and then nothing was there to take
        self._group_moves(now_ms, f"{question.member} is gone")
        happened = Happened(Kind.TAKEN_OVER, cause=self._cause, other=question.member)
        return [happened, *self._act(now_ms)]

    # --- another one with the same id -------------------------------------------------------------------------

    def on_rival(self, cause: str) -> list[LeasedEffect]:
        """Another process has this member's id, and with it its leases. Everything is let go, nothing is unlocked: that would free what is the other's."""
        self._is_stopping = self._has_left = self._has_rival = True
        self._unlocks.clear()
        effects: list[LeasedEffect] = []
        self._asking.clear()
        for holding in list(self._holdings.values()):
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
            self._unlocks.on_failed(question, now_ms)
            return []
        if isinstance(question, Recheck):
            return self.on_rechecked(question, is_unchanged=False, now_ms=now_ms)
        if isinstance(question, TakeTurn):
            return self.on_turn(question, is_granted=False, now_ms=now_ms)
        if isinstance(question, Measure):
            return self.on_measured(question, {}, {}, now_ms, now_ms)
        if isinstance(question, (Renew, LookAtMembers, Evict)):
            self._questions.on_answered(question)
        if isinstance(question, Renew) and may_have_happened:
            return self._loose(question.broker_name, question.queues, now_ms)
        return []

    # --- telling ----------------------------------------------------------------------------------------------

    def _changes(self) -> list[LeasedEffect]:
        members, strategy = len(self._peers.counted), self.planner.name
        return [*self._shares.changes(self._holdings, self._queues, members, strategy)]

    def _view_in_words(self) -> str:
        count = sum(len(queues) for queues in self._queues.values())
        return f"{count} queues, {len(self._peers.counted)} members"
