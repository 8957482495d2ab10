"""Sending encoded rows: batches to queues, one on its way for each queue, so that the order of a key is kept.

A batch that a broker did not take goes to another one, unless its queue was chosen by the row. Every row has its receipt when
`finish` comes back, or the reason is raised.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

from trimtab.client.identity import unique_ids
from trimtab.client.routes import Route
from trimtab.client.session import Session
from trimtab.errors import NoRouteError, ResponseError, TrimtabError
from trimtab.io.chance import Chance
from trimtab.io.clock import Clock
from trimtab.model import MessageQueue
from trimtab.spark.options import SinkOptions
from trimtab.spark.problems import SinkWriteError
from trimtab.spark.sink_encoding import EncodedRows
from trimtab.spark.sink_loads import Load, loads_of, misplaced, refuse_names, topics_of
from trimtab.spark.sink_texts import counted
from trimtab.wire.bodies import HeartbeatData
from trimtab.wire.codes import LanguageCode, RequestCode, Version
from trimtab.wire.compression import Compression, compress
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.send import SendMessageV2
from trimtab.wire.properties import UNIQ_KEY
from trimtab.wire.resources import DEFAULT_TOPIC

_log = logging.getLogger(__name__)

NEW_TOPIC_QUEUES = 4
_TRIED_AGAIN_S = 0.2
_TRIED_AGAIN_S_MAX = 3.0
_ROUTE_AGAIN_S = 0.5
_ANSWER_S_MAX = 30.0
"""A broker that hangs is given up for another one before the time for the rows is over."""


class _Room:
    """So many rows may be on their way, and never fewer than one request."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self.taken = 0
        self._is_free = asyncio.Event()

    async def take(self, rows: int) -> None:
        while self.taken and self.taken + rows > self._rows_max:
            self._is_free.clear()
            await self._is_free.wait()
        self.taken += rows

    def give_back(self, rows: int) -> None:
        self.taken -= rows
        self._is_free.set()


class RowSender:
    """Sends the rows of one task. To be used on the loop."""

    def __init__(self, session: Session, options: SinkOptions, clock: Clock, chance: Chance) -> None:
        self._session = session
        self._options = options
        self._clock = clock
        self._ids = unique_ids(clock, chance)
        self._next_queue = chance.randrange(1 << 16)
        self._lanes: dict[MessageQueue, asyncio.Lock] = {}
        self._on_way: set[asyncio.Task[None]] = set()
        self._room = _Room(options.in_flight_max)
        self._failure: BaseException | None = None
        self._with_timers: set[str] = set()
        self.sent = 0

    @property
    def rows_on_way(self) -> int:
        """Rows that have no receipt yet."""
        return self._room.taken

    def ids(self, count: int) -> Any:
        """The properties of so many rows that hold their new message ids."""
        head, counts = self._ids.parts_of_several(count, self._clock.wall_ms())
        return counted(f"{UNIQ_KEY}\x01{head}", counts)

    async def send(self, rows: EncodedRows) -> None:
        """Puts rows on their way; comes back when there is room for more."""
        refuse_names(rows)
        for topic in topics_of(rows, self._options):
            route = await self._route(topic)
            if rows.has_times:
                await self._refuse_brokers_without_timers(route)
        await self._refuse_misplaced(rows)
        for load in loads_of(rows, self._options, self._route_now):
            await self._room.take(load.count)
            self._raise_failure()
            task = asyncio.create_task(self._deliver(load))
            self._on_way.add(task)
            task.add_done_callback(partial(self._done, load.count))

    async def finish(self) -> None:
        """Waits for every receipt."""
        while self._on_way:
            await asyncio.wait(self._on_way)
        self._raise_failure()

    def abandon(self) -> None:
        """Nobody waits any more."""
        for task in self._on_way:
            task.cancel()

    def _done(self, rows: int, task: "asyncio.Task[None]") -> None:
        self._on_way.discard(task)
        self._room.give_back(rows)
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- one request ------------------------------------------------------------------------------------------

    async def _deliver(self, load: Load) -> None:
        """A queue that the rows chose is kept to themselves through all tries: nothing overtakes."""
        if load.queue is None:
            await self._try(load, self._lane)
        else:
            async with self._lane(load.queue):
                await self._try(load, lambda _queue: nullcontext())

    async def _try(
        self, load: Load, lane: Callable[[MessageQueue], AbstractAsyncContextManager[None]]
    ) -> None:
        now_s = asyncio.get_running_loop().time
        deadline = now_s() + self._options.send_ms / 1000
        failed_broker: str | None = None
        for attempt in itertools.count():
            queue = load.queue
            try:
                queue = load.queue or self._choose(load.topic, failed_broker)
                async with asyncio.timeout_at(deadline), lane(queue):
                    await self._ask(load, queue, min(deadline - now_s(), _ANSWER_S_MAX))
            except TimeoutError as error:
                raise self._problem(load, queue, f"no answer within {self._options.send_ms} ms") from error
            except TrimtabError as error:
                pause_s = min(_TRIED_AGAIN_S * (attempt + 1), _TRIED_AGAIN_S_MAX)
                is_over = attempt == self._options.retries or now_s() + pause_s >= deadline
                if not error.retriable or is_over:
                    raise self._problem(load, queue, str(error)) from error
                _log.warning("rows from %d on are sent again: %s", load.first_row, error)
                failed_broker = None if queue is None else queue.broker_name
                await asyncio.sleep(pause_s)
                await self._refresh(load.topic, error)
            else:
                self.sent += load.count
                return

    async def _ask(self, load: Load, queue: MessageQueue, seconds_max: float) -> None:
        address = self._route_now(queue.topic).master_of(queue.broker_name)
        if address is None:
            raise NoRouteError(f"{queue}: the route of the topic names no master of {queue.broker_name}")
        body, sys_flag = bytes(load.body), 0
        if not load.is_batch and self._is_compressed(len(body)):
            kind = Compression[self._options.compression.upper()]
            body, sys_flag = compress(body, kind), kind.sys_flag
        header = SendMessageV2(
            producer_group=self._options.producer_group,
            topic=queue.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=self._clock.wall_ms(),
            flag=load.flag,
            properties=load.properties,
            reconsume_times=0,
            batch=load.is_batch,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if load.is_batch else RequestCode.SEND_MESSAGE_V2
        await self._session.ask(
            address,
            code,
            header,
            body,
            asked=f"send of {load.count} rows to {queue}",
            timeout_s=max(seconds_max, 0.001),
        )

    def _is_compressed(self, body_bytes: int) -> bool:
        return self._options.compression != "none" and body_bytes >= self._options.compress_from_bytes

    def _problem(self, load: Load, queue: MessageQueue | None, why: str) -> SinkWriteError:
        rows = (
            f"rows {load.first_row} to {load.first_row + load.count - 1}"
            if load.count > 1
            else f"row {load.first_row}"
        )
        return SinkWriteError(f"{rows} of this task were not stored in {queue or load.topic}: {why}")

    # --- queues -----------------------------------------------------------------------------------------------

    def _lane(self, queue: MessageQueue) -> asyncio.Lock:
        return self._lanes.setdefault(queue, asyncio.Lock())

    def _choose(self, topic: str, failed_broker: str | None) -> MessageQueue:
        """The next queue in turn; not one of the broker that just failed, if there is another."""
        queues = self._route_now(topic).writable.queues
        others = [queue for queue in queues if queue.broker_name != failed_broker]
        self._next_queue += 1
        chosen = others or list(queues)
        return chosen[self._next_queue % len(chosen)]

    def _route_now(self, topic: str) -> Route:
        route = self._session.route_now(topic)
        if route is None or not route.writable.queues:
            raise NoRouteError(
                f"topic {topic!r} has no queue that can be written to: check its permission and its brokers"
            )
        return route

    async def _route(self, topic: str) -> Route:
        """The first question of a task; a name server that restarts is waited for."""
        now_s = asyncio.get_running_loop().time
        deadline = now_s() + min(self._options.send_ms / 1000, _ANSWER_S_MAX)
        while True:
            try:
                await self._session.route(topic, may_create_queues=NEW_TOPIC_QUEUES)
                return self._route_now(topic)
            except TrimtabError as error:
                if not error.retriable or now_s() + _ROUTE_AGAIN_S >= deadline:
                    raise
                _log.info("route of %s is asked for again: %s", topic, error)
            await asyncio.sleep(_ROUTE_AGAIN_S)

    async def _refuse_misplaced(self, rows: EncodedRows) -> None:
        """No broker would ever take them. The route may be older than the queue, so it is asked for once more."""
        if (found := misplaced(rows, self._options, self._route_now)) is None:
            return
        await self._session.refresh_route(found[1].topic, may_create_queues=NEW_TOPIC_QUEUES)
        if (found := misplaced(rows, self._options, self._route_now)) is None:
            return
        row, queue = found
        queues = self._route_now(queue.topic).writable.queues
        count = sum(other.broker_name == queue.broker_name for other in queues)
        raise SinkWriteError(
            f"row {row} of this task names {queue}, and {queue.topic} has {count} queues there, from 0 on; nothing of its batch was sent"
        )

    async def _refuse_brokers_without_timers(self, route: Route) -> None:
        """A broker of 4.9 does not know the property and would deliver at once."""
        beat = encode_body(HeartbeatData(client_id=self._session.client_id))
        for name in {queue.broker_name for queue in route.writable.queues}:
            address = route.master_of(name)
            if address is None or address in self._with_timers:
                continue
            answer = await self._session.ask(
                address, RequestCode.HEART_BEAT, body=beat, asked=f"version of {name}"
            )
            if answer.language == LanguageCode.JAVA and answer.version < Version.V5_0_0:
                raise SinkWriteError(
                    f"{name} at {address} is older than 5.0 and would deliver rows with a deliverTimestamp at once: use delayLevel"
                    " (1 to 18), or send them to brokers of 5.x; nothing of this batch of rows was sent"
                )
            self._with_timers.add(address)

    async def _refresh(self, topic: str, error: TrimtabError) -> None:
        if isinstance(error, ResponseError) and not isinstance(error, NoRouteError):
            return
        try:
            await self._session.refresh_route(topic, may_create_queues=NEW_TOPIC_QUEUES)
        except TrimtabError as trouble:
            _log.info("route of %s not refreshed: %s", topic, trouble)
