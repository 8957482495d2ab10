"""Looking at a group twice, a moment apart: what `group describe`, `watch` and `doctor` start from."""

import asyncio
from typing import TYPE_CHECKING

from trimtab.client.admin.diagnosis import Facts, Look
from trimtab.client.admin.rows import GroupMembers, MemberStates, RouteOfNameserver
from trimtab.io.clock import Clock
from trimtab.wire.resources import RETRY_PREFIX

if TYPE_CHECKING:
    from trimtab.client.admin import Admin


async def look_at(admin: "Admin", group: str, clock: Clock, members: GroupMembers | None = None) -> Look:
    """Who holds what, and how far the group has come, at about one time."""
    members = await admin.members(group) if members is None else members
    states, progress = await asyncio.gather(_states(admin, members), admin.progress(group))
    return Look(now_ms=clock.wall_ms(), states=states, progress=progress)


async def _states(admin: "Admin", members: GroupMembers) -> MemberStates:
    if not members.views:
        return MemberStates(group=members.group, members=())
    return await admin.member_states(members.group, members)


async def facts_of(admin: "Admin", group: str, clock: Clock, *, sample_s: float) -> Facts:
    """Everything that a diagnosis wants to know."""
    settings, members = await asyncio.gather(admin.group_settings(group), admin.members(group))
    before = await look_at(admin, group, clock, members)
    await asyncio.sleep(sample_s)
    members = await admin.members(group)
    after = await look_at(admin, group, clock, members)
    topics = topics_of(members, after)
    told = await asyncio.gather(*(admin.topic_routes(topic) for topic in topics))
    routes: dict[str, tuple[RouteOfNameserver, ...]] = {
        topic: rows for topic, (rows, _) in zip(topics, told, strict=True) if any(row.route for row in rows)
    }
    return Facts(group=group, settings=settings, members=members, routes=routes, before=before, after=after)


def topics_of(members: GroupMembers, look: Look) -> list[str]:
    """The topics that members subscribe to; without members those that have offsets."""
    subscribed = {subscription.topic for view in members.views for subscription in view.subscriptions} | {
        subscription.topic for state in look.states.members for subscription in state.subscriptions
    }
    if not members.views:
        subscribed = {row.topic for row in look.progress.queues if not row.topic.startswith(RETRY_PREFIX)}
    return sorted(subscribed)
