"""The one that asks brokers. However many pages are open, each subject is asked once in its time, and all pages get that.

A subject is the overview, or a group that somebody looks at. It has a task of its own, so that a group whose members hang delays no other.
A look that took long is followed by a pause that is as long: brokers are never asked more than half of the time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from trimtab.dashboard.answers import Group, Moment, Overview, Timeline
from trimtab.dashboard.group_watch import GroupWatch
from trimtab.dashboard.history import History
from trimtab.dashboard.overview_view import overview_view
from trimtab.errors import TrimtabError
from trimtab.io.clock import Clock

if TYPE_CHECKING:
    from trimtab.client.admin import Admin

logger = logging.getLogger(__name__)
T = TypeVar("T")

GROUPS_MAX = 64
"""Groups that are looked at in one time; the one that nobody asked for the longest goes first."""
LISTENERS_MAX = 500
IDLE_S = 60.0
FIRST_LOOK_S_MAX = 30.0
SHOWN_HISTORY_MS = 6 * 3_600_000
TOTAL_LAG = "lag"


class BusyError(TrimtabError):
    """The dashboard does as much as it may already."""

    retriable = True


class LookFailedError(TrimtabError):
    """A mistake of our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often brokers are asked."""

    overview_s: float = 3.0
    group_s: float = 1.0


class Subject(Generic[T]):
    """Something that is looked at again and again."""

    def __init__(self, look: Callable[[], Awaitable[T]], every_s: float, clock: Clock) -> None:
        self._look = look
        self._every_s = every_s
        self._clock = clock
        self._listeners: set[asyncio.Event] = set()
        self._looked = asyncio.Event()
        self.value: T | None = None
        self.error: TrimtabError | None = None
        self.looks = 0
        self.asked_ms = clock.monotonic_ms()
        self.task = asyncio.create_task(self._run())

    @property
    def is_watched(self) -> bool:
        """Whether a page listens."""
        return bool(self._listeners)

    async def now(self) -> T:
        """What was seen last; waits for the first look. Raises if nothing was ever seen."""
        self.asked_ms = self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(FIRST_LOOK_S_MAX):
                await self._looked.wait()
        except TimeoutError:
            raise BusyError("the first look takes long; come again in a moment") from None
        if self.value is None:
            assert self.error is not None
            raise self.error
        return self.value

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever there is something new; whoever waits clears it."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            yield event
        finally:
            self._listeners.discard(event)
            self.asked_ms = self._clock.monotonic_ms()

    @property
    def listeners(self) -> int:
        """How many pages listen."""
        return len(self._listeners)

    async def _run(self) -> None:
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                self.value = await self._look()
                self.error = None
            except TrimtabError as error:
                self.error = error
            except Exception:
                logger.exception("a look failed; the next one comes in its time")
                self.error = LookFailedError(
                    "the dashboard made a mistake while it looked; its log says more"
                )
            self.looks += 1
            self._looked.set()
            for event in self._listeners:
                event.set()
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(max(self._every_s - took_s, took_s, 0.05))


@dataclass(frozen=True, slots=True)
class GroupSight:
    """A group as it was seen last."""

    group: Group
    timeline: Timeline
    moments: tuple[Moment, ...]


class Poller:
    """All subjects of a cluster."""

    def __init__(self, admin: "Admin", clock: Clock, history: History, pace: Pace | None = None) -> None:
        self._admin = admin
        self._clock = clock
        self._history = history
        self._pace = pace or Pace()
        self._overview: Subject[Overview] | None = None
        self._groups: dict[str, Subject[GroupSight]] = {}
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to look at the cluster."""
        self._overview = Subject(self._look_at_cluster, self._pace.overview_s, self._clock)
        self._sweeping = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Ends."""
        tasks = [subject.task for subject in self._groups.values()]
        tasks += [task for task in (self._overview and self._overview.task, self._sweeping) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._groups.clear()

    @property
    def overview(self) -> Subject[Overview]:
        """The cluster."""
        assert self._overview is not None, "the poller was not started"
        return self._overview

    def group(self, name: str) -> Subject[GroupSight]:
        """A group; from now on it is looked at, while somebody asks."""
        subject = self._groups.get(name)
        if subject is None:
            self._make_room()
            watch = GroupWatch(self._admin, name, self._clock, self._history)

            async def look() -> GroupSight:
                return GroupSight(*await watch.look())

            subject = self._groups[name] = Subject(look, self._pace.group_s, self._clock)
        return subject

    async def forget(self, name: str) -> None:
        """A group that does not exist is not looked at."""
        subject = self._groups.pop(name, None)
        if subject is not None:
            subject.task.cancel()

    @property
    def listeners(self) -> int:
        """How many pages listen, all together."""
        return self.overview.listeners + sum(subject.listeners for subject in self._groups.values())

    def check_listeners(self) -> None:
        """Refuses one page more than there may be."""
        if self.listeners >= LISTENERS_MAX:
            raise BusyError(f"{LISTENERS_MAX} pages are open already; close some")

    def _make_room(self) -> None:
        while len(self._groups) >= GROUPS_MAX:
            idle = [name for name, subject in self._groups.items() if not subject.is_watched]
            if not idle:
                raise BusyError(f"{GROUPS_MAX} groups are looked at already; close some pages")
            oldest = min(idle, key=lambda name: self._groups[name].asked_ms)
            self._groups.pop(oldest).task.cancel()

    async def _sweep(self) -> None:
        """Groups that nobody looks at any more are left alone."""
        while True:
            await asyncio.sleep(IDLE_S / 4)
            border_ms = self._clock.monotonic_ms() - int(IDLE_S * 1000)
            for name, subject in list(self._groups.items()):
                if not subject.is_watched and subject.asked_ms < border_ms:
                    self._groups.pop(name).task.cancel()

    async def _look_at_cluster(self) -> Overview:
        admin = self._admin
        cluster, states, lines, topics = await asyncio.gather(
            admin.cluster(), admin.broker_states(), admin.group_lines(), admin.topics()
        )
        at_ms = self._clock.wall_ms()
        found = overview_view(at_ms, cluster, states, lines, topics)
        figures = [(f"lag:{one.group}", float(one.lag)) for one in found.groups]
        figures.append((TOTAL_LAG, float(found.lag)))
        await asyncio.to_thread(self._history.add_figures, at_ms, figures)
        points = await asyncio.to_thread(self._history.figures, TOTAL_LAG, at_ms - SHOWN_HISTORY_MS)
        return overview_view(at_ms, cluster, states, lines, topics, points)
