"""Consuming at one's own pace: ask for messages when there is time for them.

    async with PullConsumer("billing", subscribe={"orders": "eu || us"}) as consumer:   # shares queues with its group
        async for message in consumer: ...

    async with PullConsumer("audit") as consumer:                                       # exactly these queues
        await consumer.assign(await consumer.queues("orders"))
        await consumer.seek(queue, "begin")
        batch = await consumer.poll(timeout_s=1)

Messages are pulled ahead, within `Pulling.held_bytes_max`, and come in the order of their queue. An offset is committed when the messages before
it are done with: handed out, and the caller came back for more. So a crash in the middle of the work gives a message again, and
never loses one. `commit()` says that all that was handed out is done.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from trimtab.balance.pipeline import Tally
from trimtab.balance.strategies import Strategy, by_name
from trimtab.client.checks import check_group, check_offset
from trimtab.client.namespaces import with_namespace
from trimtab.client.pull_consumer_answers import Answers, properties_of
from trimtab.client.pull_consumer_members import Membership
from trimtab.client.pull_consumer_offsets import Where
from trimtab.client.pull_consumer_reading import Reading
from trimtab.client.pull_consumer_shelf import Shelved
from trimtab.client.pulls import SQL92, Wanted
from trimtab.client.push_chores import check_filters, find_routes
from trimtab.client.push_requests import BrokerRequests
from trimtab.client.push_settings import start_rule
from trimtab.client.ranges import read_columns
from trimtab.client.received import Received
from trimtab.client.sessions import acquire_session, connection_options, release_session
from trimtab.client.subscriptions import Expression, Subscriptions, on_wire, subscription_of
from trimtab.errors import ClosedError, SettingsError
from trimtab.io.chance import Chance
from trimtab.io.clock import Clock, SystemClock
from trimtab.model import MessageQueue
from trimtab.settings import Pulling, Timeouts, Tls
from trimtab.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from trimtab.wire.signing import Credentials

if TYPE_CHECKING:
    import pyarrow as pa

    from trimtab.client.session import Session

_log = logging.getLogger(__name__)

AUTO_COMMIT_S = 5.0
POLL_S = 5.0

Start: TypeAlias = Literal["first", "last"] | datetime
"""Where a group begins that has no offset yet."""


class PullConsumer:
    """See the module's own words."""

    def __init__(
        self,
        group: str,
        *,
        subscribe: Mapping[str, Expression] | None = None,
        nameserver: str | None = None,
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tls: Tls = None,
        namespace: str | None = None,
        unit_name: str | None = None,
        start: Start = "last",
        strategy: str | Strategy = "AVG",
        own_strategies: Sequence[Strategy] = (),
        auto_commit_s: float | None = AUTO_COMMIT_S,
        pulling: Pulling | None = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        """`auto_commit_s`: how often what is done is committed by itself; None for never."""
        check_group(group)
        if auto_commit_s is not None and auto_commit_s <= 0:
            raise SettingsError("auto_commit_s must be positive; None means never")
        self.group = group
        self._clock = clock or SystemClock()
        self._chance = chance
        self._timeouts = timeouts or Timeouts()
        self._pulling = pulling or Pulling()
        self._options = connection_options(
            nameserver, credentials=credentials, tls=tls, namespace=namespace, unit_name=unit_name
        )
        self._given_client_id = client_id
        self._wire_group = with_namespace(namespace, group)
        self._start_rule = start_rule(start)
        self._strategy = by_name(strategy, own_strategies) if isinstance(strategy, str) else strategy
        self._auto_commit_s = auto_commit_s
        wanted = on_wire(namespace, {} if subscribe is None else subscribe)
        self._subscriptions = Subscriptions(wanted, self._clock.wall_ms())
        self._is_subscribed = bool(wanted)
        self._committing: asyncio.Task[None] | None = None
        self._membership: Membership | None = None
        self._session: Session
        self._assigning: asyncio.Lock
        self._reading: Reading
        self._requests: BrokerRequests
        self._is_open = False
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = (
            f"queues={len(self._reading.shelf.queues)} {self._reading.room}" if self._is_open else "closed"
        )
        return f"<PullConsumer group={self.group!r} {state}>"

    # --- beginning and end ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was being worked on when something went wrong was not done.
        await self._close(all_is_done=kind is None)

    async def start(self) -> None:
        """Begins; `async with` does it. A second call changes nothing; a consumer that was closed may be started again."""
        if self._is_open:
            return
        if self._closing is not None and not self._closing.done():
            await asyncio.wait([self._closing])
        self._session = acquire_session(
            self._options, self._given_client_id, self._clock, self._chance, self._timeouts,
            consumer_group=self._wire_group,
        )  # fmt: skip
        self._reading = Reading(
            self._session, self._wire_group, self._subscriptions, self._start_rule, self._pulling,
            commits=self._auto_commit_s is not None,
        )  # fmt: skip
        self._assigning = asyncio.Lock()
        self._session.roles.consumers[self._wire_group] = self._describe
        self._requests = BrokerRequests(self._session, self._answers(), None)
        self._requests.listen()
        self._is_open = True
        try:
            await self._session.start()
            if self._auto_commit_s is not None:
                self._committing = asyncio.create_task(self._commit_every(self._auto_commit_s))
            if self._is_subscribed:
                await self._check(self._subscriptions.all)
                await self._join()
        except BaseException:
            await self._close(all_is_done=False)
            raise

    async def close(self) -> None:
        """Ends it. What was handed out counts as done, and is committed unless `auto_commit_s` is None."""
        await self._close(all_is_done=True)

    async def _close(self, *, all_is_done: bool) -> None:
        """In a task of its own: who waits for it may lose patience, and the group is left all the same. All who close wait for the same end."""
        if self._is_open:
            self._is_open = False
            self._closing = asyncio.create_task(self._end(all_is_done=all_is_done))
        if self._closing is not None and not self._closing.done():
            await asyncio.shield(self._closing)

    async def _end(self, *, all_is_done: bool) -> None:
        try:
            await self._requests.close()
            membership, self._membership = self._membership, None
            if membership is not None:
                await membership.close()
            committing, self._committing = self._committing, None
            if committing is not None:
                committing.cancel()
                await asyncio.gather(committing, return_exceptions=True)
            await self._reading.close(all_is_done=all_is_done)
        finally:
            await release_session(self._session, consumer_group=self._wire_group)

    def _answers(self) -> Answers:
        properties = properties_of(
            nameserver=self._options.nameserver, group=self.group, rule=self._start_rule, strategy=self._strategy.name,
            started_wall_ms=self._clock.wall_ms(),
        )  # fmt: skip
        return Answers(
            self._session, self._reading, group=self._wire_group, properties=properties,
            subscriptions=lambda: self._subscriptions.all, rebalance_soon=self._rebalance_soon,
        )  # fmt: skip

    def _rebalance_soon(self) -> None:
        if self._membership is not None:
            self._membership.soon()

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._wire_group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere(self._start_rule.where.value),
            subscription_data_set=self._subscriptions.all,
        )

    # --- which queues -----------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """How brokers list this consumer, once it has started."""
        self._must_have_started()
        return self._session.client_id

    @property
    def session(self) -> "Session":
        """What it shares with the other clients of this process."""
        self._require_open()
        return self._session

    def tallies(self) -> tuple[Tally, ...]:
        """Pulls sent and wasted, for each queue that is read."""
        self._must_have_started()
        shelved = self._reading.shelf.queues.values()
        return tuple(one.pulls.tally for one in shelved if one.pulls is not None)

    @property
    def assigned(self) -> tuple[MessageQueue, ...]:
        """The queues that are read now."""
        self._must_have_started()
        return tuple(self._reading.shelf.queues)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read."""
        self._require_open()
        return (await self._session.route(with_namespace(self._options.namespace, topic))).readable

    async def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Reads exactly these queues from now on, whatever others of the group read; not together with `subscribe`.

        Of queues that are read already, what waits is asked for anew if the filter is another. A failure changes nothing.
        """
        self._require_open()
        self._must_not_subscribe()
        wanted = dict.fromkeys(map(self._on_wire, queues))
        async with self._assigning:
            await self._assign(wanted, expression)

    async def _assign(self, wanted: Mapping[MessageQueue, None], expression: Expression) -> None:
        now_ms = self._clock.wall_ms()
        asked = [
            subscription_of(topic, expression, now_ms)
            for topic in dict.fromkeys(queue.topic for queue in wanted)
        ]
        await self._check(asked)
        new = [queue for queue in wanted if queue not in self._reading.shelf.queues]
        offsets = await asyncio.gather(*map(self._reading.start_of, new))
        for queue, offset in zip(new, offsets, strict=True):
            if offset < 0:
                raise SettingsError(f"group {self.group!r} has no offset in {queue} to start at: commit one")
        self._require_open()
        self._must_not_subscribe()
        # Not before all was found good.
        for data in asked:
            before = self._reading.wanted(data.topic) if data.topic in self._subscriptions else None
            self._subscriptions.add(data.topic, expression, now_ms)
            if before not in (None, self._reading.wanted(data.topic)):
                self._reading.want(data.topic)
        for queue in [queue for queue in self._reading.shelf.queues if queue not in wanted]:
            await self._reading.lay_aside(queue)
        for topic in set(self._subscriptions.topics) - {data.topic for data in asked}:
            self._subscriptions.remove(topic)
        await self._session.send_heartbeats()
        for queue, offset in zip(new, offsets, strict=True):
            self._reading.take(queue, offset)

    def _must_not_subscribe(self) -> None:
        if self._is_subscribed:
            raise SettingsError(f"group {self.group!r} subscribes: its queues are given by the group")

    async def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Adds a topic, or changes what is wanted of it; the group shares its queues. A failure changes nothing."""
        self._require_open()
        topic, now_ms = with_namespace(self._options.namespace, topic), self._clock.wall_ms()
        await self._check([subscription_of(topic, expression, now_ms)])
        # Not before it was found good: what is subscribed is told to brokers again and again.
        self._require_open()
        if not self._is_subscribed and self._reading.shelf.queues:
            raise SettingsError(
                f"group {self.group!r} reads assigned queues: assign none before you subscribe"
            )
        self._is_subscribed = True
        self._subscriptions.add(topic, expression, now_ms)
        self._reading.want(topic)
        await self._join()

    async def unsubscribe(self, topic: str) -> None:
        """Gives a topic up."""
        self._require_open()
        self._subscriptions.remove(with_namespace(self._options.namespace, topic))
        await self._join()

    async def _check(self, asked: Iterable[SubscriptionData]) -> None:
        """Raises what is wrong with a wish: a topic that is not there, a filter that brokers do not take."""
        for data in asked:
            await self._session.route(data.topic)
            await check_filters(
                self._session, self._wire_group, [data] if data.expression_type == SQL92 else []
            )

    async def _join(self) -> None:
        await find_routes(self._session, self.group, self._subscriptions.topics)
        await self._session.send_heartbeats()
        if self._membership is None:
            self._membership = Membership(self._session, self._wire_group, self._strategy, self._reading)
            await self._membership.start()
        else:
            await self._membership.rebalance()

    def _on_wire(self, queue: MessageQueue) -> MessageQueue:
        topic = with_namespace(self._options.namespace, queue.topic)
        return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)

    # --- messages ---------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        self._must_have_started()
        return self

    async def __anext__(self) -> Received:
        while (message := self._reading.shelf.next()) is None:
            if not self._is_open:
                raise StopAsyncIteration
            await self._wait()
        return message

    async def poll(self, timeout_s: float = POLL_S, messages_max: int | None = None) -> list[Received]:
        """The next messages of one queue, as many as there are now, up to `messages_max`; none after `timeout_s`."""
        self._require_open()
        if messages_max is not None and messages_max < 1:
            raise SettingsError("messages_max must be 1 or more")
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not (batch := self._reading.shelf.take(messages_max)):
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wait()
            except TimeoutError:
                return []
            self._require_open()
        return batch

    async def _wait(self) -> None:
        if self._reading.failure is not None:
            failure, self._reading.failure = self._reading.failure, None
            raise failure
        self._reading.news.clear()
        await self._reading.news.wait()

    def pause(self, *queues: MessageQueue) -> None:
        """Nothing of these queues is handed out, until they are resumed; without an argument, of all."""
        for shelved in self._chosen(queues):
            self._reading.shelf.pause(shelved)

    def resume(self, *queues: MessageQueue) -> None:
        """The opposite of `pause`."""
        for shelved in self._chosen(queues):
            self._reading.shelf.resume(shelved)
        self._reading.news.set()

    def _chosen(self, queues: tuple[MessageQueue, ...]) -> list[Shelved]:
        return (
            [self._held(queue) for queue in queues] if queues else list(self._reading.shelf.queues.values())
        )

    def _held(self, queue: MessageQueue) -> Shelved:
        self._require_open()
        shelved = self._reading.shelf.queues.get(self._on_wire(queue))
        if shelved is None:
            raise SettingsError(
                f"{queue} is not read by this consumer of group {self.group!r}: assign it, or wait until the group gives it"
            )
        return shelved

    def _must_have_started(self) -> None:
        if not hasattr(self, "_reading"):
            raise ClosedError("the consumer has not been started: use `async with PullConsumer(...)`")

    def _require_open(self) -> None:
        if not self._is_open:
            raise ClosedError(f"{self!r} is closed, or was never started")

    # --- places -----------------------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, where: Where) -> int:
        """Reads a queue from another place on: an offset, "begin", "end" or a time. Gives the offset."""
        shelved = self._held(queue)
        offset = await self._reading.offsets.of(shelved.queue, where)
        self._reading.go_to(shelved, offset)
        return offset

    def position(self, queue: MessageQueue) -> int:
        """The offset that is handed out next."""
        return self._held(queue).handed

    async def offset_of(self, queue: MessageQueue, where: Where) -> int:
        """The offset of a place in any queue."""
        self._require_open()
        return await self._reading.offsets.of(self._on_wire(queue), where)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group stands in a queue; None if it has no offset there."""
        self._require_open()
        return await self._reading.offsets.committed(self._on_wire(queue))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Stores these offsets; without them, all that was handed out is done and committed. A failure is raised."""
        self._require_open()
        if offsets is not None:
            checked = [(self._on_wire(queue), check_offset(queue, at)) for queue, at in offsets.items()]
            await asyncio.gather(*(self._reading.offsets.commit(queue, at) for queue, at in checked))
            return
        for shelved in self._reading.shelf.queues.values():
            shelved.done = shelved.handed
        await asyncio.gather(
            *(self._reading.commit(one, one.done) for one in self._reading.shelf.queues.values())
        )

    async def _commit_every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._reading.commit_done()

    # --- columns ----------------------------------------------------------------------------------------------

    async def pull_columns(
        self,
        queue: MessageQueue,
        start: Where = "begin",
        end: Where = "end",
        *,
        columns: Iterable[str] | None = None,
        expression: Expression = "*",
    ) -> "AsyncGenerator[pa.RecordBatch, None]":
        """A part of any queue as Arrow record batches; positions and commits are not touched. Needs the extra `spark`.

        An `end` that the queue has not reached is waited for, a minute at the most.
        """
        self._require_open()
        queue = self._on_wire(queue)
        first, stop = await self._reading.offsets.of(queue, start), await self._reading.offsets.of(queue, end)
        batches = read_columns(
            self._session, self._wire_group, queue, first, stop, _wanted_of(queue.topic, expression),
            columns=columns, pulling=self._pulling,
        )  # fmt: skip
        async with aclosing(batches):
            async for batch in batches:
                yield batch


def _wanted_of(topic: str, expression: Expression) -> Wanted:
    data = Subscriptions({topic: expression}, 0).all[0]
    return Wanted(data.sub_string or "*", data.expression_type)
