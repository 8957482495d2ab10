"""The group side of a pull consumer that subscribes: sees views, runs the rebalance machine, does what it says."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from trimtab.balance.rebalance import REBALANCE_EVERY_MS, Rebalance
from trimtab.balance.rebalance_effects import Changed, Drop, Effect, ReadStart, ShareFailed, StartPull
from trimtab.balance.strategies import Strategy
from trimtab.client.routes import MASTER
from trimtab.client.session import Session
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.wire.bodies import ConsumerIdList
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.consume import GroupOnly

_log = logging.getLogger(__name__)


class Taker(Protocol):
    """Who takes queues and gives them up."""

    def topics(self) -> Iterable[str]:
        """What the group is subscribed to."""

    async def start_of(self, queue: MessageQueue) -> int:
        """Where to read from; negative for not now."""

    def take(self, queue: MessageQueue, offset: int) -> bool:
        """The queue is ours; False if it is not wanted any more."""

    async def give_up(self, queue: MessageQueue) -> None:
        """The queue is another's."""

    def changed(self, topic: str) -> None:
        """The share of a topic changed: brokers shall hear of a newer subscription."""


class Membership:
    """One member of a group, in classic mode."""

    def __init__(self, session: Session, group: str, strategy: Strategy, taker: Taker) -> None:
        self._session = session
        self._group = group
        self._taker = taker
        self._machine = Rebalance(group, session.client_id, strategy, is_push=False)
        self._turn = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._rounds: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Takes a share at once, and keeps it right from then on."""
        # The task first: who waits for the share may lose patience, and stays a member all the same.
        self._loop_task = asyncio.create_task(self._keep_balanced())
        await self.rebalance()

    async def close(self) -> None:
        """Looks at nothing any more; what is held is the taker's to give up."""
        tasks = [*self._rounds, *([self._loop_task] if self._loop_task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def rebalance(self) -> None:
        """One round over all topics. In a task of its own: who waits for it may lose patience, and the round is done all the same."""
        task = asyncio.create_task(self._round())
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)
        await asyncio.shield(task)

    async def _round(self) -> None:
        async with self._turn:
            topics = tuple(self._taker.topics())
            for topic in topics:
                queues, members = await self._queues(topic), await self._members(topic)
                await self._do(self._machine.on_view(topic, queues, members, self._now_ms()))
            await self._do(self._machine.on_subscriptions(topics, self._now_ms()))

    def soon(self) -> None:
        """Somebody joined or left: a round begins when the present one is over."""
        self._wanted.set()

    async def _keep_balanced(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REBALANCE_EVERY_MS / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self.rebalance()
            except TrimtabError as error:
                _log.warning("group %s was not rebalanced: %s", self._group, error)
            except Exception:  # noqa: BLE001 - a round that fails must not be the last one
                _log.exception("group %s was not rebalanced; it is tried again", self._group)

    # --- views ------------------------------------------------------------------------------------------------

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...] | None:
        try:
            return (await self._session.route(topic)).readable
        except TrimtabError as error:
            _log.warning("group %s sees no queues of %s: %s", self._group, topic, error)
            return None

    async def _members(self, topic: str) -> tuple[str, ...] | None:
        """As the first broker of the topic that answers sees them, masters first."""
        route = self._session.route_now(topic)
        by_id = [] if route is None else list(route.addresses.values())
        masters = [addresses[MASTER] for addresses in by_id if MASTER in addresses]
        others = [address for addresses in by_id for number, address in addresses.items() if number != MASTER]
        for address in (*masters, *others):
            try:
                answer = await self._session.ask(
                    address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupOnly(consumer_group=self._group),
                    asked=f"members of group {self._group!r}",
                )  # fmt: skip
                return tuple(decode_body(ConsumerIdList, answer.body).consumer_id_list)
            except TrimtabError as error:
                _log.info("group %s: %s", self._group, error)
        return None

    # --- effects ----------------------------------------------------------------------------------------------

    async def _do(self, effects: Iterable[Effect]) -> None:
        starts = []
        for effect in effects:
            if isinstance(effect, ReadStart):
                starts.append(self._begin(effect))
            elif isinstance(effect, StartPull):
                if not self._taker.take(effect.queue, effect.offset):
                    # Else a topic that comes back before the next round would have a queue that nobody reads.
                    await self._do(self._machine.on_moved(effect.queue, self._now_ms()))
            elif isinstance(effect, Drop):
                await self._taker.give_up(effect.queue)
            elif isinstance(effect, Changed):
                _log.info("%s", effect)
                self._taker.changed(effect.topic)
                await self._session.send_heartbeats()
            elif isinstance(effect, ShareFailed):
                _log.error(
                    "group %s keeps its queues of %s: strategy %s failed: %s",
                    self._group, effect.topic, effect.strategy, effect.reason,
                )  # fmt: skip
        await asyncio.gather(*starts)

    async def _begin(self, question: ReadStart) -> None:
        try:
            offset = await self._taker.start_of(question.queue)
        except TrimtabError as error:
            _log.warning("it is not known where to start in %s: %s", question.queue, error)
            offset = -1
        await self._do(self._machine.on_start(question, offset, self._now_ms()))

    def _now_ms(self) -> int:
        return self._session.clock.monotonic_ms()
