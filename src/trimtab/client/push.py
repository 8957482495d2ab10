"""Consuming: the group's queues are shared among its members, and messages are handed to a handler.

    async def handle(message: trimtab.Received) -> None: ...
    async with trimtab.PushConsumer("billing", subscribe={"orders": "eu || us"}, handler=handle) as consumer:
        await consumer.wait()

A message is consumed when its handler came back. The group's offset in a queue never passes a message whose handler has not ended: after
any accident messages may come twice, and none is missed. What handlers may say is told in `push_outcomes`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from trimtab.balance.identity import client_id_of
from trimtab.balance.leased import LeasedRebalance
from trimtab.balance.leased_effects import Happened
from trimtab.balance.pipeline import Tally
from trimtab.balance.rebalance import Rebalance
from trimtab.balance.recorder import Kind, Recorder
from trimtab.balance.strategies import Planner, Strategy
from trimtab.client.checks import check_group
from trimtab.client.holdings import PROPERTY as HOLDINGS
from trimtab.client.holdings import Holding, holdings_text
from trimtab.client.identity import local_ip
from trimtab.client.namespaces import with_namespace
from trimtab.client.producer import Producer
from trimtab.client.pulls_values import SQL92
from trimtab.client.push_agreement import Agreement
from trimtab.client.push_chores import check_filters, each, find_routes
from trimtab.client.push_dispatch import Concurrent
from trimtab.client.push_engine import Callbacks, Dispatcher, Engine, OnQueues
from trimtab.client.push_flights import FLIGHTS_GROUP, FlightPublisher
from trimtab.client.push_leased import LeasedRounds
from trimtab.client.push_leased_engine import LeasedEngine
from trimtab.client.push_marks import Marks, come_again
from trimtab.client.push_members import MemberLists, Seen
from trimtab.client.push_modes import CLASSIC, LEASED, check_choice, mode_plan
from trimtab.client.push_offsets import BrokerOffsets, FileOffsets
from trimtab.client.push_ordered import InOrder
from trimtab.client.push_outcomes import Call, Handler, call_of
from trimtab.client.push_queue import HeldNow
from trimtab.client.push_recording import Records
from trimtab.client.push_requests import BrokerRequests
from trimtab.client.push_retries import Retries
from trimtab.client.push_rivals import LIFE, UNSURE, Rivals
from trimtab.client.push_rounds import Rounds
from trimtab.client.push_running import properties_of, running_info
from trimtab.client.push_settings import Consuming, chosen_strategy, start_rule
from trimtab.client.push_trace import ConsumeTrace
from trimtab.client.session import Session
from trimtab.client.sessions import acquire_session, connection_options, release_session
from trimtab.client.subscriptions import Expression, Subscriptions, on_wire, subscription_of, wanted_of
from trimtab.errors import ClientIdTakenError, ClosedError, SettingsError
from trimtab.io.chance import Chance, seeded_chance
from trimtab.io.clock import Clock, SystemClock
from trimtab.model import MessageQueue
from trimtab.settings import Intervals, Pulling, Timeouts, Tls
from trimtab.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
)
from trimtab.wire.resources import RETRY_PREFIX
from trimtab.wire.signing import Credentials

_log = logging.getLogger(__name__)

LOCKS_FIRST_AFTER_S = 1.0
LEASED_OFFSETS_EVERY_S = 0.25
"""After a crash what was finished since comes again: half a second of it at most, half of which is left for the broker and a busy machine."""
HANDOVER_S_MAX = 3.0
"""For the brokers' part of giving everything up."""
OVERDUE_LOOKS = 15
"""How often within `handler_s_max` it is looked for handlers that take too long."""


_ended_by: ContextVar[asyncio.Task[None] | None] = ContextVar("ended_by", default=None)
"""The task that closes a consumer, for callbacks that it calls: they need not wait for it."""


class PushConsumer:
    """See the module's own words."""

    recorder: Recorder
    """What happened to this member and its queues, once it has started."""
    _session: Session
    _engine: Engine
    _rounds: Rounds | LeasedRounds
    _records: Records
    _requests: BrokerRequests
    _rivals: Rivals
    _marks: Marks
    _life: str
    _running: asyncio.Task[None]
    # Until it has started.
    _started_wall_ms = 0
    _is_open = False
    _is_switching = False
    _is_paused = False
    _failure: ClientIdTakenError | None = None
    _closing: asyncio.Task[None] | None = None
    _closed: asyncio.Event | None = None
    _trace: ConsumeTrace | None = None
    _flights: FlightPublisher | None = None

    def __init__(
        self,
        group: str,
        *,
        subscribe: Mapping[str, Expression],
        handler: Handler,
        nameserver: str | None = None,
        client_id: str | None = None,
        ordered: bool = False,
        broadcast: bool = False,
        start: str | datetime = "last",
        strategy: str | Strategy | Planner | None = None,
        own_strategies: Sequence[Strategy | Planner] = (),
        mode: str | None = None,
        batch_messages_max: int | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        on_lost: OnQueues | None = None,
        consuming: Consuming | None = None,
        pulling: Pulling | None = None,
        timeouts: Timeouts | None = None,
        intervals: Intervals | None = None,
        credentials: Credentials | None = None,
        tls: Tls = None,
        namespace: str | None = None,
        unit_name: str | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        """With `batch_messages_max` the handler gets lists of up to so many messages of one queue; else one message.

        `start` counts where the group has no offset yet: "first", "last" or a time. `on_revoked` is awaited before a queue is let go.
        `strategy` may be a name, also of one among `own_strategies`, or an object.
        """
        check_group(with_namespace(namespace, group))
        self._plan = mode_plan(mode, chosen_strategy(strategy, own_strategies), is_broadcast=broadcast)
        self.mode = self._plan.mode
        """The handover mode now: `leased` falls back to `classic` while members of another kind are in the group."""
        if batch_messages_max is not None and batch_messages_max < 1:
            raise SettingsError("batch_messages_max must be 1 or more")
        self.group = group
        self.consuming = consuming or Consuming()
        self.pulling = pulling or Pulling()
        self.is_ordered = ordered
        self.is_broadcast = broadcast
        self._options = connection_options(
            nameserver, credentials=credentials, tls=tls, namespace=namespace, unit_name=unit_name
        )
        self.group_on_wire = with_namespace(namespace, group)
        self._client_id = client_id
        if broadcast and client_id is None:
            # Known again after a restart: its offsets lie in a folder of this name.
            self._client_id = client_id_of(local_ip(), "DEFAULT", unit_name)
        self._clock = clock or SystemClock()
        self._chance = chance or seeded_chance()
        self._timeouts = timeouts or Timeouts()
        self._intervals = intervals
        self._rule = start_rule(start)
        self._batch_messages_max = batch_messages_max
        self._callbacks = Callbacks(on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        self._subscriptions = Subscriptions(on_wire(namespace, subscribe), self._clock.wall_ms())
        check_choice(self._plan.planner, client_id, self._subscriptions.topics)
        if not broadcast:
            self._subscriptions.add(RETRY_PREFIX + self.group_on_wire, "*", self._clock.wall_ms())
        self._handler = handler
        self._pool, self._call = self._called()
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        if not self._is_open:
            return f"<PushConsumer group={self.group!r} closed>"
        load = self._engine.load
        return (
            f"<PushConsumer group={self.group!r} queues={len(self._engine.held)}"
            f" waiting={load.messages}/{self.consuming.limits.process_messages_max}>"
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """How brokers list this member, once it has started."""
        if self._closed is None:
            raise ClosedError("the consumer has not been started: use `async with PushConsumer(...)`")
        return self._session.client_id

    @property
    def has_started(self) -> bool:
        """Whether it was started at least once: then it has a client id and a recorder."""
        return self._closed is not None and hasattr(self, "recorder")

    # --- begin and end ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Joins the group; `async with` does it. A consumer that was closed may be started again."""
        if self._is_open:
            return
        if self._closing is not None and not self._closing.done():
            await asyncio.wait([self._closing])
        session = self._session = acquire_session(
            self._options, self._client_id, self._clock, self._chance, self._timeouts,
            intervals=self._intervals, consumer_group=self.group_on_wire,
        )  # fmt: skip
        self._closed = asyncio.Event()
        self._pool, self._call = self._called()
        self.mode, self._is_paused = self._plan.mode, False
        self._failure, self._closing = None, None
        self._started_wall_ms = self._clock.wall_ms()
        try:
            self.recorder = Recorder(self.group_on_wire, session.client_id)
            self._flights = self._publisher(session)
            await self._begin_trace(session)
            self._requests = BrokerRequests(session, self, self._call)
            self._life = f"{os.getpid()}-{self._started_wall_ms}-{self._chance.randrange(2**48):012x}"
            is_id_chosen = self._client_id is not None and not self.is_broadcast
            self._rivals = Rivals(session, self.group_on_wire, self._life, is_id_chosen=is_id_chosen)
            self._marks = Marks()
            self._build(session)
        except BaseException:
            await release_session(session, consumer_group=self.group_on_wire)
            raise
        self._is_open = True
        try:
            self._requests.listen()
            await session.start()
            await find_routes(self._session, self.group, self._subscriptions.topics)
            await check_filters(session, self.group_on_wire, self._subscriptions.filtered_by_sql)
            await self._rivals.refuse_second()
            if self._plan.mode == LEASED:
                session.roles.leased.add(self.group_on_wire)
            session.roles.consumers[self.group_on_wire] = self._describe
            await session.send_heartbeats()
        except BaseException:
            await self.close()
            raise
        self._records.note(Happened(Kind.JOINED, cause="start", detail=f"mode {self.mode}"))
        self._spawn_chores()

    async def close(self) -> None:
        """Leaves the group: handlers at work end (bounded), offsets are stored, the brokers are told. All who call it wait for the same end.

        Who loses patience leaves it going on. A handler may call it: its own end is not waited for, and its message comes again.
        """
        if self._is_open:
            self._begin_to_close()
        closing = self._closing
        if closing is None or closing.done() or _ended_by.get() is closing:
            return
        with self._engine.without(asyncio.current_task()):
            await asyncio.shield(closing)

    def _begin_to_close(self) -> None:
        self._is_open = False
        self._closing = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        _ended_by.set(self._closing)
        try:
            await self._leave()
        finally:
            await release_session(self._session, consumer_group=self.group_on_wire)
            self._pool.shutdown(wait=False, cancel_futures=True)
            if self._closed is not None:
                self._closed.set()

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._requests.close()
        await self._give_all_up(lambda: self._session.leave(consumer_group=self.group_on_wire))
        if self._failure is None:
            self._records.note(Happened(Kind.LEFT, cause="stop"))
        if self._trace is not None:
            await self._trace.close()
        if self._flights is not None:
            await self._flights.close()

    def _called(self) -> tuple[ThreadPoolExecutor, Call]:
        """Threads for a plain handler, none of which is there before it is needed, and how the handler is called."""
        pool = ThreadPoolExecutor(self.consuming.concurrency, f"trimtab-{self.group}")
        return pool, call_of(self._handler, pool, is_batch=self._batch_messages_max is not None)

    async def _begin_trace(self, session: Session) -> None:
        if self.consuming.trace:
            self._trace = ConsumeTrace(
                self._options, self.group, session.client_id, self._clock, self._chance
            )
            self._call = self._trace.traced(self._call)
            await self._trace.start()

    def _publisher(self, session: Session) -> FlightPublisher | None:
        if self.consuming.record_to is None:
            return None
        options = self._options
        producer = Producer(
            FLIGHTS_GROUP, nameserver=options.nameserver, credentials=options.credentials, tls=options.tls,
            namespace=options.namespace, unit_name=options.unit_name, timeouts=self._timeouts, clock=self._clock,
        )  # fmt: skip
        return FlightPublisher(producer, self.consuming.record_to, self.group_on_wire, session.client_id)

    @property
    def events_dropped(self) -> int:
        """How many events of its flight recorder are not on the topic that `Consuming(record_to=...)` names."""
        return 0 if self._flights is None else self._flights.dropped

    async def _give_all_up(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if isinstance(self._rounds, LeasedRounds):
            in_order = await self._rounds.stop(self.consuming.drain_s_max + HANDOVER_S_MAX, farewell)
            if not in_order:
                _log.warning("%s left before all of its queues were handed over", self.group)
        await self._rounds.close()
        await self._engine.close()

    async def wait(self) -> None:
        """Until the consumer is closed. Raises `ClientIdTakenError` if it stopped because another process has its client id."""
        if self._closed is None:
            raise ClosedError("the consumer has not been started: use `async with PushConsumer(...)`")
        await self._closed.wait()
        if self._failure is not None:
            raise self._failure

    def _build(self, session: Session) -> None:
        machine = Rebalance(
            self.group_on_wire, session.client_id, self._plan.strategy, is_ordered=self.is_ordered, is_broadcast=self.is_broadcast
        )  # fmt: skip
        brokers = BrokerOffsets(session, self.group_on_wire)
        kind = LeasedEngine if self.mode == LEASED else Engine
        self._engine = kind(
            session, machine, self._subscriptions, rule=self._rule,
            offsets=self._file_offsets(session) if self.is_broadcast else brokers,
            consuming=self.consuming, pulling=self.pulling, callbacks=self._callbacks,
            batch_messages_max=self._batch_messages_max or 1,
        )  # fmt: skip
        self._engine.dispatcher = self._dispatcher(session)
        self._engine.is_paused = self._is_paused
        tell = None if self._flights is None else self._flights.tell
        records = Records(self.recorder, self._clock, self._engine.in_flight, tell)
        self._records = records
        self._engine.on_offset_moved = lambda moved: records.note(
            Happened(
                Kind.OFFSET_MOVED, cause="the broker does not have it", queue=moved.queue, offset=moved.offset
            )
        )
        self._rounds = self._leased_rounds(session, self._engine, records) or Rounds(
            machine, self._engine, session, self._chance, records, every_s=self.consuming.rebalance_every_s
        )

    def _file_offsets(self, session: Session) -> FileOffsets:
        return FileOffsets(
            self.consuming.offsets_directory, session.client_id, self.group_on_wire,
            topics=lambda: self._subscriptions.topics,
        )  # fmt: skip

    def _leased_rounds(self, session: Session, engine: Engine, records: Records) -> LeasedRounds | None:
        if not isinstance(engine, LeasedEngine):
            return None
        machine = LeasedRebalance(
            self.group_on_wire, session.client_id, self._plan.planner, has_new_id=self._client_id is None,
            drain_ms_max=int(self.consuming.drain_s_max * 1000),
            restart_grace_ms=int(self.consuming.restart_grace_s * 1000),
            measure_every_ms=int(self.consuming.loads_every_s * 1000),
        )  # fmt: skip
        engine.lease_by(machine, is_ordered=self.is_ordered)
        rounds = LeasedRounds(
            machine, engine, session, records, every_s=self.consuming.rebalance_every_s, on_seen=self._members_seen,
            rivals=self._rivals, on_rival=self._stop_for_rival,
        )  # fmt: skip
        engine.on_refused = rounds.commit_refused
        return rounds

    def _dispatcher(self, session: Session) -> Dispatcher:
        engine, limit = self._engine, self.consuming.reconsume_limit(is_ordered=self.is_ordered)
        retries = None if self.is_broadcast else Retries(session, self.group_on_wire, limit, self._chance)
        if self.is_ordered:
            return InOrder(
                self._call, retries, self.consuming, self._clock,
                on_finished=engine.finished, lock=engine.lock_one,
            )  # fmt: skip
        return Concurrent(
            self._call, retries, self.consuming, self._clock, on_finished=engine.finished
        )  # fmt: skip

    def _spawn_chores(self) -> None:
        every = self.consuming
        self._running = self._spawn(self._rounds.run())
        agreement = Agreement(self._session, self.group_on_wire, self._subscriptions)
        self._spawn(each(every.rebalance_every_s, agreement.look))
        is_leased = self._plan.mode == LEASED
        self._spawn(each(LEASED_OFFSETS_EVERY_S if is_leased else every.offsets_every_s, self._store_offsets))
        self._spawn(each(max(1.0, every.handler_s_max / OVERDUE_LOOKS), self._send_back_overdue))
        if is_leased or (self._client_id is not None and not self.is_broadcast):
            self._spawn(each(every.rebalance_every_s, self._look_who_is_there))
        if self.is_ordered and not self.is_broadcast:
            self._spawn(each(every.locks_every_s, self._renew_locks, first_s=LOCKS_FIRST_AFTER_S))

    def _spawn(self, doing: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks = [known for known in self._tasks if not known.done()]
        self._tasks.append(task)
        return task

    async def _store_offsets(self) -> None:
        await self._engine.store_offsets()

    async def _renew_locks(self) -> None:
        if self.mode == CLASSIC:
            await self._engine.renew_locks()

    async def _send_back_overdue(self) -> None:
        await self._engine.send_back_overdue()

    # --- members of another kind ------------------------------------------------------------------------------

    async def _look_who_is_there(self) -> None:
        """While leases are not used, whether those because of whom are gone, and whether somebody else has this id."""
        if self.mode == CLASSIC and not self._is_switching:
            queues = {
                topic: route.readable
                for topic in self._subscriptions.topics
                if (route := self._session.route_now(topic))
            }
            seen = await MemberLists(self._session, self.group_on_wire).look(queues)
            where = await self._rivals.found(seen)
            if where:
                self._stop_for_rival(where)
            else:
                self._members_seen(seen)

    def _stop_for_rival(self, where: str) -> None:
        """Another live process has this member's id: one of the two has to go, and the broker reaches the other one."""
        if self._failure is not None or not self._is_open:
            return
        self._failure = ClientIdTakenError(
            f"client id {self.client_id!r} of group {self.group!r} is in use elsewhere, by a live member at {where}: this one has"
            " stopped; give each member a client_id of its own"
        )
        _log.error("%s", self._failure)
        self._records.note(Happened(Kind.LEFT, cause="another live member has this client id", other=where))
        self._begin_to_close()

    def _members_seen(self, seen: Seen) -> bool:
        """Whether queues may be shared by this view: not while this member has to come again to be known for what it is."""
        if self._plan.mode != LEASED or self._is_switching or not seen.lists:
            return True
        mismarked_at = self._marks.due(seen, self._session.clock.monotonic_ms())
        if mismarked_at:
            self._spawn(self._come_again(mismarked_at))
        is_coming = self._marks.is_coming(seen)
        foreign = seen.foreign - {self.client_id} if is_coming else seen.foreign
        if foreign and self.mode == LEASED:
            who = ", ".join(sorted(foreign)[:3])
            self._spawn(self._switch(CLASSIC, f"{who} in the group does not keep leases"))
        elif not seen.foreign and seen.is_whole and self.mode == CLASSIC:
            self._spawn(self._switch(LEASED, "all members keep leases again"))
        return not is_coming

    async def _come_again(self, mismarked_at: tuple[str, ...]) -> None:
        try:
            await come_again(self._session, self.group_on_wire, mismarked_at)
        finally:
            self._marks.came(mismarked_at, self._session.clock.monotonic_ms())
        self._rounds.soon()
        await self._look_who_is_there()

    async def _switch(self, mode: str, why: str) -> None:
        """Hands everything back in order, and begins anew in the other mode."""
        self._is_switching = True
        try:
            _log.warning("%s goes on in %s mode with %s: %s", self.group, mode, self._plan.name(mode), why)
            self._records.note(Happened(Kind.FELL_BACK if mode == CLASSIC else Kind.JOINED, cause=why))
            self._running.cancel()
            await self._give_all_up(_nothing)
            self.mode = mode
            self._build(self._session)
            self._running = self._spawn(self._rounds.run())
        finally:
            self._is_switching = False

    # --- while it runs ----------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """One more topic, or another filter for one; the brokers know it when this comes back."""
        self._must_be_open()
        topic, now_ms = self._on_wire(topic), self._clock.wall_ms()
        asked = subscription_of(topic, expression, now_ms)
        await find_routes(self._session, self.group, [topic])
        await check_filters(
            self._session, self.group_on_wire, (asked,) if asked.expression_type == SQL92 else ()
        )
        # Not before it was found good: what is subscribed is told to brokers again and again.
        data = self._subscriptions.add(topic, expression, now_ms)
        for queue, held in self._engine.held.items():
            if queue.topic == data.topic and held.pulls is not None:
                held.pulls.want(wanted_of(data))
        await self._session.send_heartbeats()
        self._rounds.soon()

    async def unsubscribe(self, topic: str) -> None:
        """A topic less; its queues are given up before this comes back."""
        self._must_be_open()
        if self._subscriptions.remove(self._on_wire(topic)):
            await self._session.send_heartbeats()
            # In a task of ours: a caller who loses patience must not leave queues half taken or half given up.
            await asyncio.shield(self._spawn(self._a_round()))

    async def _a_round(self) -> None:
        await self._rounds.round()

    def pause(self) -> None:
        """Pulls nothing until `resume`; what was pulled is still handled, and the queues stay in the group's sharing."""
        self._must_be_open()
        self._is_paused = True
        self._engine.pause()

    def resume(self) -> None:
        """Goes on after `pause`."""
        self._must_be_open()
        self._is_paused = False
        self._engine.resume()

    def holdings(self) -> tuple[HeldNow, ...]:
        """The queues that this member holds now. Other threads may ask, too."""
        self._must_be_open()
        now_ms = self._clock.monotonic_ms()
        held_now = []
        for queue, held in list(self._engine.held.items()):
            holding = self._engine.holding(queue)
            if holding is not None and not held.is_leaving:
                held_now.append(
                    HeldNow(
                        queue, held.progress.safe_offset, held.progress.messages, now_ms - holding.since_ms
                    )
                )
        return tuple(held_now)

    @property
    def held_bytes(self) -> int:
        """Bytes of messages that are pulled, or asked for, and not let go: `Pulling.held_bytes_max` bounds them."""
        self._must_be_open()
        return self._engine.room.taken_bytes

    def tallies(self) -> tuple[Tally, ...]:
        """Pulls sent and wasted, for each queue that is held."""
        self._must_be_open()
        return tuple(held.pulls.tally for held in self._engine.held.values() if held.pulls is not None)

    def _must_be_open(self) -> None:
        if not self._is_open:
            raise ClosedError("the consumer is not open: use `async with PushConsumer(...)`")

    def _on_wire(self, topic: str) -> str:
        return with_namespace(self._options.namespace, topic)

    # --- what brokers ask -------------------------------------------------------------------------------------

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group_on_wire,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.BROADCASTING if self.is_broadcast else MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere(self._rule.where.value),
            subscription_data_set=self._subscriptions.all,
        )

    def rebalance_soon(self) -> None:
        """Somebody joined or left."""
        self._rounds.soon()

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Goes on elsewhere: what was pulled is thrown away, and the queues are read from the new offsets."""
        engine = self._engine
        moved = []
        for queue, offset in offsets.items():
            held = engine.held.get(queue)
            if held is not None:
                held.set_offset = offset
                held.leave()
                moved.append(queue)
        await self._rounds.move(moved)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """How far the queues of a topic have come."""
        return {
            queue: held.offset_to_store
            for queue, held in self._engine.held.items()
            if topic in ("", queue.topic)
        }

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """What this member tells tools about itself."""
        engine, now_ms = self._engine, self._clock.monotonic_ms()
        return running_info(
            properties=self._own_properties()
            | {
                "trimtab.flight": self.recorder.flight().decode(),
                HOLDINGS: holdings_text(self._told()),
                LIFE: self._own_life(),
            },
            subscriptions=self._subscriptions.all,
            held=engine.held,
            statuses={topic: stats.status(now_ms) for topic, stats in engine.stats.items()},
            lag_to_wall_ms=self._clock.wall_ms() - now_ms,
            with_stacks=with_stacks,
        )

    def _own_life(self) -> str:
        is_sure = not isinstance(self._rounds, LeasedRounds) or self._rounds.is_id_sure
        return self._life if is_sure else UNSURE

    def holdings_info(self) -> ConsumerRunningInfo:
        """What this member holds and nothing else, for other members."""
        return ConsumerRunningInfo(properties={HOLDINGS: holdings_text(self._told())})

    def _told(self) -> list[Holding]:
        engine, now_ms = self._engine, self._clock.monotonic_ms()
        trust = engine.leased.trust if isinstance(engine, LeasedEngine) else None
        began_ms = self._clock.wall_ms() - now_ms
        return [
            Holding(
                topic=queue.topic, broker=queue.broker_name, queue_id=queue.queue_id, since_ms=began_ms + known.since_ms,
                lease_age_ms=trust.age_ms(queue, now_ms) if trust else None, in_flight=held.progress.messages,
            )
            for queue, held in engine.held.items()
            if not held.is_leaving and (known := engine.holding(queue)) is not None
        ]  # fmt: skip

    def _own_properties(self) -> dict[str, str]:
        return properties_of(
            self.consuming, nameserver=self._options.nameserver, group=self.group, rule=self._rule,
            started_wall_ms=self._started_wall_ms, strategy=self._plan.name(self.mode), mode=self.mode,
            is_ordered=self.is_ordered, is_broadcast=self.is_broadcast, is_paused=self._engine.is_paused,
            batch_messages_max=self._batch_messages_max or 1,
        )  # fmt: skip


async def _nothing() -> None:
    """A member that only changes its mode stays in the group."""
