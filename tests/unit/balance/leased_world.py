"""A small world for leased members: lock tables that behave like Apache's, lists of members, delays from a seed.

It carries out the effects of real machines and watches one thing all the time: nobody else may hand out messages of a queue.
"""

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from trimtab.balance.leased import TICK_MS, LeasedRebalance
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
    Question,
    Recheck,
    Renew,
    Unlock,
)
from trimtab.balance.locks import LEASE_MS, LeaseTable
from trimtab.balance.rebalance_effects import Changed, ReadStart, StartPull
from trimtab.balance.strategies.sticky import Sticky
from trimtab.model import MessageQueue

Answered = Callable[[], list[LeasedEffect]]
AtBroker = Callable[["Broker"], Answered]

GROUP = "billing"
HANDLER_MS = 30
LOOK_AT_EVERY = 20


class Broker:
    """Its lock table forgets everything at a restart, as Apache's does, and never frees by itself before 60 s."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.started_ms = -LEASE_MS
        self.leases = LeaseTable(closed_grace_ms=10**9)
        self.listed: set[str] = set()


class Member:
    """A machine with its shell: it does what the machine wants, a little later."""

    def __init__(self, world: "World", name: str, *, is_stable: bool = False) -> None:
        self.world = world
        self.name = name
        self.is_stable = is_stable
        self.machine = LeasedRebalance(GROUP, name, Sticky(), has_new_id=not is_stable)
        self.is_alive = True
        self.is_leaving = False
        self.paused_until_ms = 0
        self.cut: set[str] = set()
        self.events: list[tuple[int, LeasedEffect]] = []
        self.last_offset: dict[MessageQueue, int] = {}

    def start(self) -> None:
        self.beat()
        self.see()
        self.tick()

    def beat(self) -> None:
        for broker in self.world.brokers.values():
            self.connect(broker)
        self.world.at(self.world.now_ms + 20_000, self.acted(self.beat))

    def connect(self, broker: Broker) -> None:
        """A heartbeat: the first one on a connection is a change of the group."""

        def listed() -> None:
            if not self.is_alive or not broker.is_up or broker.name in self.cut:
                return
            self.world.later(self.acted(lambda: self.machine.on_listed(broker.name, self.world.now_ms)))
            if self.name not in broker.listed:
                broker.listed.add(self.name)
                self.world.notify(broker)

        self.world.later(listed)

    def lost(self, broker: Broker) -> list[LeasedEffect]:
        return self.machine.on_connection_lost(broker.name, self.world.now_ms)

    def tick(self) -> None:
        if not self.is_alive:
            return
        self.run(lambda: self.machine.on_tick(self.world.now_ms))
        self.world.at(self.world.now_ms + TICK_MS, self.tick)

    def see(self) -> None:
        """Asks every broker for its list, as the client does at a notice and every now and then."""
        if not self.is_alive:
            return
        world, sent_ms = self.world, self.world.now_ms
        reachable = [b for b in world.brokers.values() if b.is_up and b.name not in self.cut]

        def answered() -> None:
            members: set[str] = set()
            for broker in reachable:
                listed = set(broker.listed)
                members |= listed
                seen = partial(self.machine.on_members, None, broker.name, listed, sent_ms, world.now_ms)
                self.run(seen)
            stable = [name for name in members if world.members[name].is_stable]
            if reachable:
                self.run(
                    lambda: self.machine.on_view(
                        {"orders": world.queues}, members, world.now_ms, stable=stable
                    )
                )

        world.later(self.acted(answered))
        world.at(world.now_ms + 5_000, self.see_again)

    def see_again(self) -> None:
        if self.is_alive:
            self.see()

    def acted(self, work: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            if not self.is_alive:
                return
            if self.world.now_ms < self.paused_until_ms:
                self.world.at(self.paused_until_ms, run)
                return
            effects = work()
            if effects:
                self.do(effects)

        return run

    def run(self, work: Callable[[], list[LeasedEffect]]) -> None:
        self.acted(work)()

    def do(self, effects: Iterable[LeasedEffect]) -> None:
        for effect in effects:
            self.events.append((self.world.now_ms, effect))
            self.world.moved(self, effect)
            self._do(effect)

    def _do(self, effect: LeasedEffect) -> None:
        """Asks the broker, there and back, or waits for a handler; the rest is only told."""
        world, machine = self.world, self.machine
        if isinstance(effect, Drain):
            handler_ms = world.chance.randrange(HANDLER_MS + 1)
            world.at(world.now_ms + handler_ms, self.acted(lambda: machine.on_drained(effect, world.now_ms)))
        elif isinstance(effect, (Acquire, Renew, Unlock, Evict, LookAtMembers, AskAge)):
            self.ask(effect.broker_name, self._at_the_broker(effect), effect)
        elif isinstance(effect, (ReadStart, Recheck, Commit)):
            self.ask(effect.queue.broker_name, self._at_the_offset(effect), effect)
        else:
            assert isinstance(effect, (Abandon, Changed, Happened, StartPull))

    def _at_the_broker(self, effect: Acquire | Renew | Unlock | Evict | LookAtMembers | AskAge) -> AtBroker:
        world, machine, sent_ms = self.world, self.machine, self.world.now_ms

        def do(broker: Broker) -> Answered:
            if isinstance(effect, (Acquire, Renew)):
                granted = broker.leases.lock(GROUP, self.name, 1, effect.queues, world.now_ms)
                if isinstance(effect, Acquire):
                    return lambda: machine.on_acquired(effect, granted, sent_ms, world.now_ms)
                return lambda: machine.on_renewed(effect, granted, sent_ms, world.now_ms)
            if isinstance(effect, LookAtMembers):
                listed = set(broker.listed)
                return lambda: machine.on_members(effect, broker.name, listed, sent_ms, world.now_ms)
            if isinstance(effect, AskAge):
                up_ms = world.now_ms - broker.started_ms
                return lambda: machine.on_age(effect, up_ms, world.now_ms)
            if isinstance(effect, Evict):
                broker.leases.unlock(GROUP, effect.member, effect.queues)
                return lambda: machine.on_evicted(effect, world.now_ms)
            broker.leases.unlock(GROUP, self.name, effect.queues)
            return lambda: machine.on_unlocked(effect, world.now_ms)

        return do

    def _at_the_offset(self, effect: ReadStart | Recheck | Commit) -> AtBroker:
        world, machine, queue = self.world, self.machine, effect.queue

        def do(_: Broker) -> Answered:
            if isinstance(effect, Recheck):
                is_same = world.offsets[queue] == self.last_offset[queue]
                return lambda: machine.on_rechecked(effect, is_unchanged=is_same, now_ms=world.now_ms)
            world.offsets[queue] += isinstance(effect, Commit)
            offset = self.last_offset[queue] = world.offsets[queue]
            if isinstance(effect, Commit):
                return lambda: machine.on_committed(effect, is_written=True, now_ms=world.now_ms)
            return lambda: machine.on_start(effect, offset, world.now_ms)

        return do

    def ask(self, broker_name: str, do: AtBroker, question: Question) -> None:
        """There and back; it fails when the broker is down or cut off on the way."""
        world, broker = self.world, self.world.brokers[broker_name]

        def arrived() -> None:
            if not broker.is_up or broker_name in self.cut:
                failed = self.acted(lambda: self.machine.on_failed(question, world.now_ms))
                world.at(world.now_ms + 3_000, failed)
            else:
                world.later(self.acted(do(broker)))

        world.later(arrived)

    def crash(self) -> None:
        """The process is gone; brokers see its connections close."""
        self.is_alive = False
        for broker in self.world.brokers.values():
            if self.name in broker.listed:
                broker.listed.discard(self.name)
                self.world.notify(broker)

    def stop(self) -> None:
        """Leaves in order: everything is handed over, then it says goodbye."""
        self.is_leaving = True

        def say_goodbye() -> None:
            if self.is_alive and not self.machine.is_idle:
                self.world.at(self.world.now_ms + 10, say_goodbye)
            else:
                self.crash()

        self.run(lambda: self.machine.on_stop(self.world.now_ms))
        say_goodbye()

    def pause(self, ms: int) -> None:
        """Nothing of it runs; its connections stay."""
        self.paused_until_ms = self.world.now_ms + ms

    def holds(self, queue: MessageQueue) -> bool:
        is_awake = self.is_alive and self.world.now_ms >= self.paused_until_ms
        return is_awake and self.machine.may_hand_out(queue, self.world.now_ms)


class World:
    """See the module's own words."""

    def __init__(self, seed: int, *, queues: int = 16, brokers: int = 2, delay_ms_max: int = 20) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 1_000_000
        self.delay_ms_max = delay_ms_max
        self.brokers = {f"broker-{n}": Broker(f"broker-{n}") for n in range(brokers)}
        self.queues = [MessageQueue("orders", f"broker-{n % brokers}", n // brokers) for n in range(queues)]
        self.members: dict[str, Member] = {}
        self.offsets: defaultdict[MessageQueue, int] = defaultdict(int)
        self.holder: dict[MessageQueue, str] = {}
        self.moves = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, ms: int, work: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (ms, next(self._numbers), work))

    def later(self, work: Callable[[], None]) -> None:
        self.at(self.now_ms + self.chance.randrange(1, self.delay_ms_max + 1), work)

    def join(self, name: str, *, is_stable: bool = False) -> Member:
        member = self.members[name] = Member(self, name, is_stable=is_stable)
        member.start()
        return member

    def notify(self, broker: Broker) -> None:
        for name in sorted(broker.listed):
            self.later(self.members[name].see)

    def restart(self, broker: Broker, down_ms: int) -> None:
        broker.is_up = False
        broker.listed.clear()
        broker.leases = LeaseTable(closed_grace_ms=10**9)
        for member in self.members.values():
            self.later(member.acted(partial(member.lost, broker)))

        def back() -> None:
            broker.is_up = True
            broker.started_ms = self.now_ms
            for member in self.members.values():
                if member.is_alive:
                    member.connect(broker)

        self.at(self.now_ms + down_ms, back)

    def moved(self, member: Member, effect: LeasedEffect) -> None:
        if isinstance(effect, StartPull):
            before = self.holder.get(effect.queue)
            self.moves += before is not None and before != member.name
            self.holder[effect.queue] = member.name
            self.check([effect.queue])

    def run(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, number, work = heapq.heappop(self._heap)
            work()
            # Every event would be many looks at the same picture; a new holder is looked at at once (`moved`).
            if number % LOOK_AT_EVERY == 0:
                self.check(self.queues)
        self.now_ms = until_ms

    def check(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            holders = [member.name for member in self.members.values() if member.holds(queue)]
            assert len(holders) <= 1, f"{queue} is held twice at {self.now_ms}: {holders}"

    def holdings(self) -> dict[str, int]:
        return {
            name: sum(member.holds(queue) for queue in self.queues)
            for name, member in self.members.items()
            if member.is_alive
        }

    def is_balanced(self) -> bool:
        counts = self.holdings().values()
        return sum(counts) == len(self.queues) and max(counts) - min(counts) <= 1
