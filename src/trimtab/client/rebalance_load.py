"""Planned membership changes under load, and what they cost: for `trimtab bench rebalance`, tests and benches.

Members of one group run in this process, each with a session of its own. Messages are sent at a steady rate; members leave and join in turn. Every
message carries its number, so what was delivered twice and what was lost is counted, not guessed; who held which queue when comes from
the members' own callbacks.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from trimtab.balance.metrics import Held, double_held_s, unheld_s
from trimtab.client.admin import Admin
from trimtab.client.producer import Producer
from trimtab.client.push import PushConsumer
from trimtab.client.push_settings import Consuming
from trimtab.client.received import Received
from trimtab.errors import SettingsError, TrimtabError
from trimtab.io.clock import Clock, SystemClock
from trimtab.model import Message, MessageQueue
from trimtab.wire.signing import Credentials

_log = logging.getLogger(__name__)

SETTLE_S_MAX = 90.0
QUIET_S = 2.0
"""At the end: so long nothing more may come before what came is counted."""
STEP_S = 0.02


class RebalanceLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What happens."""

    nameserver: str
    topic: str
    group: str
    members: int = 4
    changes: int = 8
    per_second: int = 2_000
    handler_ms: int = 30
    mode: str = "leased"
    strategy: str | None = None
    queues: int = 16
    """At each broker."""
    pause_s: float = 5.0
    """Between two changes."""
    has_stable_ids: bool = False
    """Members that leave come back under the same id: a rolling restart."""
    credentials: Credentials | None = None
    tls: bool | str | None = None

    def __post_init__(self) -> None:
        if self.members < 2 or self.changes < 0 or self.per_second < 1 or self.handler_ms < 0:
            raise SettingsError("members must be 2 or more, rate 1 or more, changes and handler-ms 0 or more")


class RebalanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Seconds are queue-seconds."""

    sent: int
    delivered: int
    delivered_twice: int
    lost: int
    double_held_s: float
    unheld_s: float
    unheld_ms_max: int
    """The longest time that a queue which moved was with nobody."""
    undelivered_s: float
    """Of queues that moved: from the last message that one holder got to the first that the next one got."""
    undelivered_ms_max: int
    """The longest of these times."""
    moved: int
    converge_ms_max: int
    send_errors: int
    mode: str


class _Ledger:
    """Who held which queue when."""

    def __init__(self, clock: Clock, topic: str) -> None:
        self._clock = clock
        self._topic = topic
        self._open: dict[tuple[MessageQueue, str], int] = {}
        self._last: dict[MessageQueue, tuple[str, int]] = {}
        self.times: list[Held] = []
        self.moved = 0
        self.gap_ms_max = 0

    def took(self, member: str, queues: tuple[MessageQueue, ...]) -> None:
        now_ms = self._clock.monotonic_ms()
        for queue in queues:
            if queue.topic != self._topic:
                continue
            is_unheld = not self._is_held(queue)
            self._open[queue, member] = now_ms
            former, until_ms = self._last.get(queue, (member, now_ms))
            if former != member:
                self.moved += 1
                if is_unheld:
                    self.gap_ms_max = max(self.gap_ms_max, now_ms - until_ms)
            self._last[queue] = member, now_ms

    def left(self, member: str, queues: tuple[MessageQueue, ...]) -> None:
        now_ms = self._clock.monotonic_ms()
        for queue in queues:
            since_ms = self._open.pop((queue, member), None)
            if since_ms is not None:
                self.times.append(Held(queue, member, since_ms, now_ms))
                if not self._is_held(queue):  # else one of two holders left, and the other is the last
                    self._last[queue] = member, now_ms

    def _is_held(self, queue: MessageQueue) -> bool:
        return any(held == queue for held, _ in self._open)

    def holders(self) -> Counter[MessageQueue]:
        return Counter(queue for queue, _ in self._open)

    def end(self) -> None:
        for queue, member in list(self._open):
            self.left(member, (queue,))


class _Gaps:
    """For how long nobody got messages of a queue while it went from one member to another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[MessageQueue, tuple[str, int]] = {}
        self.all_ms = 0
        self.longest_ms = 0

    def delivered(self, member: str, queue: MessageQueue) -> None:
        now_ms = self._clock.monotonic_ms()
        former, at_ms = self._last.get(queue, (member, now_ms))
        self._last[queue] = member, now_ms
        if former != member:
            self.all_ms += now_ms - at_ms
            self.longest_ms = max(self.longest_ms, now_ms - at_ms)


class _Group:
    """The members, and what they got."""

    def __init__(self, load: RebalanceLoad, clock: Clock) -> None:
        self.load = load
        self.clock = clock
        self.ledger = _Ledger(clock, load.topic)
        self.gaps = _Gaps(clock)
        self.got: Counter[bytes] = Counter()
        self.places: Counter[tuple[MessageQueue, int]] = Counter()
        """By queue and offset: a send that is tried again may store one message twice, and that is not delivered twice."""
        self.members: list[tuple[str, PushConsumer]] = []
        self.queue_count = load.queues
        self._joined = 0

    async def join(self, name: str | None = None) -> None:
        load, ledger = self.load, self.ledger
        self._joined += 1
        name = name or f"member-{self._joined}"
        consumer = PushConsumer(
            load.group,
            subscribe={load.topic: "*"},
            handler=self._handler_of(name),
            nameserver=load.nameserver,
            credentials=load.credentials,
            tls=load.tls,
            client_id=f"{load.group}-{name}" if load.has_stable_ids else None,
            start="first",
            mode=load.mode,
            strategy=load.strategy,
            on_assigned=lambda queues: ledger.took(name, queues),
            on_revoked=lambda queues: ledger.left(name, queues),
            on_lost=lambda queues: ledger.left(name, queues),
            consuming=Consuming(concurrency=64),
        )
        await consumer.start()
        self.members.append((name, consumer))

    async def leave(self) -> str:
        name, consumer = self.members.pop(0)
        await consumer.close()
        return name

    async def close(self) -> None:
        members, self.members = self.members, []
        for _, consumer in members:
            await consumer.close()

    def _handler_of(self, name: str) -> Callable[[Received], Coroutine[Any, Any, None]]:
        async def handle(message: Received) -> None:
            self.got[message.body] += 1
            self.places[message.queue, message.queue_offset] += 1
            self.gaps.delivered(name, message.queue)
            await asyncio.sleep(self.load.handler_ms / 1000)

        return handle

    async def converged_ms(self) -> int:
        """How long until every queue has exactly one holder."""
        began_ms = self.clock.monotonic_ms()
        async with asyncio.timeout(SETTLE_S_MAX):
            while True:
                holders = self.ledger.holders()
                if len(holders) == self.queue_count and set(holders.values()) == {1}:
                    return self.clock.monotonic_ms() - began_ms
                await asyncio.sleep(STEP_S)


class Sending:
    """Messages at a steady rate, each with its number."""

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self.errors = 0
        self.is_over = False

    @property
    def sent(self) -> int:
        """Those that a broker has for certain."""
        return len(self.acknowledged)

    def missing(self, got: Mapping[bytes, int]) -> int:
        """How many of them never came. By their numbers: one that was stored though its send failed makes up for no other."""
        return sum(body not in got for body in self.acknowledged)

    async def run(self, load: RebalanceLoad) -> None:
        time_s = asyncio.get_running_loop().time
        async with Producer(
            "trimtab-bench", nameserver=load.nameserver, credentials=load.credentials, tls=load.tls
        ) as producer:
            began_s = time_s()
            while not self.is_over:
                tried = self.sent + self.errors
                due = max(1, int((time_s() - began_s) * load.per_second) - tried)
                bodies = [b"%d" % number for number in range(tried, tried + due)]
                sends = (producer.send(Message(load.topic, body)) for body in bodies)
                outcomes = await asyncio.gather(*sends, return_exceptions=True)
                for body, outcome in zip(bodies, outcomes, strict=True):
                    if isinstance(outcome, TrimtabError):
                        self.errors += 1
                    elif isinstance(outcome, BaseException):
                        raise outcome
                    else:
                        self.acknowledged.add(body)
                await asyncio.sleep(STEP_S)


async def run_rebalance_load(
    load: RebalanceLoad, *, clock: Clock | None = None, told: Callable[[str], None] = lambda _: None
) -> RebalanceReport:
    """All of it, from the topic's creation to the last message. Topic and group are gone afterwards."""
    clock = clock or SystemClock()
    async with Admin(nameserver=load.nameserver, credentials=load.credentials, tls=load.tls) as admin:
        await admin.create_topic(load.topic, queues=load.queues)
        group = _Group(load, clock)
        try:
            group.queue_count = len((await admin.topic_queues(load.topic)).queues)
            return await _changes_under_load(group, told)
        finally:
            await group.close()
            await _tidy_up(admin, load)


async def _changes_under_load(group: _Group, told: Callable[[str], None]) -> RebalanceReport:
    load, clock, sending = group.load, group.clock, Sending()
    for _ in range(load.members):
        await group.join()
    await group.converged_ms()
    first_ms, former_moves = clock.monotonic_ms(), group.ledger.moved
    converge_ms = [0]
    async with _running(sending, load):
        for number in range(load.changes):
            await asyncio.sleep(load.pause_s)
            converge_ms.append(await _change(group, number, told))
        await asyncio.sleep(load.pause_s)
    await _all_delivered(group, sending)
    last_ms = clock.monotonic_ms()
    queues = tuple(group.ledger.holders())
    moves = group.ledger.moved - former_moves
    group.ledger.end()
    await group.close()
    times = group.ledger.times
    return RebalanceReport(
        sent=sending.sent,
        delivered=group.got.total(),
        delivered_twice=sum(count - 1 for count in group.places.values()),
        lost=sending.missing(group.got),
        double_held_s=double_held_s(times),
        unheld_s=unheld_s(times, queues, first_ms, last_ms),
        unheld_ms_max=group.ledger.gap_ms_max,
        undelivered_s=group.gaps.all_ms / 1000,
        undelivered_ms_max=group.gaps.longest_ms,
        moved=moves,
        converge_ms_max=max(converge_ms),
        send_errors=sending.errors,
        mode=load.mode,
    )


async def _tidy_up(admin: Admin, load: RebalanceLoad) -> None:
    """A bench leaves nothing behind; what cannot be removed is told, and the figures count all the same."""
    for name, remove in ((load.topic, admin.delete_topic), (load.group, admin.delete_group)):
        try:
            await remove(name)
        except TrimtabError as error:
            _log.warning("%s of the bench is left behind: %s", name, error)


@asynccontextmanager
async def _running(sending: Sending, load: RebalanceLoad) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(sending.run(load))
    try:
        yield
    finally:
        sending.is_over = True
        await task


async def _change(group: _Group, number: int, told: Callable[[str], None]) -> int:
    """Leaves and joins take turns; a restart under the same id is both at once."""
    if group.load.has_stable_ids:
        name = await group.leave()
        await group.join(name)
        told(f"{name} restarted")
    elif number % 2 == 0:
        told(f"{await group.leave()} left")
    else:
        await group.join()
        told(f"{group.members[-1][0]} joined")
    return await group.converged_ms()


async def _all_delivered(group: _Group, sending: Sending) -> None:
    """Until everything came and then nothing more, or the time is over."""
    time_s = asyncio.get_running_loop().time
    until_s = time_s() + SETTLE_S_MAX
    seen = -1
    while sending.missing(group.got) and time_s() < until_s:
        seen = group.got.total()
        await asyncio.sleep(STEP_S)
    while seen != group.got.total() and time_s() < until_s:
        seen = group.got.total()
        await asyncio.sleep(QUIET_S)
