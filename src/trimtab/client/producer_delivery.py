"""One delivery: room for it, a route, a queue, tries within the time, and the outcome.

Everything that a producer sends goes through `Delivery.of`. How much may wait is bounded in messages and in bytes; one more waits for
room, in its turn. A try that failed goes to another broker if the failure is of that kind and time is left; a try whose broker is silent
has half of the time that is left, so that there is time for another. After a failure that an old route may be the cause of, the route is asked for anew.
However the last try ends: what an earlier one left open is said too.
"""

import asyncio

import msgspec

from trimtab.balance.adaptive import Adaptive
from trimtab.balance.faults import classic_4_2, classic_4_9_3
from trimtab.balance.pick import Policy, RoundRobin
from trimtab.client.checks import check_topic
from trimtab.client.lanes import Outcome, Parcel
from trimtab.client.producer_lanes import Lanes
from trimtab.client.producer_places import Place
from trimtab.client.producer_refusals import may_be_tried_again, may_come_from_an_old_route
from trimtab.client.producer_room import Room
from trimtab.client.routes import Route
from trimtab.client.session import Session
from trimtab.errors import MaybeStoredError, NoRouteError, SettingsError, TrimtabError
from trimtab.io.chance import Chance
from trimtab.io.connection import UNANSWERED_MAX
from trimtab.settings import Sending, Timeouts

UNBATCHED_MAX = UNANSWERED_MAX - 5_535
"""What a connection takes, less enough for the requests of others that share it."""


def make_policy(name: str, chance: Chance) -> Policy:
    """A policy by its name, its counters started by chance."""
    start = chance.randrange(2**31)
    if name == "adaptive":
        return Adaptive(start)
    if name == "round-robin":
        return RoundRobin(start)
    if name == "classic-4.2":
        return classic_4_2(start, chance.randrange(2**31))
    if name == "4.9.3":
        return classic_4_9_3(start, chance.randrange(2**31))
    raise SettingsError(f"policy {name!r} is none of adaptive, round-robin, classic-4.2, 4.9.3")


class Delivery:
    """See the module's own words."""

    def __init__(
        self,
        session: Session,
        lanes: Lanes,
        policy: Policy,
        sending: Sending,
        timeouts: Timeouts,
        namespace: str | None,
    ) -> None:
        self._session = session
        self._lanes = lanes
        self._policy = policy
        self._sending = sending
        self._timeouts = timeouts
        self._send_s = timeouts.send_s
        self._attempt_s = timeouts.attempt_s
        self._namespace = namespace
        self._tries_max = 1 + sending.retries
        self._route_now = session.route_now
        self._now_ms = session.clock.monotonic_ms
        self._loop = asyncio.get_running_loop()
        self._choose = policy.choose
        self._join = lanes.join
        # Without batching each message is a request, and one more than a connection takes waits here as well as anywhere.
        requests_max = sending.waiting_messages_max if sending.batching else UNBATCHED_MAX
        self._room = Room(min(sending.waiting_messages_max, requests_max), sending.waiting_bytes_max)

    @property
    def waiting(self) -> int:
        """How many messages and batches wait for their receipts."""
        return self._room.messages

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of bodies they have."""
        return self._room.bytes

    async def close(self) -> None:
        """Takes no more, and waits for what is on its way; whoever calls bounds the waiting."""
        await self._room.close()

    async def of(self, parcel: Parcel, place: Place | None, *, is_patient: bool = False) -> Outcome:
        """The outcome of a parcel, after as many tries as it takes and may have. Everything that is sent goes through here.

        The time of one that is patient begins when there is room for it.
        """
        loop = self._loop
        deadline = loop.time() + self._send_s
        size = parcel.body_bytes
        room = self._room
        if not room.take_now(size):
            await room.take(size, None if is_patient else deadline)
            deadline = loop.time() + self._send_s if is_patient else deadline
        left_open: TrimtabError | None = None
        try:
            route = self._route_now(parcel.topic)
            if route is None or not route.writable.queues:
                route = await self._route_by(parcel.topic, deadline)
            tries_max = self._tries_max if place is None else 1
            last_broker: str | None = None
            while True:
                choice = (
                    self._choose(route.writable, last_broker, self._now_ms())
                    if place is None
                    else place.choice(route.writable.queues, self._namespace, self._sending.selector)
                )
                parcel.attempts += 1
                parcel.why = choice.why
                is_last = parcel.attempts >= tries_max
                if route.has_several_brokers or self._attempt_s is not None:
                    self._give_time(
                        parcel, deadline, may_go_elsewhere=not is_last and route.has_several_brokers
                    )
                else:
                    parcel.may_go_elsewhere = False
                    parcel.deadline = parcel.deadline_last = deadline
                answer: asyncio.Future[Outcome] = loop.create_future()
                parcel.answer = answer
                self._join(route, choice.queue, parcel, is_alone=room.messages == 1)
                try:
                    outcome = await answer
                except asyncio.CancelledError:
                    self._lanes.withdraw(choice.queue, parcel)
                    raise
                if not isinstance(outcome, Exception):
                    return outcome
                if is_last or loop.time() >= deadline or not may_be_tried_again(outcome):
                    self._learn_from(outcome, route)
                    raise outcome
                if isinstance(outcome, TrimtabError) and outcome.indeterminate:
                    left_open = outcome
                last_broker = choice.queue.broker_name
                route = await self._route_after(outcome, route, deadline)
                # A trip that was given up may still hold the old one.
                parcel = msgspec.structs.replace(parcel, answer=None)
        except TrimtabError as last:
            _say_what_is_left_open(left_open, last)
            raise
        finally:
            room.give_back(size)

    def _give_time(self, parcel: Parcel, deadline: float, *, may_go_elsewhere: bool) -> None:
        """By when a try is given up if its broker is silent, and in any case."""
        parcel.may_go_elsewhere = may_go_elsewhere
        attempt_s = self._attempt_s
        if attempt_s is not None:
            deadline = min(deadline, self._loop.time() + attempt_s)
        parcel.deadline = parcel.deadline_last = deadline
        if attempt_s is None and may_go_elsewhere:
            parcel.deadline = (self._loop.time() + deadline) / 2

    # --- routes -----------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> Route:
        """The route of a topic that can be written to."""
        if self._session.route_now(topic) is None:
            check_topic(topic)  # what has a route has a good name
        route = await self._session.route(topic, may_create_queues=self._sending.default_topic_queues)
        if not route.writable.queues:
            route = await self._session.refresh_route(
                topic, may_create_queues=self._sending.default_topic_queues
            )
        if not route.writable.queues:
            raise NoRouteError(
                f"topic {topic!r} has no queue that can be written to: check its permission and its brokers"
            )
        return route

    async def _route_by(self, topic: str, deadline: float) -> Route:
        try:
            async with asyncio.timeout_at(deadline):
                return await self.route(topic)
        except TimeoutError:
            raise NoRouteError(f"topic {topic!r}: no name server gave its route in time") from None

    async def _route_after(self, error: Exception, route: Route, deadline: float) -> Route:
        """The route for another try; asked for anew when the failure may come from an old one."""
        if not may_come_from_an_old_route(error):
            return route
        try:
            # With little time for it: the known route may do, and another broker of it is waiting.
            async with asyncio.timeout_at(min(deadline, self._loop.time() + self._timeouts.request_s / 3)):
                fresh = await self._session.refresh_route(
                    route.topic, may_create_queues=self._sending.default_topic_queues
                )
        except (TrimtabError, TimeoutError):
            return route  # a known route goes on without name servers
        return fresh if fresh.writable.queues else route

    def _learn_from(self, error: Exception, route: Route) -> None:
        """There is no other try, but the next send should not run into the same old route."""
        if may_come_from_an_old_route(error):
            self._session.refresh_route_soon(
                route.topic, may_create_queues=self._sending.default_topic_queues
            )


def _say_what_is_left_open(earlier: TrimtabError | None, last: TrimtabError) -> None:
    if earlier is not None and not last.indeterminate:
        raise MaybeStoredError(earlier, last) from last
