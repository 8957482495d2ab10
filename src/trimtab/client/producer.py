"""Sending: choose a queue, survive bad brokers, and give a receipt for every message.

A send goes: check, choose a queue by the policy, join the queue's lane, wait for the receipt. A failed attempt is told to the
policy and, if the failure is of a kind that may be tried again and time is left, the message goes to another broker. What
was sent and not answered may have been stored: such an error says `indeterminate`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from trimtab.balance.adaptive import Adaptive
from trimtab.balance.faults import classic_4_2, classic_4_9_3
from trimtab.balance.pick import BrokerStanding, Choice, Policy, RoundRobin
from trimtab.client.checks import check_body, check_group, check_topic, properties_of
from trimtab.client.identity import new_client_id, unique_ids
from trimtab.client.lanes import Lane, Outcome, Parcel, next_load, overdue
from trimtab.client.routes import Route
from trimtab.client.session import Session
from trimtab.errors import (
    ClosedError,
    NoRouteError,
    NotSentError,
    RequestTimeoutError,
    ResponseError,
    SettingsError,
    TrimtabError,
    error_from_response,
)
from trimtab.io.chance import Chance, seeded_chance
from trimtab.io.clock import Clock, SystemClock
from trimtab.model import Message, MessageQueue, Receipt
from trimtab.settings import Sending, Timeouts
from trimtab.wire.batch import BatchEntry, encode_batch
from trimtab.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trimtab.wire.compression import Compression, compress
from trimtab.wire.headers.send import SendMessageV2
from trimtab.wire.hot import encode_send_request
from trimtab.wire.resources import DEFAULT_TOPIC, RETRY_PREFIX

if TYPE_CHECKING:
    from trimtab.io.connection import PeerConnection
    from trimtab.wire.commands import Command

_log = logging.getLogger(__name__)

STATUS = {
    int(ResponseCode.SUCCESS): "SEND_OK",
    int(ResponseCode.FLUSH_DISK_TIMEOUT): "FLUSH_DISK_TIMEOUT",
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): "FLUSH_SLAVE_TIMEOUT",
    int(ResponseCode.SLAVE_NOT_AVAILABLE): "SLAVE_NOT_AVAILABLE",
}
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


class Producer:
    """Sends messages. Use it as `async with Producer("group", nameserver="host:port") as producer`."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | None = None,
        client_id: str | None = None,
        sending: Sending | None = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.sending = sending or Sending()
        self.timeouts = timeouts or Timeouts()
        self._clock = clock or SystemClock()
        self._chance = chance or seeded_chance()
        nameserver = nameserver or os.environ.get("NAMESRV_ADDR")
        if not nameserver:
            raise SettingsError("no name server is given: pass nameserver='host:port' or set NAMESRV_ADDR")
        self._session = Session(
            nameserver, client_id or new_client_id(self._chance), self._clock, timeouts=self.timeouts
        )
        self._policy = make_policy(self.sending.policy, self._chance)
        self._ids = unique_ids(self._clock, self._chance)
        self._lanes: dict[MessageQueue, Lane] = {}
        self._waiting = 0
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._is_open = False
        self._loop: asyncio.AbstractEventLoop

    def __repr__(self) -> str:
        return f"<Producer group={self.group!r} waiting={self._waiting} policy={self._policy.name}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """How brokers list this producer."""
        return self._session.client_id

    def brokers(self) -> list[BrokerStanding]:
        """How the policy sees the brokers now, best first."""
        return self._policy.brokers(self._clock.monotonic_ms())

    async def start(self) -> None:
        """Begins; `async with` does it."""
        self._loop = asyncio.get_running_loop()
        self._session.roles.producer_groups[self.group] = 1
        await self._session.start()
        self._is_open = True

    async def close(self) -> None:
        """Waits for what is on its way, as long as a send may take, and closes."""
        if not self._is_open:
            return
        self._is_open = False
        if not self._waiting:
            self._idle.set()
        try:
            async with asyncio.timeout(self.timeouts.send_s):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("%s closes with sends unanswered", self)
        await self._session.close()

    # --- sending ----------------------------------------------------------------------------------------------

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> Receipt:
        """Sends a message; to this queue, if one is given, and then only there."""
        self._check(message)
        while self._waiting >= self.sending.waiting_messages_max:
            self._room.clear()
            await self._room.wait()
        self._waiting += 1
        try:
            return await self._send(message, queue)
        finally:
            self._waiting -= 1
            if not self._room.is_set():
                self._room.set()
            if not self._waiting and not self._is_open:
                self._idle.set()

    async def send_many(self, messages: Iterable[Message]) -> list[Receipt]:
        """Sends all of them at once; the receipts are in their order. The first failure is raised when all are done."""
        outcomes = await asyncio.gather(*(self.send(message) for message in messages), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, Receipt)]

    async def send_oneway(self, message: Message) -> None:
        """Sends a message that nobody answers for: it may be lost without a word."""
        self._check(message)
        route = await self._route(message.topic)
        choice = self._policy.choose(route.writable, None, self._clock.monotonic_ms())
        connection = await self._session.connection(self._address(route, choice.queue))
        parcel, _ = self._parcel(message, 0.0, _nobody)
        header = self._header(choice.queue, parcel, parcel.properties)
        frame = encode_send_request(
            RequestCode.SEND_MESSAGE_V2,
            header,
            opaque=connection.next_opaque(),
            flag=ONEWAY_FLAG,
            body=parcel.body,
        )
        connection.send(frame)

    def _check(self, message: Message) -> None:
        if not self._is_open:
            raise ClosedError("the producer is not open: use `async with Producer(...)`")
        if self._session.route_now(message.topic) is None:
            check_topic(message.topic)
        check_body(message, self.sending.message_bytes_max)

    async def _send(self, message: Message, queue: MessageQueue | None) -> Receipt:
        loop = self._loop
        deadline = loop.time() + self.timeouts.send_s
        route = self._session.route_now(message.topic) or await self._route(message.topic)
        last_broker: str | None = None
        attempts = 0
        while True:
            attempts += 1
            choice = self._choice(route, queue, last_broker)
            answer: asyncio.Future[Outcome] = loop.create_future()
            parcel, unique_id = self._parcel(message, deadline, _into(answer))
            self._join(route, choice.queue, parcel)
            outcome = await answer
            error = outcome.error
            if error is None:
                return Receipt(
                    STATUS[outcome.status],
                    unique_id,
                    outcome.offset_message_id,
                    choice.queue,
                    outcome.queue_offset,
                    choice.why,
                    attempts,
                )
            tries_max = 1 if queue is not None else 1 + self.sending.retries
            if attempts >= tries_max or loop.time() >= deadline or not _may_be_tried_again(error):
                raise error
            last_broker = choice.queue.broker_name
            route = await self._route_after(error, route)

    def _choice(self, route: Route, queue: MessageQueue | None, last_broker: str | None) -> Choice:
        if queue is not None:
            return Choice(queue, "as asked")
        return self._policy.choose(route.writable, last_broker, self._clock.monotonic_ms())

    def _parcel(
        self, message: Message, deadline: float, done: Callable[[Outcome], None]
    ) -> tuple[Parcel, str]:
        born_ms = self._clock.wall_ms()
        unique_id = self._ids.next(born_ms)
        properties = properties_of(message, unique_id)
        body, sys_flag = message.body, 0
        if len(body) >= self.sending.compress_from_bytes and self.sending.compression != "none":
            kind = Compression[self.sending.compression.upper()]
            body, sys_flag = compress(body, kind), kind.sys_flag
        is_batchable = (
            self.sending.batching
            and not sys_flag
            and not message.delay_level
            and message.deliver_at_ms is None
            and not message.topic.startswith(RETRY_PREFIX)
        )
        parcel = Parcel(body, properties, message.flag, sys_flag, born_ms, is_batchable, deadline, done)
        return parcel, unique_id

    # --- lanes ------------------------------------------------------------------------------------------------

    def _join(self, route: Route, queue: MessageQueue, parcel: Parcel) -> None:
        if not self.sending.batching:
            self._leave(Lane(queue, self._address(route, queue)), [parcel])
            return
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue, self._address(route, queue))
        lane.waiting.append(parcel)
        if not lane.is_busy:
            lane.is_busy = True
            # One turn of the loop later, so that sends made together leave together.
            self._loop.call_soon(self._next_load, lane)

    def _next_load(self, lane: Lane) -> None:
        for parcel in overdue(lane.waiting, self._loop.time()):
            text = f"send to {lane.queue}: {lane.address} did not answer the messages before this one in time"
            parcel.done(Outcome(-1, "", -1, NotSentError(text)))
        if not lane.waiting:
            lane.is_busy = False
            return
        load = next_load(lane.waiting, self.sending.batch_messages_max, self.sending.batch_bytes_max)
        self._leave(lane, load)

    def _leave(self, lane: Lane, load: list[Parcel]) -> None:
        connection = self._session.connection_now(lane.address)
        if connection is None:
            task = asyncio.ensure_future(self._session.connection(lane.address))
            task.add_done_callback(lambda opened: self._opened(lane, load, opened))
            return
        opaque = connection.next_opaque()
        began_ms = self._clock.monotonic_ms()
        try:
            answer = connection.ask_soon(opaque, self._frame(lane.queue, load, opaque))
        except TrimtabError as error:
            self._failed(lane, load, began_ms, error)
            return
        self._policy.began(lane.queue.broker_name, began_ms)
        timer = self._loop.call_at(load[0].deadline, answer.cancel)

        def answered(future: "asyncio.Future[Command]") -> None:
            timer.cancel()
            self._answered(lane, load, began_ms, future)

        answer.add_done_callback(answered)

    def _opened(self, lane: Lane, load: list[Parcel], opened: "asyncio.Future[PeerConnection]") -> None:
        error = None if opened.cancelled() else opened.exception()
        if opened.cancelled():
            self._fail_all(lane, load, ClosedError("the producer was closed"))
        elif isinstance(error, Exception):
            began_ms = self._clock.monotonic_ms()
            self._policy.began(lane.queue.broker_name, began_ms)
            self._failed(lane, load, began_ms, error)
        else:
            self._leave(lane, load)

    def _answered(
        self, lane: Lane, load: list[Parcel], began_ms: int, future: "asyncio.Future[Command]"
    ) -> None:
        if future.cancelled():
            error: Exception = RequestTimeoutError(
                f"send to {lane.queue} at {lane.address}: no answer within {self.timeouts.send_s:g} s; it may have been stored"
            )
            self._failed(lane, load, began_ms, error)
            return
        exception = future.exception()
        if isinstance(exception, Exception):
            self._failed(lane, load, began_ms, exception)
            return
        answer = future.result()
        now_ms = self._clock.monotonic_ms()
        refused = answer.code not in STATUS
        self._policy.ended(lane.queue.broker_name, now_ms - began_ms, now_ms, failed=refused)
        if refused:
            self._fail_all(
                lane,
                load,
                error_from_response(
                    answer.code, asked=f"send to {lane.queue}", peer=lane.address, remark=answer.remark or ""
                ),
            )
            return
        ids = answer.ext.get("msgId", "").split(",")
        first = int(answer.ext.get("queueOffset", "-1"))
        for number, parcel in enumerate(load):
            message_id = ids[number] if number < len(ids) else ""
            parcel.done(Outcome(answer.code, message_id, first + number))
        self._next_load(lane)

    def _failed(self, lane: Lane, load: list[Parcel], began_ms: int, error: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        self._policy.ended(lane.queue.broker_name, now_ms - began_ms, now_ms, failed=True)
        self._fail_all(lane, load, error)

    def _fail_all(self, lane: Lane, load: list[Parcel], error: Exception) -> None:
        for parcel in load:
            parcel.done(Outcome(-1, "", -1, error))
        self._next_load(lane)

    def _frame(self, queue: MessageQueue, load: list[Parcel], opaque: int) -> bytes:
        first = load[0]
        if len(load) == 1:
            header = self._header(queue, first, first.properties)
            return encode_send_request(RequestCode.SEND_MESSAGE_V2, header, opaque=opaque, body=first.body)
        entries = [BatchEntry(parcel.body, parcel.properties.encode(), parcel.flag) for parcel in load]
        header = self._header(queue, first, "WAIT\x01true", batch=True)
        return encode_send_request(
            RequestCode.SEND_BATCH_MESSAGE, header, opaque=opaque, body=encode_batch(entries)
        )

    def _header(
        self, queue: MessageQueue, parcel: Parcel, properties: str, *, batch: bool = False
    ) -> SendMessageV2:
        return SendMessageV2(
            producer_group=self.group,
            topic=queue.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=self.sending.default_topic_queues,
            queue_id=queue.queue_id,
            sys_flag=parcel.sys_flag,
            born_timestamp=parcel.born_ms,
            flag=parcel.flag,
            properties=properties,
            reconsume_times=0,
            batch=batch,
        )

    # --- routes -----------------------------------------------------------------------------------------------

    async def _route(self, topic: str) -> Route:
        route = await self._session.route(topic, may_create_queues=self.sending.default_topic_queues)
        if not route.writable.queues:
            raise NoRouteError(
                f"topic {topic!r} has no queue that can be written to: check its permission and its brokers"
            )
        return route

    async def _route_after(self, error: Exception, route: Route) -> Route:
        """The route for another try; asked for anew when the failure may come from an old one."""
        if isinstance(error, ResponseError) and error.response_code != ResponseCode.TOPIC_NOT_EXIST:
            return route
        try:
            return await self._session.refresh_route(
                route.topic, may_create_queues=self.sending.default_topic_queues
            )
        except TrimtabError:
            return route  # a known route goes on without name servers

    def _address(self, route: Route, queue: MessageQueue) -> str:
        address = route.master_of(queue.broker_name)
        if address is None:
            raise NoRouteError(f"{queue}: the route of the topic names no master of {queue.broker_name}")
        return address


def _may_be_tried_again(error: Exception) -> bool:
    if isinstance(error, ResponseError):
        return error.response_code in RETRIED_CODES
    return isinstance(error, TrimtabError) and error.retriable


def _into(answer: "asyncio.Future[Outcome]") -> Callable[[Outcome], None]:
    """Tells whoever waits; nobody does if the send was cancelled meanwhile."""

    def done(outcome: Outcome) -> None:
        if not answer.done():
            answer.set_result(outcome)

    return done


def _nobody(_outcome: Outcome) -> None:
    return None
