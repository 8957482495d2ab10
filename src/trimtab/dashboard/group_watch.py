"""Looking at one group again and again: each look is compared with the one before."""

import asyncio
from typing import TYPE_CHECKING

from trimtab.cli.group_events import events_between
from trimtab.cli.group_rows import holder_table
from trimtab.client.admin.diagnosis import Facts, Look
from trimtab.client.admin.facts import look_at, topics_of
from trimtab.client.admin.rows import GroupMembers, GroupSettings, RouteOfNameserver
from trimtab.dashboard.answers import Group, Moment, Timeline
from trimtab.dashboard.group_view import group_view
from trimtab.dashboard.history import History
from trimtab.dashboard.timeline import flights_of, held_since, moments_of, seen_moments, timeline
from trimtab.io.clock import Clock

if TYPE_CHECKING:
    from trimtab.client.admin import Admin

STEADY_FACTS_MS = 10_000
"""Settings and routes change seldom: they are asked for this seldom."""
HISTORY_MS = 6 * 3_600_000
Sight = tuple[Group, Timeline, tuple[Moment, ...]]


class GroupWatch:
    """See the module's own words."""

    def __init__(self, admin: "Admin", group: str, clock: Clock, history: History) -> None:
        self._admin = admin
        self._group = group
        self._clock = clock
        self._history = history
        self._settings: GroupSettings | None = None
        self._routes: dict[str, tuple[RouteOfNameserver, ...]] = {}
        self._steady_ms = 0
        self._before: tuple[GroupMembers, Look] | None = None
        self._kept_ms: dict[str, int] = {}

    async def look(self) -> Sight:
        """Everything about the group, now."""
        now_ms = self._clock.monotonic_ms()
        if self._settings is None or now_ms - self._steady_ms > STEADY_FACTS_MS:
            self._settings = await self._admin.group_settings(self._group)
        members = await self._admin.members(self._group)
        look = await look_at(self._admin, self._group, self._clock, members)
        topics = topics_of(members, look)
        if now_ms - self._steady_ms > STEADY_FACTS_MS or set(topics) - set(self._routes):
            self._routes = await self._routes_of(topics)
            self._steady_ms = now_ms
        before = look if self._before is None else self._before[1]
        facts = Facts(
            group=self._group,
            settings=self._settings,
            members=members,
            routes=self._routes,
            before=before,
            after=look,
        )
        await asyncio.to_thread(self._keep, members, look)
        self._before = (members, look)
        moments = await asyncio.to_thread(self._history.moments, self._group)
        points = await asyncio.to_thread(
            self._history.figures, f"lag:{self._group}", look.now_ms - HISTORY_MS
        )
        past = timeline(self._group, moments, flights_of(look.states), members.client_ids)
        return group_view(facts, held_since(moments), points), past, moments

    async def _routes_of(self, topics: list[str]) -> dict[str, tuple[RouteOfNameserver, ...]]:
        told = await asyncio.gather(*(self._admin.topic_routes(topic) for topic in topics))
        return {
            topic: rows
            for topic, (rows, _) in zip(topics, told, strict=True)
            if any(row.route for row in rows)
        }

    def _keep(self, members: GroupMembers, look: Look) -> None:
        """What recorders have that we have not, and what changed since the last look."""
        moments: list[Moment] = []
        for client_id, flight in flights_of(look.states).items():
            after_ms = self._kept_ms.get(client_id, -1)
            fresh = [event for event in flight.events if event.at_ms >= after_ms]
            moments += moments_of(client_id, fresh)
            if fresh:
                self._kept_ms[client_id] = fresh[-1].at_ms
        if self._before is not None:
            earlier, look_before = self._before
            silent = (
                earlier.failures or members.failures or look.states.failures or look_before.states.failures
            )
            # Who did not answer did not leave: nothing is told from a look that lacks an answer.
            if not silent:
                changed = events_between(
                    self._group,
                    look.now_ms,
                    (frozenset(earlier.client_ids), frozenset(members.client_ids)),
                    (holder_table(look_before), holder_table(look)),
                )
                moments += seen_moments(changed)
        self._history.add_moments(self._group, moments)
        self._history.add_figures(look.now_ms, [(f"lag:{self._group}", float(look.progress.lag))])
