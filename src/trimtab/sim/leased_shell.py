"""The shell of leased mode on virtual time: what `client/push_leased.py` does, without bytes."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from trimtab.balance.holdings import Phase
from trimtab.balance.leased import DRAIN_MS_MAX, TICK_MS, LeasedRebalance
from trimtab.balance.leased_effects import (
    Abandon,
    Acquire,
    AskAge,
    Commit,
    Drain,
    EndTurn,
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
from trimtab.balance.rebalance_effects import ReadStart, StartPull
from trimtab.balance.recorder import Kind
from trimtab.model import MessageQueue
from trimtab.sim.broker import GROUP, Granted, Listed, Measured, SimBroker
from trimtab.sim.process import LOOK_EVERY_MS, OFFSET_ASK_MS

if TYPE_CHECKING:
    from trimtab.balance.loads import Ends
    from trimtab.sim.member import SimMember
    from trimtab.sim.network import Connection

OFFSETS_EVERY_MS: Final = 500
BLIND_RETRY_MS: Final = 500
FAREWELL_MS_MAX: Final = 2_000
HANDOVER_MS_MAX: Final = 33_000


class LeasedShell:
    """See the module's own words."""

    def __init__(self, member: "SimMember") -> None:
        kind = member.kind
        self.machine = LeasedRebalance(GROUP, member.client_id, kind.planner, has_new_id=not kind.is_stable)
        self._member = member
        self._is_over = False
        self._has_begun = False
        self._is_looking = False
        self._is_due = False
        self._looks = 0
        self._tick_ms: int | None = None
        self._ticked_ms = 0
        self._farewell: Callable[[], None] | None = None
        self._gone: Callable[[], None] | None = None

    def start(self) -> None:
        """Looks, ticks, and stores offsets from now on."""
        self._has_begun = True
        self._look()
        self._store_offsets()

    def may_start(self, queue: MessageQueue) -> bool:
        return self.machine.may_hand_out(queue, self._member.now_ms)

    def holdings(self) -> tuple[MessageQueue, ...]:
        return self.machine.held()

    def on_listed(self, broker_name: str) -> None:
        self._tell(self.machine.on_listed(broker_name, self._member.now_ms))

    def on_connection_lost(self, broker_name: str) -> None:
        self._tell(self.machine.on_connection_lost(broker_name, self._member.now_ms))

    def stop(self, farewell: Callable[[], None], gone: Callable[[], None]) -> None:
        self._farewell, self._gone = farewell, gone
        self._tell(self.machine.on_stop(self._member.now_ms))
        self._member.after(FAREWELL_MS_MAX, self._say_farewell)
        self._member.after(HANDOVER_MS_MAX, self._end)
        self._look_whether_done()

    def _look_whether_done(self) -> None:
        if self._gone is None or self._is_over:
            return
        if self.machine.is_drained:
            self._say_farewell()
        if self.machine.is_idle:
            self._end()

    def _say_farewell(self) -> None:
        if self._farewell is not None and not self._is_over:
            farewell, self._farewell = self._farewell, None
            self.machine.on_farewell()
            farewell()

    def _end(self) -> None:
        if not self._is_over and self._gone is not None:
            self._is_over = True
            self._member.reader.close()
            for queue in self._member.watch.all_ended(self._member):
                self._member.timeline.note(self._member.name, f"let go of {queue} out of order")
            self._gone()

    # --- looking ----------------------------------------------------------------------------------------------

    def soon(self) -> None:
        if not self._has_begun or self._is_over:
            return
        if self._is_looking:
            self._is_due = True
        else:
            self._look()

    def _look(self) -> None:
        """Asks every broker that has queues of the group, all at once."""
        if self._is_over or self._gone is not None:
            return
        member = self._member
        self._is_looking, self._is_due = True, False
        self._looks += 1
        looks = self._looks
        names = member.broker_names
        waiting = dict.fromkeys(names)
        lists: list[Listed] = []
        holders: dict[str, dict[MessageQueue, str]] = {}
        sent_ms = member.now_ms

        def done(name: str, answer: "tuple[Listed, dict[MessageQueue, str] | None] | None") -> None:
            del waiting[name]
            if answer is not None:
                listed, there = answer
                lists.append(listed)
                if there is not None:
                    holders[name] = there
                self._saw(name, self.machine.on_members(None, name, listed.members, sent_ms, member.now_ms))
            if not waiting:
                self._looked(lists, holders, looks, is_whole=len(lists) == len(names))

        for name in names:
            member.ask(name, _listed, partial(done, name), partial(done, name, None))
        if not names:
            self._looked([], {}, looks, is_whole=False)

    def _looked(
        self, lists: list[Listed], holders: dict[str, dict[MessageQueue, str]], looks: int, *, is_whole: bool
    ) -> None:
        member = self._member
        self._is_looking = False
        if self._is_over:
            return
        member.saw(lists, is_whole=is_whole)
        if lists and self._gone is None:
            members, stable = _together(tuple(lists))
            effects = self.machine.on_view(
                member.queues, members, member.now_ms, stable=stable, holders=holders
            )
            self._tell(effects)
        if self._is_due:
            self._look()
        else:
            member.after(LOOK_EVERY_MS if is_whole else BLIND_RETRY_MS, lambda: self._look_again(looks))

    def _look_again(self, looks: int) -> None:
        if looks == self._looks and not self._is_looking:
            self._look()

    # --- what strategies that follow load need ----------------------------------------------------------------

    def _follow_load(self, effect: Measure | TakeTurn | EndTurn) -> None:
        if isinstance(effect, Measure):
            self._measure(effect)
        elif isinstance(effect, TakeTurn):
            self._take_turn(effect)
        else:
            self._end_turn(effect)

    def _measure(self, question: Measure) -> None:
        """Lag and arrival from all brokers at once, with who holds what. A broker that does not answer is left out."""
        member, sent_ms = self._member, self._member.now_ms
        ends: dict[MessageQueue, Ends] = {}
        holders: dict[str, dict[MessageQueue, str]] = {}
        waiting = dict.fromkeys(member.links)

        def done(name: str, measured: Measured | None) -> None:
            del waiting[name]
            if measured is not None:
                ends.update(measured.ends)
                holders[name] = measured.holders
            if not waiting and not self._is_over:
                self._tell(self.machine.on_measured(question, ends, holders, sent_ms, member.now_ms))

        for name in list(waiting):
            member.ask(
                name, lambda broker, _: broker.measured(), partial(done, name), partial(done, name, None)
            )
        if not waiting:
            self._tell(self.machine.on_failed(question, member.now_ms))

    def _take_turn(self, question: TakeTurn) -> None:
        member, turn = self._member, question.turn
        self._ask(
            question, question.broker_name, lambda broker, link: broker.lock(link, [turn]),
            lambda granted: self.machine.on_turn(question, is_granted=turn in granted.queues, now_ms=member.now_ms),
        )  # fmt: skip

    def _end_turn(self, effect: EndTurn) -> None:
        unlock = partial(_unlock, self._member.client_id, (effect.turn,))
        self._member.ask(effect.broker_name, unlock, lambda _: None, lambda: None)

    # --- ticking ----------------------------------------------------------------------------------------------

    def _tick_soon(self) -> None:
        """The machine says when it wants to look at the clock; the real client looks every 25 ms."""
        now_ms = self._member.now_ms
        self._tick_at(self.machine.next_ms(now_ms), now_ms)

    def _tick_at(self, ms: int, now_ms: int) -> None:
        next_ms = max(ms, now_ms, self._ticked_ms + TICK_MS)
        if self._tick_ms is not None and self._tick_ms <= next_ms:
            return
        self._tick_ms = next_ms
        self._member.after(max(0, next_ms - now_ms), lambda: self._tick(next_ms))

    def _tick(self, due_ms: int) -> None:
        if self._is_over or self._tick_ms != due_ms:
            return
        self._tick_ms = None
        self._ticked_ms = self._member.now_ms
        self._tell(self.machine.on_tick(self._member.now_ms))

    # --- doing ------------------------------------------------------------------------------------------------

    def _saw(self, broker_name: str, effects: list[LeasedEffect]) -> None:
        """As `_tell`, after a list of members: thousands come in a second, and nearly all change nothing but when to look again."""
        if effects or self._tick_ms is None or self._gone is not None:
            self._tell(effects)
        elif not self._is_over:
            now_ms = self._member.now_ms
            self._tick_at(self.machine.next_look_ms(broker_name, now_ms), now_ms)

    def _tell(self, effects: list[LeasedEffect]) -> None:
        for effect in effects:
            self._do(effect)
        if not self._is_over:
            self._member.reader.go_on()
            self._look_whether_done()
            self._tick_soon()

    def _do(self, effect: LeasedEffect) -> None:
        member = self._member
        if isinstance(effect, Happened):
            self._note(effect)
        elif isinstance(effect, StartPull):
            # Not if the process stood still between question and answer: then nothing is handed out before the machine has asked anew.
            if may_start := self.may_start(effect.queue):
                member.watch.began(member, effect.queue)
            member.watch.took(member, effect.queue, effect.offset, may_start=may_start)
            member.reader.begin(effect.queue, effect.offset)
        elif isinstance(effect, Abandon):
            member.watch.ended(member, effect.queue)
            member.reader.drop(effect.queue)
        elif isinstance(effect, Drain):
            member.watch.ended(member, effect.queue)
            member.reader.leave(effect.queue, lambda: self._answer(self.machine.on_drained, effect))
        elif isinstance(effect, Commit):
            self._commit(effect)
        elif isinstance(effect, (ReadStart, Recheck)):
            self._read_offset(effect)
        elif isinstance(effect, (Measure, TakeTurn, EndTurn)):
            self._follow_load(effect)
        elif isinstance(effect, (Acquire, Renew, Unlock, Evict, LookAtMembers, AskAge)):
            self._ask_broker(effect)

    def _ask_broker(self, question: Acquire | Renew | Unlock | Evict | LookAtMembers | AskAge) -> None:
        member, name = self._member, question.broker_name
        if isinstance(question, (Acquire, Renew)):
            self._lock(question)
        elif isinstance(question, LookAtMembers):
            self._look_at(question)
        elif isinstance(question, AskAge):
            self._ask(
                question, name, lambda broker, _: broker.up_ms,
                lambda up_ms: self.machine.on_age(question, up_ms, member.now_ms),
            )  # fmt: skip
        elif isinstance(question, Evict):
            evict = partial(_unlock, question.member, question.queues)
            self._ask(question, name, evict, lambda _: self.machine.on_evicted(question, member.now_ms))
        else:
            for queue in question.queues:
                member.watch.ended(member, queue)
                self._judge_giving_up(queue)
                member.reader.drop(queue)
            unlock = partial(_unlock, member.client_id, question.queues)
            self._ask(question, name, unlock, lambda _: self.machine.on_unlocked(question, member.now_ms))

    def _judge_giving_up(self, queue: MessageQueue) -> None:
        """What was abandoned is not read any more, and what handlers would not end for a drain's longest time may come again."""
        held = self._member.reader.held.get(queue)
        if held is None:
            return
        since_ms = held.leaving_since_ms
        if since_ms is None or not held.running or self._member.now_ms - since_ms < DRAIN_MS_MAX:
            self._member.watch.gave_up(self._member, queue)

    def _note(self, happened: Happened) -> None:
        member = self._member
        if happened.kind is Kind.FENCED and happened.queue is not None:
            member.watch.ended(member, happened.queue)
        if happened.kind is not Kind.ACQUIRED:
            member.timeline.note(
                member.name, f"{happened.kind} {happened.queue or happened.other} ({happened.cause})"
            )

    def _ask(
        self, question: Question, broker_name: str, do: Callable[..., object],
        answered: Callable[..., list[LeasedEffect]], timeout_ms: int = 1_000,
    ) -> None:  # fmt: skip
        def got(result: object) -> None:
            if not self._is_over:
                self._tell(answered(result))

        self._member.ask(broker_name, do, got, partial(self._failed, question), timeout_ms)

    def _answer(self, answer: Callable[..., list[LeasedEffect]], question: Drain) -> None:
        if not self._is_over:
            self._tell(answer(question, self._member.now_ms))

    def _lock(self, question: Acquire | Renew) -> None:
        member, sent_ms = self._member, self._member.now_ms
        told = self.machine.on_acquired if isinstance(question, Acquire) else self.machine.on_renewed

        def answered(granted: Granted) -> list[LeasedEffect]:
            return told(question, granted.queues, sent_ms, member.now_ms, epochs=granted.epochs)  # type: ignore[arg-type]

        self._ask(
            question, question.broker_name, lambda broker, link: broker.lock(link, question.queues), answered
        )

    def _look_at(self, question: LookAtMembers) -> None:
        member, name, sent_ms = self._member, question.broker_name, self._member.now_ms

        def got(listed: Listed) -> None:
            if not self._is_over:
                now_ms = member.now_ms
                self._saw(name, self.machine.on_members(question, name, listed.members, sent_ms, now_ms))

        member.ask(name, _members, got, partial(self._failed, question))

    def _failed(self, question: Question) -> None:
        if not self._is_over:
            self._tell(self.machine.on_failed(question, self._member.now_ms))

    # --- offsets ----------------------------------------------------------------------------------------------

    def _read_offset(self, question: ReadStart | Recheck) -> None:
        member, queue = self._member, question.queue
        if isinstance(question, Recheck):
            member.watch.ended(member, queue)

        def answered(stored: int) -> list[LeasedEffect]:
            if isinstance(question, ReadStart):
                return self.machine.on_start(question, stored, member.now_ms)
            held = member.reader.held.get(queue)
            is_unchanged = held is not None and (
                held.began_offset <= stored <= held.progress.safe_offset or stored == held.stored_offset
            )
            effects = self.machine.on_rechecked(question, is_unchanged=is_unchanged, now_ms=member.now_ms)
            if self.may_start(queue):
                member.watch.began(member, queue)
            return effects

        self._ask(
            question, queue.broker_name, lambda broker, _: broker.read_offset(queue), answered, OFFSET_ASK_MS
        )

    def _store_offsets(self) -> None:
        """What moved is stored, while the lease may be relied on: whoever has it now knows better otherwise."""
        if self._is_over:
            return
        for queue, held in self._member.reader.held.items():
            offset = held.progress.safe_offset
            if (
                not held.is_leaving
                and offset != held.stored_offset
                and not held.writing
                and self.may_start(queue)
            ):
                self._write(queue, offset, lambda _: None)
        self._member.after(OFFSETS_EVERY_MS, self._store_offsets)

    def _write(self, queue: MessageQueue, offset: int, told: Callable[[bool], object]) -> None:
        member = self._member
        held = member.reader.held.get(queue)
        if held is None:
            told(True)  # noqa: FBT003 - an answer
            return
        held.writing += 1
        holding = self.machine.holding(queue)
        epoch = None if holding is None else holding.epoch

        def ended(*, is_written: bool) -> None:
            held.writing -= 1
            told(is_written)

        def answered(is_stored: bool) -> None:  # noqa: FBT001 - an answer
            if not is_stored and epoch is not None and not self._is_over:
                self._tell(self.machine.on_commit_refused(queue, epoch, member.now_ms))
            ended(is_written=is_stored)

        held.stored_offset = offset
        member.ask(
            queue.broker_name, lambda broker, _: broker.commit(member.name, queue, offset, epoch),
            answered, lambda: ended(is_written=False), OFFSET_ASK_MS,
        )  # fmt: skip

    def _commit(self, question: Commit) -> None:
        """Writes the offset of a drained queue, after any other write that is under way."""
        member, queue = self._member, question.queue
        held = member.reader.held.get(queue)

        def written(is_written: bool) -> None:  # noqa: FBT001 - an answer
            if not self._is_over:
                self._tell(self.machine.on_committed(question, is_written=is_written, now_ms=member.now_ms))

        holding = self.machine.holding(queue)
        if holding is None or holding.phase is not Phase.COMMITTING:
            return
        if held is not None and held.writing:
            member.after(5, lambda: self._commit(question))
            return
        if not self.machine.trust.is_trusted(queue, member.now_ms):
            written(False)  # noqa: FBT003 - an answer
            return
        self._write(queue, 0 if held is None else held.progress.safe_offset, written)


@lru_cache(64)
def _together(lists: tuple[Listed, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """All members and those with stable ids, of all lists. Many members get the same lists."""
    none: frozenset[str] = frozenset()
    return none.union(*(listed.members for listed in lists)), none.union(*(listed.stable for listed in lists))


def _unlock(client_id: str, queues: tuple[MessageQueue, ...], broker: SimBroker, _: "Connection") -> bool:
    return broker.unlock(client_id, queues)


def _members(broker: SimBroker, _: "Connection") -> Listed:
    return broker.listed()


def _listed(broker: SimBroker, _: "Connection") -> tuple[Listed, dict[MessageQueue, str] | None]:
    """Who is in the group; a broker of ours also says who holds what."""
    return broker.listed(), broker.holders() if broker.kind == "ours" else None
