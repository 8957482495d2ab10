"""The shell of classic mode on virtual time: what `client/push_rounds.py` does, and Java's clients in the same way."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from trimtab.balance.rebalance import Rebalance
from trimtab.balance.rebalance_effects import Drop, Effect, ReadStart, StartPull
from trimtab.model import MessageQueue
from trimtab.sim.broker import GROUP, Listed
from trimtab.sim.process import LOOK_EVERY_MS, OFFSET_ASK_MS

if TYPE_CHECKING:
    from trimtab.sim.member import SimMember

OFFSETS_EVERY_MS: Final = 5_000
BLIND_RETRY_MS: Final = 500
STOP_LOOK_EVERY_MS: Final = 20
STOP_MS_MAX: Final = 30_000


class ClassicShell:
    """See the module's own words."""

    def __init__(self, member: "SimMember") -> None:
        self.machine = Rebalance(GROUP, member.client_id, member.kind.strategy)
        self._member = member
        self._is_over = False
        self._has_begun = False
        self._is_in_round = False
        self._is_due = False
        self._rounds = 0
        self._open = 0
        """Questions of the round that are not answered yet."""
        self._saw_all = True

    def start(self) -> None:
        """Rounds from now on."""
        self._has_begun = True
        self._round()
        self._store_offsets()

    def may_start(self, queue: MessageQueue) -> bool:
        return self.machine.holding(queue) is not None

    def holdings(self) -> tuple[MessageQueue, ...]:
        return self.machine.held()

    def on_listed(self, broker_name: str) -> None:
        """Classic mode does not ask since when."""

    def on_connection_lost(self, broker_name: str) -> None:
        """Classic mode goes on with what it has."""

    def soon(self) -> None:
        if not self._has_begun or self._is_over:
            return
        if self._is_in_round:
            self._is_due = True
        else:
            self._round()

    # --- rounds -----------------------------------------------------------------------------------------------

    def _round(self) -> None:
        if self._is_over:
            return
        member = self._member
        self._is_in_round, self._is_due, self._saw_all = True, False, True
        self._rounds += 1
        for queue in member.reader.held:
            self.machine.on_pull(queue, member.now_ms)
        self._open = 1
        for topic, queues in member.queues.items():
            self._ask_for_members(topic, queues)
        self._answered()

    def _ask_for_members(self, topic: str, queues: tuple[MessageQueue, ...]) -> None:
        """One of the topic's brokers by chance."""
        member = self._member
        names = list(dict.fromkeys(queue.broker_name for queue in queues))
        if not names:
            return
        self._open += 1

        def known(listed: Listed) -> None:
            if not self._is_over:
                member.saw([listed], is_whole=True)
                self._tell(self.machine.on_view(topic, queues, listed.members, member.now_ms))
            self._answered()

        def failed() -> None:
            self._saw_all = False
            self._answered()

        name = names[member.timeline.chance.randrange(len(names))]
        member.ask(name, lambda broker, _: broker.listed(), known, failed, OFFSET_ASK_MS)

    def _answered(self) -> None:
        self._open -= 1
        if self._open or self._is_over:
            return
        self._is_in_round = False
        rounds = self._rounds
        if self._is_due:
            self._round()
        else:
            self._member.after(
                LOOK_EVERY_MS if self._saw_all else BLIND_RETRY_MS, partial(self._round_again, rounds)
            )

    def _round_again(self, rounds: int) -> None:
        if rounds == self._rounds and not self._is_in_round:
            self._round()

    # --- effects ----------------------------------------------------------------------------------------------

    def _tell(self, effects: list[Effect]) -> None:
        """What is given up first, then what is taken."""
        member = self._member
        for effect in effects:
            if isinstance(effect, Drop):
                member.watch.ended(member, effect.queue)
                self._store(effect.queue)
                member.reader.drop(effect.queue)
        for effect in effects:
            if isinstance(effect, ReadStart):
                self._read_start(effect)
            elif isinstance(effect, StartPull):
                member.watch.began(member, effect.queue)
                member.reader.begin(effect.queue, effect.offset)

    def _read_start(self, question: ReadStart) -> None:
        member, queue = self._member, question.queue
        self._open += 1

        def known(offset: int) -> None:
            if not self._is_over:
                self._tell(self.machine.on_start(question, offset, member.now_ms))
            self._answered()

        member.ask(
            queue.broker_name,
            lambda broker, _: broker.read_offset(queue),
            known,
            lambda: known(-1),
            OFFSET_ASK_MS,
        )

    # --- offsets ----------------------------------------------------------------------------------------------

    def _store_offsets(self) -> None:
        if self._is_over:
            return
        for queue in list(self._member.reader.held):
            self._store(queue)
        self._member.after(OFFSETS_EVERY_MS, self._store_offsets)

    def _store(self, queue: MessageQueue) -> None:
        held, link = self._member.reader.held.get(queue), self._member.links.get(queue.broker_name)
        if held is None or link is None or held.progress.safe_offset == held.stored_offset:
            return
        offset = held.stored_offset = held.progress.safe_offset
        name = self._member.name
        self._member.world.network.tell(link, lambda broker: broker.commit(name, queue, offset))

    # --- the end ----------------------------------------------------------------------------------------------

    def stop(self, farewell: Callable[[], None], gone: Callable[[], None]) -> None:
        """Starts no more handlers, waits for those at work, stores offsets, says goodbye."""
        member = self._member
        self._is_over = True
        for queue in list(member.reader.held):
            member.watch.ended(member, queue)
            member.reader.leave(queue, lambda: None)
        ends_ms = member.now_ms + STOP_MS_MAX

        def look() -> None:
            if member.reader.is_busy and member.now_ms < ends_ms:
                member.after(STOP_LOOK_EVERY_MS, look)
                return
            for queue in list(member.reader.held):
                self._store(queue)
            member.reader.close()
            farewell()
            member.after(STOP_LOOK_EVERY_MS, gone)

        look()
