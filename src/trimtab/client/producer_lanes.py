"""The lanes of a producer at work: parcels join, loads leave, answers come, and each parcel hears what became of it.

What joins within one turn of the loop leaves at its end, together; a send that is the only one leaves at once. The policy hears of every
load from when it is to leave, the dialling of its broker included, and of how it ended.

Every parcel has its own deadline. A trip, which is a load on its way, wakes up for the earliest of those on board and of those that wait
behind it. Who is late is told so; the load goes on for the others, and the lane with it when nobody is left on board.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Literal

from trimtab.balance.pick import Policy
from trimtab.client.lanes import Lane, Parcel, extend, load_bytes, next_load, overdue, receipts_of
from trimtab.client.producer_places import shown
from trimtab.client.producer_refusals import may_be_tried_again, may_go_in_smaller_loads
from trimtab.client.producer_trips import Trip, waited_in_vain
from trimtab.client.producer_watch import Watch
from trimtab.client.routes import Route
from trimtab.client.session import Session
from trimtab.errors import (
    ClosedError,
    InvalidMessageError,
    MessageIllegalError,
    NoRouteError,
    NotSentError,
    ProtocolError,
    ServerUnreachableError,
    TrimtabError,
    error_from_response,
)
from trimtab.io.connection import PeerConnection
from trimtab.model import MessageQueue, Receipt
from trimtab.settings import Sending
from trimtab.wire.batch import batch_pieces, columns_of
from trimtab.wire.codes import LanguageCode, RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command
from trimtab.wire.headers.send import SendMessageV2
from trimtab.wire.resources import DEFAULT_TOPIC
from trimtab.wire.send_frames import SendFrames

_log = logging.getLogger(__name__)

STATUS = {
    int(ResponseCode.SUCCESS): "SEND_OK",
    int(ResponseCode.FLUSH_DISK_TIMEOUT): "FLUSH_DISK_TIMEOUT",
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): "FLUSH_SLAVE_TIMEOUT",
    int(ResponseCode.SLAVE_NOT_AVAILABLE): "SLAVE_NOT_AVAILABLE",
}

_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)

_Flush = Literal["now", "soon", "later"]
"""When a frame is written: by this call, at the end of this turn of the loop, or by the caller, who has more to write."""

LANES_MAX = 10_000
"""Lanes that are remembered; beyond that, those that are idle are made anew when they are needed."""

OnStored = Callable[[Parcel, list[Receipt] | Receipt, Lane, int, Command], None]
"""Hears of everything stored: the parcel, what it got, where, in how many ms, and the broker's answer."""


class Lanes:
    """See the module's own words."""

    def __init__(
        self,
        session: Session,
        policy: Policy,
        sending: Sending,
        *,
        group: str,
        namespace: str | None,
        on_stored: OnStored | None,
    ) -> None:
        self._session = session
        self._policy = policy
        self._sending = sending
        self._group = group
        self._namespace = namespace
        self._on_stored = on_stored
        self._batching = sending.batching
        self.loop = self._loop = asyncio.get_running_loop()
        self.watch = Watch(self.loop)
        self._now_ms = session.clock.monotonic_ms
        self._lanes: dict[MessageQueue, Lane] = {}
        self._ready: list[Lane] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._old: set[str] = set()
        """Brokers that were said to know no times of delivery."""

    def join(self, route: Route, queue: MessageQueue, parcel: Parcel, *, is_alone: bool) -> None:
        """Puts a parcel into the lane of its queue; its `answer` says what became of it."""
        lane = self._lanes.get(queue)
        if lane is None or lane.route is not route:
            try:
                lane = self._lane(route, queue)
            except NoRouteError as error:
                self._went_nowhere(queue, parcel, error)
                return
        if not self._batching:
            self._leave(lane, [parcel], flush="now" if is_alone else "soon")
        elif lane.is_busy:
            lane.put(parcel)
            waker = lane.waker
            if waker is not None and parcel.deadline < waker.wakes_at:
                waker.wake_at(parcel.deadline)
        elif is_alone:
            lane.is_busy = True
            self._leave(lane, [parcel], flush="now")
        else:
            # At the end of this turn of the loop, so that sends made together leave together.
            lane.is_busy = True
            lane.put(parcel)
            if not self._ready:
                self._loop.call_soon(self._depart)
            self._ready.append(lane)

    def withdraw(self, queue: MessageQueue, parcel: Parcel) -> None:
        """Nobody waits for this parcel any more: if it has not left, it never leaves."""
        lane = self._lanes.get(queue)
        if lane is not None:
            lane.withdraw(parcel)

    def lane(self, route: Route, queue: MessageQueue) -> Lane:
        """The lane of a queue."""
        known = self._lanes.get(queue)
        return known if known is not None and known.route is route else self._lane(route, queue)

    async def close(self) -> None:
        """Ends what still waits for a connection."""
        tasks = list(self._opening)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _lane(self, route: Route, queue: MessageQueue) -> Lane:
        address = route.master_of(queue.broker_name)
        if address is None:
            raise NoRouteError(f"{queue}: the route of the topic names no master of {queue.broker_name}")
        lane = self._lanes.get(queue)
        if lane is not None:
            lane.route, lane.address = route, address
            return lane
        frames = SendFrames(
            group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            default_topic=DEFAULT_TOPIC,
            default_topic_queues=self._sending.default_topic_queues,
        )
        if len(self._lanes) >= LANES_MAX:
            self._forget_idle_lanes()
        lane = self._lanes[queue] = Lane(
            queue, shown(self._namespace, queue), route, address, frames, self._sending.batch_bytes_max
        )
        return lane

    def _went_nowhere(self, queue: MessageQueue, parcel: Parcel, error: NoRouteError) -> None:
        """The order of a topic names its brokers, also one that is away: another may do."""
        now_ms = self._now_ms()
        self._policy.began(queue.broker_name, now_ms)
        self._policy.ended(queue.broker_name, 0, now_ms, failed=True)
        parcel.done(error)

    def _forget_idle_lanes(self) -> None:
        self._lanes = {queue: lane for queue, lane in self._lanes.items() if lane.is_busy}

    # --- leaving ----------------------------------------------------------------------------------------------

    def _depart(self) -> None:
        ready, self._ready = self._ready, []
        connections = {self._next_load(lane, flush="later") for lane in ready}
        for connection in connections:
            if connection is not None:
                connection.flush()

    def _next_load(self, lane: Lane, *, flush: _Flush) -> PeerConnection | None:
        for parcel in overdue(lane, self._loop.time()):
            parcel.done(waited_in_vain(lane))
        load = next_load(lane.waiting, self._sending.batch_messages_max, lane.load_bytes_max)
        if not load:
            lane.is_busy = False
            return None
        return self._leave(lane, load, flush=flush)

    def _leave(self, lane: Lane, load: list[Parcel], *, flush: _Flush) -> PeerConnection | None:
        connection = self._session.connection_now(lane.address)
        if connection is None:
            self._wait_for_connection(lane, load)
            return None
        opaque = connection.next_opaque()
        began_ms = self._now_ms()
        trip = Trip(self, lane, load, began_ms)
        # What goes wrong is not told within this call: whoever joins must find the lane as it was left.
        try:
            frame = self._frame(lane, load, opaque)
        except Exception as error:  # noqa: BLE001 - a mistake in one load must not hold up its lane
            self._loop.call_soon(self._stayed, lane, load, _unframed(lane, error))
            return None
        try:
            connection.request(opaque, frame, trip, soon=flush == "soon")
        except NotSentError as error:  # too many others are on their way: that says nothing of the broker
            self._loop.call_soon(self._stayed, lane, load, error)
            return None
        except TrimtabError as error:
            self._policy.began(lane.queue.broker_name, began_ms)
            self._loop.call_soon(self.failed, lane, load, began_ms, error)
            return None
        self._policy.began(lane.queue.broker_name, began_ms)
        trip.left_by(connection, opaque)
        if flush == "now":
            connection.flush()
        return connection

    def _wait_for_connection(self, lane: Lane, load: list[Parcel]) -> None:
        """A broker that is being dialled again is not waited for by those that can go to another one."""
        waits_s = self._session.waits_s(lane.address)
        staying = load if waits_s <= 0 else [parcel for parcel in load if not parcel.may_go_elsewhere]
        leaving = [] if staying is load else [parcel for parcel in load if parcel.may_go_elsewhere]
        now_ms = self._now_ms()
        if leaving:
            self._policy.began(lane.queue.broker_name, now_ms)
            self._policy.ended(lane.queue.broker_name, 0, now_ms, failed=True)
            error = ServerUnreachableError(
                f"{lane.address} could not be reached; next try in {waits_s:.1f} s"
            )
            for parcel in leaving:
                parcel.done(error)
        if staying:
            trip = Trip(self, lane, staying, now_ms)
            self._policy.began(lane.queue.broker_name, now_ms)
            trip.waits_for(self._spawn(self._open_and_leave(trip)))
        else:
            self._loop.call_soon(self._go_on, lane)

    async def _open_and_leave(self, trip: Trip) -> None:
        lane = trip.lane
        try:
            await self._renew_while_paused(lane)
            await self._session.connection(lane.address)
        except TrimtabError as error:
            trip.end()
            self.failed(lane, trip.load, trip.began_ms, error)
            return
        except asyncio.CancelledError:
            if not trip.is_over:  # else it was the trip that gave up
                trip.end()
                self._fail_all(trip.load, ClosedError("the producer was closed before the message left"))
            raise
        trip.end()
        self._policy.dropped(lane.queue.broker_name, trip.began_ms)
        load = [parcel for parcel in trip.load if parcel.is_waited_for]
        if load:
            self._leave(lane, load, flush="soon")
        else:
            self._go_on(lane)

    async def _renew_while_paused(self, lane: Lane) -> None:
        """Before a broker is dialled again there is a pause, in which its address is asked for: it may have moved."""
        pause_s = self._session.waits_s(lane.address)
        if pause_s <= 0:
            return
        try:
            async with asyncio.timeout(pause_s):
                route = await self._session.refresh_route(
                    lane.queue.topic, may_create_queues=self._sending.default_topic_queues
                )
        except (TrimtabError, TimeoutError):
            return  # the known address is all there is
        address = route.master_of(lane.queue.broker_name)
        if address is not None:
            lane.route, lane.address = route, address

    def _frame(self, lane: Lane, load: list[Parcel], opaque: int, flag: int = 0) -> bytes:
        first = load[0]
        if len(load) == 1:
            body = first.pieces or (first.body,)
            code, properties = first.code, first.properties.decode()
            body_bytes, is_batch = first.body_bytes, bool(first.batch_ids)
        else:
            body, body_bytes = batch_pieces(columns_of(load))
            code, properties, is_batch = _BATCH, "WAIT\x01true", True
        if self._session.credentials is not None:
            header = self._header(lane.queue, first, properties, is_batch=is_batch)
            return self._session.frame(code, header, opaque=opaque, body=b"".join(body), flag=flag)
        return lane.frames.encode(
            code,
            opaque=opaque,
            flag=flag,
            sys_flag=first.sys_flag,
            born_ms=first.born_ms,
            message_flag=first.flag,
            properties=properties,
            is_batch=is_batch,
            body=body,
            body_bytes=body_bytes,
        )

    def oneway_frame(self, lane: Lane, parcel: Parcel, opaque: int, flag: int) -> bytes:
        """The frame of a message that nobody answers for."""
        return self._frame(lane, [parcel], opaque, flag)

    def _header(
        self, queue: MessageQueue, parcel: Parcel, properties: str, *, is_batch: bool
    ) -> SendMessageV2:
        return SendMessageV2(
            producer_group=self._group,
            topic=queue.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=self._sending.default_topic_queues,
            queue_id=queue.queue_id,
            sys_flag=parcel.sys_flag,
            born_timestamp=parcel.born_ms,
            flag=parcel.flag,
            properties=properties,
            reconsume_times=0,
            batch=is_batch,
        )

    # --- answers ----------------------------------------------------------------------------------------------

    def answered(self, lane: Lane, load: list[Parcel], began_ms: int, answer: Command) -> None:
        """An answer came: a place for each parcel, or a refusal."""
        now_ms = self._now_ms()
        status = STATUS.get(answer.code)
        if status is None:
            self._refused(lane, load, now_ms - began_ms, now_ms, answer)
            return
        self._policy.ended(lane.queue.broker_name, now_ms - began_ms, now_ms, failed=False)
        try:
            first_offset = int(answer.ext["queueOffset"])
            ids = answer.ext["msgId"].split(",")
            shown = _stored_in(lane, answer)
        except (KeyError, ValueError):
            text = f"send to {lane.queue}: {lane.address} said that it is stored, but not where"
            self._fail_all(load, UnreadableReceiptError(text))
            self._go_on(lane)
            return
        if load[0].message.deliver_at_ms is not None:
            self._look_at_age(lane, answer)
        if lane.waiting:
            now = self._loop.time()
            if lane.earliest_deadline() <= now:
                extend(lane, (), now)
        on_stored = self._on_stored
        receipts = receipts_of(load, shown, status, ids, first_offset)
        for parcel, receipt in zip(load, receipts, strict=True):
            parcel.done(receipt)
        if on_stored is not None:
            try:
                for parcel, receipt in zip(load, receipts, strict=True):
                    on_stored(parcel, receipt, lane, now_ms - began_ms, answer)
            except Exception:  # noqa: BLE001 - whoever hears of it must not hold up the lane
                _log.exception("what is stored at %s could not be told of", lane.queue)
        self._go_on(lane)

    def _look_at_age(self, lane: Lane, answer: Command) -> None:
        """Apache's brokers of 4.x store a time of delivery like any other property, and deliver at once."""
        is_old = answer.language is LanguageCode.JAVA and 0 < answer.version < Version.V5_0_0
        if is_old and lane.address not in self._old:
            self._old.add(lane.address)
            _log.warning(
                "%s at %s is of version 4: it knows delay levels and no times, so messages with deliver_at_ms are delivered at once",
                lane.queue.broker_name,
                lane.address,
            )

    def _refused(self, lane: Lane, load: list[Parcel], latency_ms: int, now_ms: int, answer: Command) -> None:
        error = error_from_response(
            answer.code, asked=f"send to {lane.queue}", peer=lane.address, remark=answer.remark or ""
        )
        if len(load) > 1 and may_go_in_smaller_loads(error):
            # Whatever is wrong, it is the load that was made of them: its broker is well, and most of them may be.
            self._policy.ended(lane.queue.broker_name, latency_ms, now_ms, failed=False)
            lane.put_back(load, load_bytes(load) // 2)
            self._go_on(lane)
            return
        if lane.load_bytes_max < self._sending.batch_bytes_max and isinstance(error, MessageIllegalError):
            lane.load_bytes_max = self._sending.batch_bytes_max  # it was this message, not the length
        if may_be_tried_again(error):
            self._policy.ended(lane.queue.broker_name, latency_ms, now_ms, failed=True)
        else:
            self._policy.declined(lane.queue.broker_name, latency_ms, now_ms)
        self._fail_all(load, error)
        self._go_on(lane)

    def failed(self, lane: Lane, load: list[Parcel], began_ms: int, error: Exception) -> None:
        """No answer will come."""
        now_ms = self._now_ms()
        self._policy.ended(lane.queue.broker_name, now_ms - began_ms, now_ms, failed=True)
        self._fail_all(load, error)
        self._go_on(lane)

    def _stayed(self, lane: Lane, load: list[Parcel], error: Exception) -> None:
        """It never left, and the policy has not heard of it."""
        self._fail_all(load, error)
        self._go_on(lane)

    def _fail_all(self, load: list[Parcel], error: Exception) -> None:
        for parcel in load:
            parcel.done(error)

    def _go_on(self, lane: Lane) -> None:
        if lane.waiting:
            self._next_load(lane, flush="soon")
        else:
            lane.is_busy = False

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return task


def _stored_in(lane: Lane, answer: Command) -> MessageQueue:
    """Where a load is: a broker that was asked for queue -1 has chosen one itself."""
    shown = lane.shown
    if shown.queue_id >= 0:
        return shown
    return MessageQueue(shown.topic, shown.broker_name, int(answer.ext["queueId"]))


def _unframed(lane: Lane, error: Exception) -> TrimtabError:
    if isinstance(error, TrimtabError):
        return error
    return InvalidMessageError(
        f"send to {lane.queue}: a message cannot be laid out ({error!r}); nothing was sent"
    )


class UnreadableReceiptError(ProtocolError):
    """A broker said that a message is stored, but the answer does not say where. It is stored, or the broker lies."""

    indeterminate = True
