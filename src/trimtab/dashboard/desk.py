"""Where every question of pages and programs is answered: from what the poller saw, or by asking brokers now."""

import asyncio
from typing import TYPE_CHECKING

from trimtab.client.admin.reach import NoSuchGroupError, NoSuchTopicError
from trimtab.dashboard import answers, wishes
from trimtab.dashboard.actions import Actions
from trimtab.dashboard.group_watch import GroupSight
from trimtab.dashboard.poller import Poller
from trimtab.dashboard.simulate import Simulations, scenario_names
from trimtab.dashboard.timeline import scrub
from trimtab.dashboard.what_if import what_if
from trimtab.io.clock import Clock

if TYPE_CHECKING:
    from trimtab.client.admin import Admin


class Desk:
    """See the module's own words."""

    def __init__(self, admin: "Admin", clock: Clock, poller: Poller) -> None:
        self.poller = poller
        self.clock = clock
        self.actions = Actions(admin, clock)
        self._simulations = Simulations()

    async def overview(self) -> answers.Overview:
        """The cluster, as it was seen last."""
        return await self.poller.overview.now()

    async def sight(self, name: str) -> GroupSight:
        """A group, as it was seen last. One that does not exist is not looked at any more."""
        subject = self.poller.group(name)
        try:
            return await subject.now()
        except NoSuchGroupError:
            self.poller.forget("group", name)
            raise

    async def topic(self, name: str) -> answers.Topic:
        """A topic, as it was seen last. One that does not exist is not looked at any more."""
        try:
            return await self.poller.topic(name).now()
        except NoSuchTopicError:
            self.poller.forget("topic", name)
            raise

    async def producer_groups(self) -> answers.ProducerNames:
        """Groups of producers, as they were seen last."""
        return await self.poller.listing("producers", self.actions.producer_groups).now()

    async def dead_groups(self) -> answers.DeadGroups:
        """Groups with dead letters, as they were seen last."""
        return await self.poller.listing("dead letters", self.actions.dead_groups).now()

    async def group(self, name: str) -> answers.Group:
        """Who holds what."""
        return (await self.sight(name)).group

    async def timeline(self, name: str) -> answers.Timeline:
        """What was recorded."""
        return (await self.sight(name)).timeline

    async def scrub(self, name: str, at_ms: int) -> answers.Scrubbed:
        """Who held what then."""
        sight = await self.sight(name)
        queues = [f"{line.topic}@{line.broker}:{line.queue_id}" for line in sight.group.queues]
        return scrub(name, queues, sight.moments, at_ms)

    async def what_if(self, wish: wishes.WhatIfWish) -> answers.WhatIf:
        """How queues would be shared."""
        sight = await self.sight(wish.name)
        leave = [name.strip() for name in wish.leave.split(",") if name.strip()]
        # Thousands of queues take seconds with some strategies; pages go on meanwhile.
        return await asyncio.to_thread(
            what_if, sight.group, sight.lines, join=wish.join, leave=leave, strategy=wish.strategy
        )

    async def scenarios(self) -> answers.Scenarios:
        """What can be simulated."""
        return answers.Scenarios(scenarios=scenario_names())

    async def simulate(self, wish: wishes.SimulationWish) -> answers.Simulated:
        """Plays it."""
        return await self._simulations.run(wish)
