"""Looking at one group again and again: each look is compared with the one before."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.cli.group_rows import changes_between, is_whole
from trimtab.client.admin.diagnosis import Facts, Look
from trimtab.client.admin.facts import look_at, topics_of
from trimtab.client.admin.queue_lines import queue_lines
from trimtab.client.admin.rows import GroupMembers, GroupSettings, QueueLine, RouteOfNameserver
from trimtab.dashboard.answers import Group, Moment, Timeline
from trimtab.dashboard.group_view import group_view, lines_since
from trimtab.dashboard.history import History
from trimtab.dashboard.timeline import flights_of, held_since, moments_of, seen_moments, timeline
from trimtab.io.clock import Clock

if TYPE_CHECKING:
    from trimtab.client.admin import Admin

STEADY_FACTS_MS = 10_000
"""Settings and routes change seldom: they are asked for this seldom."""
ROUTES_ASKED_MAX = 200
"""Topics whose routes are asked for in one look: a group of thousands is seen at once, and what its routes tell a few looks later."""
HISTORY_MS = 6 * 3_600_000


@dataclass(frozen=True, slots=True)
class GroupSight:
    """A group as it was seen last."""

    group: Group
    lines: tuple[QueueLine, ...]
    """All of its queues; a group shows only the first of very many."""
    timeline: Timeline
    moments: tuple[Moment, ...]


class GroupWatch:
    """See the module's own words."""

    def __init__(self, admin: "Admin", group: str, clock: Clock, history: History) -> None:
        self._admin = admin
        self._group = group
        self._clock = clock
        self._history = history
        self._settings: GroupSettings | None = None
        self._routes: dict[str, tuple[RouteOfNameserver, ...]] = {}
        self._routes_due: list[str] = []
        self._steady_ms = 0
        self._before: Look | None = None
        self._whole: tuple[GroupMembers, Look] | None = None
        self._kept_ms: dict[str, int] = {}

    async def look(self) -> GroupSight:
        """Everything about the group, now."""
        now_ms = self._clock.monotonic_ms()
        if self._settings is None or now_ms - self._steady_ms > STEADY_FACTS_MS:
            self._settings = await self._admin.group_settings(self._group)
        members = await self._admin.members(self._group)
        look = await look_at(self._admin, self._group, self._clock, members)
        topics = topics_of(members, look)
        if now_ms - self._steady_ms > STEADY_FACTS_MS:
            self._routes_due = topics
            self._steady_ms = now_ms
        await self._ask_for_routes(topics)
        facts = Facts(
            group=self._group,
            settings=self._settings,
            members=members,
            routes=self._routes,
            before=self._before or look,
            after=look,
        )
        sight = await asyncio.to_thread(self._sight, facts)
        self._before = look
        return sight

    async def _ask_for_routes(self, topics: list[str]) -> None:
        due = set(self._routes_due)
        waiting = [topic for topic in topics if topic in due]
        waiting += [topic for topic in topics if topic not in due and topic not in self._routes]
        asked, self._routes_due = waiting[:ROUTES_ASKED_MAX], waiting[ROUTES_ASKED_MAX:]
        told = await asyncio.gather(*(self._admin.topic_routes(topic) for topic in asked))
        known = {topic: self._routes[topic] for topic in topics if topic in self._routes}
        for topic, (rows, _) in zip(asked, told, strict=True):
            known.pop(topic, None)
            if any(row.route for row in rows):
                known[topic] = rows
        self._routes = known

    def _sight(self, facts: Facts) -> GroupSight:
        """In a thread: with very many queues it takes its time, and pages go on meanwhile."""
        look = facts.after
        self._keep(facts.members, look)
        moments = self._history.moments(self._group)
        points = self._history.figures(f"lag:{self._group}", look.now_ms - HISTORY_MS)
        past = timeline(self._group, moments, flights_of(look.states), facts.members.client_ids)
        before = facts.before if facts.before is not look else None
        lines = lines_since(queue_lines(before, look), held_since(moments))
        return GroupSight(group_view(facts, lines, points), lines, past, moments)

    def _keep(self, members: GroupMembers, look: Look) -> None:
        """What recorders have that we have not, and what changed since the last look."""
        moments: list[Moment] = []
        for client_id, flight in flights_of(look.states).items():
            after_ms = self._kept_ms.get(client_id, -1)
            fresh = [event for event in flight.events if event.at_ms >= after_ms]
            moments += moments_of(client_id, fresh)
            if fresh:
                self._kept_ms[client_id] = fresh[-1].at_ms
        if is_whole(members, look):
            if self._whole is not None:
                moments += seen_moments(changes_between(self._whole, (members, look)))
            self._whole = (members, look)
        self._history.add_moments(self._group, moments)
        if not look.progress.failures:
            self._history.add_figures(look.now_ms, [(f"lag:{self._group}", float(look.progress.lag))])
