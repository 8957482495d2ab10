"""One delivery: room for it, a route, a queue, tries within the time, and the outcome.

Everything that a producer sends goes through `Delivery.of`. How much may wait is bounded in messages and in bytes; one more waits for
room. A try that failed goes to another broker if the failure is of that kind and time is left.
"""

import asyncio

from trimtab.balance.adaptive import Adaptive
from trimtab.balance.faults import classic_4_2, classic_4_9_3
from trimtab.balance.pick import Policy, RoundRobin
from trimtab.client.checks import check_topic
from trimtab.client.lanes import Outcome, Parcel
from trimtab.client.producer_lanes import Lanes
from trimtab.client.producer_places import Place
from trimtab.client.routes import Route
from trimtab.client.session import Session
from trimtab.errors import (
    ACL_REFUSAL,
    ClosedError,
    NoRouteError,
    NotSentError,
    ResponseError,
    SettingsError,
    TrimtabError,
)
from trimtab.io.chance import Chance
from trimtab.settings import Sending, Timeouts
from trimtab.wire.codes import ResponseCode

RETRIED_CODES = frozenset({
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY,
    ResponseCode.NO_PERMISSION, ResponseCode.NO_BUYER_ID, ResponseCode.NOT_IN_CURRENT_UNIT, ResponseCode.GO_AWAY,
    ResponseCode.FLOW_CONTROL,
})  # fmt: skip
"""Answers after which another broker is tried, as Java's producer does."""


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
        self._namespace = namespace
        self._now_ms = session.clock.monotonic_ms
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._is_somebody_waiting_for_room = False
        self._idle = asyncio.Event()
        self._is_closing = False
        self.waiting = 0
        """How many messages and batches wait for their receipts."""
        self.waiting_bytes = 0

    async def close(self) -> None:
        """Takes no more, and waits for what is on its way; whoever calls bounds the waiting."""
        self._is_closing = True
        self._room.set()
        if self.waiting:
            await self._idle.wait()

    async def of(self, parcel: Parcel, place: Place | None) -> Outcome:
        """The outcome of a parcel, after as many tries as it takes and may have. Everything that is sent goes through here."""
        loop = self._loop
        deadline = loop.time() + self._timeouts.send_s
        size = len(parcel.entry.body)
        sending = self._sending
        if self.waiting and self._has_no_room(size):
            await self._wait_for_room(size, deadline)
        self.waiting += 1
        self.waiting_bytes += size
        try:
            route = self._session.route_now(parcel.topic)
            if route is None or not route.writable.queues:
                route = await self._route_by(parcel.topic, deadline)
            tries_max = 1 if place is not None else 1 + sending.retries
            attempt_s = self._timeouts.attempt_s
            last_broker: str | None = None
            while True:
                choice = (
                    self._policy.choose(route.writable, last_broker, self._now_ms())
                    if place is None
                    else place.choice(route.writable.queues, self._namespace, sending.selector)
                )
                parcel.attempts += 1
                parcel.why = choice.why
                parcel.deadline = deadline if attempt_s is None else min(deadline, loop.time() + attempt_s)
                parcel.may_go_elsewhere = parcel.attempts < tries_max and len(route.addresses) > 1
                answer: asyncio.Future[Outcome] = loop.create_future()
                parcel.answer = answer
                self._lanes.join(route, choice.queue, parcel, is_alone=self.waiting == 1)
                try:
                    outcome = await answer
                except asyncio.CancelledError:
                    self._lanes.withdraw(choice.queue, parcel)
                    raise
                if not isinstance(outcome, Exception):
                    return outcome
                if (
                    parcel.attempts >= tries_max
                    or loop.time() >= deadline
                    or not _may_be_tried_again(outcome)
                ):
                    raise outcome
                last_broker = choice.queue.broker_name
                route = await self._route_after(outcome, route, deadline)
        finally:
            self.waiting -= 1
            self.waiting_bytes -= size
            if self._is_somebody_waiting_for_room:
                self._room.set()
            if not self.waiting and self._is_closing:
                self._idle.set()

    def _has_no_room(self, size: int) -> bool:
        sending = self._sending
        return self.waiting >= sending.waiting_messages_max or (
            self.waiting > 0 and self.waiting_bytes + size > sending.waiting_bytes_max
        )

    async def _wait_for_room(self, size: int, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                while not self._is_closing and self._has_no_room(size):
                    self._room.clear()
                    self._is_somebody_waiting_for_room = True
                    await self._room.wait()
        except TimeoutError:
            raise NotSentError(
                f"{self.waiting} messages of {self.waiting_bytes} bytes wait already and none was answered in time; send less at once"
            ) from None
        if self._is_closing:
            raise ClosedError("the producer was closed before the message left")

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
        if isinstance(error, ResponseError) and error.response_code != ResponseCode.TOPIC_NOT_EXIST:
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


def _may_be_tried_again(error: Exception) -> bool:
    if isinstance(error, ResponseError):
        return error.response_code in RETRIED_CODES and ACL_REFUSAL not in error.remark
    return isinstance(error, TrimtabError) and error.retriable
