"""The demo's second part: a group of consumer processes, and what happens when they come, go and are killed."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.cli.demo import DemoPlan
    from trimtab.cli.demo_counts import GroupCounts, Ledger
    from trimtab.cli.demo_screen import Screen
    from trimtab.io.clock import Clock
    from trimtab.model import MessageQueue
    from trimtab.testing import AsyncCluster

SETTLE_S_MAX = 120.0
END_S_MAX = 60.0
STEP_S = 0.02
STABLE_MS = 700
"""A group in which nothing moved for so long is settled."""
QUIET_S = 1.5
"""So long nothing more may come before what came is counted."""
MESSAGES_MAX = 100_000
KEPT_PER_SECOND = 20
"""While the cluster is kept up for the user, until `MESSAGES_MAX` were sent."""


class Member:
    """A consumer in a process of its own."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, ledger: "Ledger", clock: "Clock"
    ) -> None:
        self.name = name
        self._process = process
        self._ledger = ledger
        self._clock = clock
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.returncode is not None

    async def _read(self) -> None:
        assert self._process.stdout is not None, "it has a pipe"
        async for line in self._process.stdout:
            with suppress(ValueError):  # the last words of a process that was killed
                self._ledger.hear(self.name, json.loads(line))

    async def leave(self) -> None:
        """In good order."""
        assert self._process.stdin is not None, "it has a pipe"
        self._process.stdin.close()
        try:
            async with asyncio.timeout(END_S_MAX):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise TrimtabError(f"{self.name} did not leave within {END_S_MAX:.0f} s") from None
        await self._ended(self._clock.monotonic_ms())

    async def kill(self) -> None:
        """SIGKILL: nobody is told."""
        if not self.has_ended:
            self._process.kill()
        killed_ms = self._clock.monotonic_ms()
        await self._process.wait()
        await self._ended(killed_ms)

    async def _ended(self, at_ms: int) -> None:
        await self._reading
        self._ledger.gone(self.name, at_ms)


class Group:
    """All members, and what they reported."""

    def __init__(self, nameserver: str, mode: str, plan: "DemoPlan", clock: "Clock") -> None:
        from trimtab.cli.demo_counts import Ledger

        self.mode = mode
        self.topic = f"orders-{mode}"
        self.ledger = Ledger(self.topic)
        self.members: dict[str, Member] = {}
        self.queues = 2 * plan.queues
        self.moved = self.moved_min = self.settle_ms_max = 0
        self._nameserver = nameserver
        self._plan = plan
        self._clock = clock
        self._count = 0

    async def join(self) -> str:
        """One more process."""
        self._count += 1
        name = f"consumer-{self._count}"
        starting = asyncio.get_running_loop().create_task(self._start())
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            process = await starting  # nobody knows it yet, so nobody else would end it
            process.kill()
            await process.wait()
            raise
        self.members[name] = Member(name, process, self.ledger, self._clock)
        return name

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "trimtab.cli.demo_member",
            self._nameserver, f"billing-{self.mode}", self.topic, self.mode, str(self._plan.handler_ms),
            "trace" if self._plan.with_spark else "no-trace",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    async def leave(self) -> str:
        """The first one goes in good order."""
        name = next(iter(self.members))
        await self.members.pop(name).leave()
        return name

    async def crash(self) -> str:
        """The first one is killed."""
        name = next(iter(self.members))
        self.ledger.crashed(name, self._clock.monotonic_ms())
        await self.members.pop(name).kill()
        return name

    async def settled(self) -> int:
        """Until every queue has exactly one holder, every member something to do, and nothing changes any more; the time of the last change."""
        changed_ms = now_ms = self._clock.monotonic_ms()
        before: dict[MessageQueue, list[str]] = {}
        try:
            async with asyncio.timeout(SETTLE_S_MAX):
                while now_ms - changed_ms < STABLE_MS or not self.ledger.is_settled(
                    self.queues, self.members
                ):
                    if dead := [name for name, member in self.members.items() if member.has_ended]:
                        raise TrimtabError(f"{', '.join(dead)} ended by itself; what it said is above")
                    await asyncio.sleep(STEP_S)
                    now_ms, holders = self._clock.monotonic_ms(), self.ledger.holders()
                    if holders != before:
                        before, changed_ms = holders, now_ms
        except TimeoutError:
            raise TrimtabError(f"the group did not settle within {SETTLE_S_MAX:.0f} s") from None
        return changed_ms

    def holders(self) -> "dict[MessageQueue, str]":
        """Who holds what, in a settled group."""
        return {queue: names[0] for queue, names in self.ledger.holders().items()}

    async def end(self) -> None:
        """Whatever happened, no process is left."""
        for member in self.members.values():
            await member.kill()
        self.members.clear()


class Load:
    """Messages at a steady rate, each with its number."""

    def __init__(
        self, nameserver: str, topic: str, per_second: int, messages_max: int = MESSAGES_MAX
    ) -> None:
        self.sent: set[int] = set()
        self.errors = 0
        self._nameserver = nameserver
        self._topic = topic
        self._per_second = per_second
        self._messages_max = messages_max

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Until the end of the block."""
        is_over = asyncio.Event()
        sending = asyncio.get_running_loop().create_task(self._send(is_over))
        try:
            yield
        finally:
            is_over.set()
            await sending

    async def _send(self, is_over: asyncio.Event) -> None:
        from trimtab.client.producer import Producer
        from trimtab.model import Message

        time_s = asyncio.get_running_loop().time
        async with Producer("shop", nameserver=self._nameserver) as producer:
            began_s, next_number = time_s(), 0

            async def one(number: int) -> None:
                try:
                    await producer.send(
                        Message(self._topic, str(number).encode(), tag="eu", keys=[f"o-{number}"])
                    )
                except TrimtabError:
                    self.errors += 1
                else:
                    self.sent.add(number)

            while not is_over.is_set():
                due = min(self._messages_max, int((time_s() - began_s) * self._per_second))
                numbers, next_number = range(next_number, due), max(next_number, due)
                await asyncio.gather(*map(one, numbers))
                await asyncio.sleep(STEP_S)


async def show_group(cluster: "AsyncCluster", plan: "DemoPlan", screen: "Screen", mode: str) -> "GroupCounts":
    """Three start, one joins, one leaves, one crashes; all under load."""
    from trimtab.client.admin import Admin
    from trimtab.io.clock import SystemClock

    clock = SystemClock()
    group = Group(cluster.nameserver, mode, plan, clock)
    load = Load(cluster.nameserver, group.topic, plan.per_second)
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic(group.topic, queues=plan.queues)
    screen.say(f"[bold]{mode}[/bold]")
    try:
        async with screen.moving(lambda: _members_table(group, load)):
            for _ in range(plan.members):
                await group.join()
            await group.settled()
            first_ms = clock.monotonic_ms()
            await _changes(group, load, plan, screen, clock)
            await _all_delivered(group, load)
            last_ms = clock.monotonic_ms()
            return _counts(group, load, first_ms, last_ms)
    finally:
        await group.end()


@asynccontextmanager
async def living_group(cluster: "AsyncCluster", plan: "DemoPlan") -> AsyncIterator[None]:
    """Members and a little traffic to look at, for as long as the block."""
    from trimtab.io.clock import SystemClock

    group = Group(cluster.nameserver, "leased", plan, SystemClock())
    try:
        for _ in range(plan.members):
            await group.join()
        async with Load(cluster.nameserver, group.topic, KEPT_PER_SECOND).running():
            yield
    finally:
        await group.end()


async def _changes(group: Group, load: Load, plan: "DemoPlan", screen: "Screen", clock: "Clock") -> None:
    from trimtab.balance.metrics import moved
    from trimtab.cli.demo_counts import fewest_moves

    changes: tuple[tuple[str, Callable[[], Awaitable[str]]], ...] = (
        ("joined", group.join),
        ("left", group.leave),
        ("killed", group.crash),
    )
    async with load.running():
        for what, change in changes:
            await asyncio.sleep(plan.pause_s)
            before, began_ms = group.holders(), clock.monotonic_ms()
            name = await change()
            settle_ms = await group.settled() - began_ms
            after = group.holders()
            moves, least = moved(before, after), fewest_moves(before, after)
            group.moved += moves
            group.moved_min += least
            group.settle_ms_max = max(group.settle_ms_max, settle_ms)
            again = sum(group.ledger.twice())
            screen.say(
                f"  {name} {what:<6}  settled in {settle_ms / 1000:4.1f} s, {moves:2} queues moved (min {least}),"
                f" [{'yellow' if again else 'green'}]{again:3} came again[/]"
            )
        await asyncio.sleep(plan.pause_s)


async def _all_delivered(group: Group, load: Load) -> None:
    """Until everything came and then nothing more, or the time is over."""
    time_s = asyncio.get_running_loop().time
    until_s = time_s() + SETTLE_S_MAX
    while not load.sent <= group.ledger.deliveries.keys() and time_s() < until_s:  # noqa: ASYNC110 - two sides change
        await asyncio.sleep(STEP_S)
    seen = -1
    while seen != group.ledger.total() and time_s() < until_s:
        seen = group.ledger.total()
        await asyncio.sleep(QUIET_S)


def _counts(group: Group, load: Load, first_ms: int, last_ms: int) -> "GroupCounts":
    from trimtab.balance.metrics import double_held_s, unheld_s
    from trimtab.cli.demo_counts import GroupCounts

    ledger = group.ledger
    queues = tuple(ledger.holders())
    for name in list(group.members):
        ledger.gone(name, last_ms)
    planned, crash = ledger.twice()
    return GroupCounts(
        mode=group.mode,
        topic=group.topic,
        sent=len(load.sent),
        send_errors=load.errors,
        delivered=ledger.total(),
        twice_planned=planned,
        twice_crash=crash,
        lost=len(load.sent - ledger.deliveries.keys()),
        double_held_s=double_held_s(ledger.held),
        unheld_s=unheld_s(ledger.held, queues, first_ms, last_ms),
        moved=group.moved,
        moved_min=group.moved_min,
        settle_ms_max=group.settle_ms_max,
    )


def _members_table(group: Group, load: Load) -> "Table":
    from rich.table import Table

    table = Table("member", "queues", "messages", "", box=None, padding=(0, 2))
    for name, got in sorted(group.ledger.got.items()):
        state = "" if name in group.members else "killed" if name in group.ledger.dead else "left"
        held = group.ledger.queues_of(name)
        table.add_row(name, f"{held:2} {'█' * held}", f"{got:,}", state, style=None if not state else "dim")
    twice = sum(group.ledger.twice())
    waiting = len(load.sent) - len(group.ledger.deliveries)
    table.caption = f"sent {len(load.sent):,}, waiting {max(0, waiting):,}, delivered again {twice:,}"
    return table
