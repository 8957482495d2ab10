"""The one that asks brokers. However many pages are open, each subject is asked once in its time, and all pages get that.

A subject is the overview, or a group or a topic that somebody looks at. It has a task of its own, so that one whose servers hang delays no other.
Who is in a group is a question for each group: an overview asks it of those that wait for something and of a few others in turn, and
knows the rest from before. While nobody is there only lags are asked for, seldom, for the history.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from trimtab.client.admin.rows import BrokerStates, ClusterView, GroupLine, GroupLines, Names
from trimtab.dashboard.answers import Overview, Topic
from trimtab.dashboard.group_watch import GroupSight, GroupWatch
from trimtab.dashboard.history import History
from trimtab.dashboard.overview_view import SYSTEM_GROUPS, Watched, overview_view
from trimtab.dashboard.subject import BusyError, Pace, Subject
from trimtab.dashboard.topic_watch import TopicWatch
from trimtab.io.clock import Clock

if TYPE_CHECKING:
    from trimtab.client.admin import Admin

SUBJECTS_MAX = 64
"""Groups and topics that are looked at in one time; the one that nobody asked for the longest goes first."""
LISTENERS_MAX = 500
MEMBERS_ASKED_MAX = 100
"""Groups whose members are asked for in one look at the cluster, but for the first."""
SHOWN_HISTORY_MS = 6 * 3_600_000
TOTAL_LAG = "lag"
Kind = Literal["group", "topic", "producers", "dead letters"]
T = TypeVar("T")


class Poller:
    """All subjects of a cluster."""

    def __init__(self, admin: "Admin", clock: Clock, history: History, pace: Pace | None = None) -> None:
        self._admin = admin
        self._clock = clock
        self._history = history
        self._pace = pace or Pace()
        self._overview: Subject[Overview] | None = None
        self._subjects: dict[tuple[Kind, str], Subject[Any]] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._lines: dict[str, GroupLine] = {}
        self._next_asked = 0

    async def start(self) -> None:
        """Begins to look at the cluster."""
        self._overview = Subject(
            self._look_at_cluster,
            self._pace.overview_s,
            self._clock,
            pace=self._pace,
            rest=self._keep_lags,
        )
        self._sweeping = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Ends."""
        tasks = [subject.task for subject in self._subjects.values()]
        tasks += [task for task in (self._overview and self._overview.task, self._sweeping) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._subjects.clear()

    @property
    def overview(self) -> Subject[Overview]:
        """The cluster."""
        assert self._overview is not None, "the poller was not started"
        return self._overview

    def group(self, name: str) -> Subject[GroupSight]:
        """A group; from now on it is looked at, while somebody asks."""
        return self._subject(
            "group",
            name,
            lambda: GroupWatch(self._admin, name, self._clock, self._history).look,
            self._pace.group_s,
        )

    def topic(self, name: str) -> Subject[Topic]:
        """A topic; from now on it is looked at, while somebody asks."""
        return self._subject(
            "topic", name, lambda: TopicWatch(self._admin, name, self._clock).look, self._pace.topic_s
        )

    def listing(self, kind: Kind, look: Callable[[], Awaitable[T]]) -> Subject[T]:
        """A list that is the same for everybody; from now on it is made, while somebody asks."""
        return self._subject(kind, "", lambda: look, self._pace.topic_s)

    def _subject(
        self, kind: Kind, name: str, watch: Callable[[], Callable[[], Awaitable[T]]], every_s: float
    ) -> Subject[T]:
        subject = self._subjects.get((kind, name))
        if subject is None:
            self._make_room()
            subject = self._subjects[kind, name] = Subject(watch(), every_s, self._clock)
        return cast("Subject[T]", subject)

    def forget(self, kind: Kind, name: str) -> None:
        """What does not exist is not looked at."""
        subject = self._subjects.pop((kind, name), None)
        if subject is not None:
            subject.task.cancel()

    @property
    def listeners(self) -> int:
        """How many pages listen, all together."""
        return self.overview.listeners + sum(subject.listeners for subject in self._subjects.values())

    def check_listeners(self) -> None:
        """Refuses one page more than there may be."""
        if self.listeners >= LISTENERS_MAX:
            raise BusyError(f"{LISTENERS_MAX} pages are open already; close some")

    def _make_room(self) -> None:
        while len(self._subjects) >= SUBJECTS_MAX:
            idle = [key for key, subject in self._subjects.items() if not subject.is_watched]
            if not idle:
                raise BusyError(f"{SUBJECTS_MAX} groups and topics are looked at already; close some pages")
            oldest = min(idle, key=lambda key: self._subjects[key].asked_ms)
            self._subjects.pop(oldest).task.cancel()

    async def _sweep(self) -> None:
        """What nobody looks at any more is left alone."""
        while True:
            await asyncio.sleep(self._pace.idle_s / 4)
            border_ms = self._clock.monotonic_ms() - int(self._pace.idle_s * 1000)
            for key, subject in list(self._subjects.items()):
                if not subject.is_watched and subject.asked_ms < border_ms:
                    self._subjects.pop(key).task.cancel()

    async def _look_at_cluster(self) -> Overview:
        admin = self._admin
        cluster, states, lines, topics = await asyncio.gather(
            admin.cluster(), admin.broker_states(), admin.group_lines(self._known()), admin.topics()
        )
        self._lines = {line.group: line for line in lines.groups}
        return await asyncio.to_thread(self._overview_of, cluster, states, lines, topics)

    def _known(self) -> dict[str, GroupLine]:
        """Groups whose members are not asked for this time."""
        names = sorted(self._lines)
        start, self._next_asked = self._next_asked, self._next_asked + MEMBERS_ASKED_MAX // 2
        if self._next_asked >= len(names):
            self._next_asked = 0
        waiting = [name for name in names if self._lines[name].lag > 0 or self._lines[name].members is None]
        asked = {*waiting[: MEMBERS_ASKED_MAX // 2], *names[start : start + MEMBERS_ASKED_MAX // 2]}
        return {name: self._lines[name] for name in names if name not in asked}

    def _overview_of(
        self, cluster: ClusterView, states: BrokerStates, lines: GroupLines, topics: Names
    ) -> Overview:
        at_ms = self._clock.wall_ms()
        self._keep(at_ms, lines)
        points = self._history.figures(TOTAL_LAG, at_ms - SHOWN_HISTORY_MS)
        watched: Watched = {
            name: subject.value.group.findings
            for (kind, name), subject in list(self._subjects.items())
            if kind == "group" and subject.value is not None
        }
        return overview_view(at_ms, cluster, states, lines, topics, points, watched)

    async def _keep_lags(self) -> None:
        lines = await self._admin.group_lines(self._lines)
        await asyncio.to_thread(self._keep, self._clock.wall_ms(), lines)

    def _keep(self, at_ms: int, lines: GroupLines) -> None:
        """Lags are kept when all brokers told theirs: a part of them looks like a fall."""
        if lines.failures:
            return
        own = [line for line in lines.groups if line.group not in SYSTEM_GROUPS]
        figures = [(f"lag:{line.group}", float(line.lag)) for line in own]
        self._history.add_figures(at_ms, [*figures, (TOTAL_LAG, float(sum(line.lag for line in own)))])
