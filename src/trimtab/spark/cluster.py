"""What a driver asks the cluster: which queues there are, what they keep, where a time or a group stands in them.

Every question has a deadline and some tries. Questions about queues go to all brokers at once; a broker that does not answer is told
apart from one that says no.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from trimtab.client.routes import MASTER, Route
from trimtab.client.session import Session
from trimtab.errors import QueryNotFoundError, TopicNotFoundError, TrimtabError
from trimtab.model import MessageQueue
from trimtab.spark.access import Access
from trimtab.spark.decisions import meant_by
from trimtab.spark.losses import Kept
from trimtab.spark.offsets import Offsets
from trimtab.spark.options import Choice
from trimtab.spark.positions import ANY_BROKER
from trimtab.wire.bodies import (
    ClusterInfo,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    TopicList,
    TopicRouteData,
)
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.base import Header, decode_ext
from trimtab.wire.headers.consume import (
    GetMaxOffset,
    OffsetResponse,
    QueryConsumerOffset,
    QueueOnly,
    SearchOffset,
    UpdateConsumerOffset,
)
from trimtab.wire.headers.names import GetRouteInfo
from trimtab.wire.resources import RETRY_PREFIX

_log = logging.getLogger(__name__)

T = TypeVar("T")

ASKED_AT_ONCE_MAX = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """The queues to read and where each is."""

    addresses: Mapping[MessageQueue, str]
    missing_topics: tuple[str, ...] = ()
    others: tuple[MessageQueue, ...] = ()
    """Queues of the same topics that are not to be read."""

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """All of them."""
        return tuple(self.addresses)


@dataclass(slots=True)
class Answers:
    """What brokers said of queues, and which queues have no answer."""

    found: dict[MessageQueue, int] = field(default_factory=dict)
    failed: dict[MessageQueue, TrimtabError] = field(default_factory=dict)

    def all_or_raise(self) -> dict[MessageQueue, int]:
        """The answers, if every queue has one."""
        for error in self.failed.values():
            raise error
        return self.found


class ClusterView:
    """See the module's own words. Its methods run on the loop of the session."""

    def __init__(self, session: Session, access: Access) -> None:
        self._session = session
        self._access = access
        self._room = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

    async def layout(self, choice: Choice) -> Layout:
        """Asks the name servers anew."""
        topics = choice.topics if choice.pattern is None else await self._matching_topics(choice)
        routes = await asyncio.gather(*(self._route(topic) for topic in topics))
        addresses = {
            queue: address
            for route in routes
            if route is not None
            for queue, address in _places(route).items()
        }
        missing = tuple(topic for topic, route in zip(topics, routes, strict=True) if route is None)
        if choice.queues is None:
            return Layout(addresses, missing)
        named = {one for queue in choice.queues for one in _meant(queue, addresses)}
        others = tuple(queue for queue in addresses if queue not in named)
        return Layout({queue: addresses[queue] for queue in addresses if queue in named}, missing, others)

    async def live_brokers(self) -> frozenset[str]:
        """The names of brokers that are registered."""
        answer = await self._patient(
            lambda: self._session.ask_names(RequestCode.GET_BROKER_CLUSTER_INFO, asked="list of brokers")
        )
        return frozenset(decode_body(ClusterInfo, answer.body).broker_addr_table)

    async def firsts(self, layout: Layout) -> Answers:
        """The offset of the oldest message of each queue."""

        def header(queue: MessageQueue) -> Header:
            return QueueOnly(topic=queue.topic, queue_id=queue.queue_id)

        answers = await self._each_offset(layout, RequestCode.GET_MIN_OFFSET, header, "first offset")
        answers.found = {queue: max(offset, 0) for queue, offset in answers.found.items()}
        return answers

    async def nexts(self, layout: Layout) -> Answers:
        """The offset that the next message of each queue will have."""

        def header(queue: MessageQueue) -> Header:
            return GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)

        return await self._each_offset(layout, RequestCode.GET_MAX_OFFSET, header, "next offset")

    async def kept(self, layout: Layout) -> dict[MessageQueue, Kept]:
        """What brokers keep of the queues; a broker that does not answer is an error."""
        firsts, nexts = await asyncio.gather(self.firsts(layout), self.nexts(layout))
        first, following = firsts.all_or_raise(), nexts.all_or_raise()
        return {queue: Kept(first[queue], max(following[queue], first[queue])) for queue in layout.addresses}

    async def committed(self, layout: Layout, group: str) -> dict[MessageQueue, int | None]:
        """Where a group stands; None where it never was."""

        async def ask(queue: MessageQueue, address: str) -> int | None:
            header = QueryConsumerOffset(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)
            asked = f"offset of group {group!r} in {queue}"
            try:
                answer = await self._session.ask(
                    address, RequestCode.QUERY_CONSUMER_OFFSET, header, asked=asked
                )
            except QueryNotFoundError:
                return None
            offset = decode_ext(OffsetResponse, answer.ext).offset
            return offset if offset >= 0 else None

        return await self._each(layout.addresses, ask)

    async def hints(self, layout: Layout, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """What brokers say of times: near the right place, on a side that depends on their version."""

        async def ask(queue: MessageQueue, address: str) -> int:
            header = SearchOffset(
                topic=queue.topic, queue_id=queue.queue_id, timestamp=times[queue], boundary_type="lower"
            )
            asked = f"offset of {queue} at {times[queue]}"
            answer = await self._session.ask(
                address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, asked=asked
            )
            return decode_ext(OffsetResponse, answer.ext).offset

        return await self._each({queue: layout.addresses[queue] for queue in times}, ask)

    async def introduce(self, layout: Layout, group: str) -> None:
        """Makes the group known to tools, which find groups by their retry topic; a heartbeat makes a broker create it.

        A broker that has the retry topic knows the group, which may have members: they are left alone.
        """
        route = await self._route(f"{RETRY_PREFIX}{group}")
        knowing = set(route.addresses) if route is not None else set()
        strangers = {
            address for queue, address in layout.addresses.items() if queue.broker_name not in knowing
        }
        consumer = ConsumerData(
            group_name=group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        )
        body = encode_body(HeartbeatData(client_id=self._session.client_id, consumer_data_set=(consumer,)))

        async def meet(address: str) -> None:
            try:
                await self._session.ask(
                    address, RequestCode.HEART_BEAT, body=body, asked=f"introduction of group {group!r}"
                )
                await self._session.unregister(address, consumer_group=group)
            except TrimtabError as error:
                _log.warning("%s", error)

        await asyncio.gather(*map(meet, strangers))

    async def commit(self, layout: Layout, group: str, offsets: Offsets) -> dict[MessageQueue, int]:
        """Tells the brokers how far a group has come; gives back what they took. What fails is told in the log: the checkpoint is what counts."""
        taken: dict[MessageQueue, int] = {}

        async def ask(queue: MessageQueue, address: str) -> None:
            header = UpdateConsumerOffset(
                consumer_group=group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=offsets[queue],
            )
            asked = f"commit of group {group!r} in {queue}"
            try:
                await self._session.commits.write(address, header, asked=asked)
            except TrimtabError as error:
                _log.warning("%s", error)
            else:
                taken[queue] = offsets[queue]

        places = {queue: address for queue, address in layout.addresses.items() if queue in offsets}
        await asyncio.gather(*(ask(queue, address) for queue, address in places.items()))
        return taken

    # --- asking -----------------------------------------------------------------------------------------------

    async def _matching_topics(self, choice: Choice) -> tuple[str, ...]:
        answer = await self._patient(
            lambda: self._session.ask_names(
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, asked="list of topics"
            )
        )
        topics = decode_body(TopicList, answer.body).topic_list
        return tuple(sorted(topic for topic in topics if choice.wants_topic(topic)))

    async def _route(self, topic: str) -> Route | None:
        """None if the name servers do not know the topic."""

        async def ask() -> Route | None:
            header = GetRouteInfo(topic=topic)
            asked = f"route of topic {topic!r}"
            try:
                answer = await self._session.ask_names(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC, header, asked=asked
                )
            except TopicNotFoundError:
                return None
            return Route(topic, decode_body(TopicRouteData, answer.body))

        return await self._patient(ask)

    async def _each_offset(
        self, layout: Layout, code: RequestCode, header: Callable[[MessageQueue], Header], what: str
    ) -> Answers:
        answers = Answers()

        async def ask(queue: MessageQueue, address: str) -> None:
            async def once() -> int:
                answer = await self._session.ask(address, code, header(queue), asked=f"{what} of {queue}")
                return decode_ext(OffsetResponse, answer.ext).offset

            try:
                async with self._room:
                    answers.found[queue] = await self._patient(once)
            except TrimtabError as error:
                answers.failed[queue] = error

        await asyncio.gather(*(ask(queue, address) for queue, address in layout.addresses.items()))
        return answers

    async def _each(
        self, places: Mapping[MessageQueue, str], ask: Callable[[MessageQueue, str], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        async def one(queue: MessageQueue, address: str) -> T:
            async with self._room:
                return await self._patient(lambda: ask(queue, address))

        answers = await asyncio.gather(*(one(queue, address) for queue, address in places.items()))
        return dict(zip(places, answers, strict=True))

    async def _patient(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks again, as often as the options say, where there is hope."""
        for _ in range(self._access.retries):
            try:
                return await ask()
            except TrimtabError as error:
                if not error.retriable:
                    raise
                _log.info("asked again: %s", error)
                await asyncio.sleep(self._access.retry_ms / 1000)
        return await ask()


def _meant(queue: MessageQueue, known: Mapping[MessageQueue, str]) -> list[MessageQueue]:
    return meant_by(queue, known) if queue.broker_name == ANY_BROKER else [queue]


def _places(route: Route) -> dict[MessageQueue, str]:
    """The queues that can be read, each with the address to read it at."""
    places = {}
    for queue in route.readable:
        by_id = route.addresses.get(queue.broker_name, {})
        address = by_id.get(MASTER) or next(iter(by_id.values()), None)
        if address is not None:
            places[queue] = address
    return places


def only(layout: Layout, queues: Iterable[MessageQueue]) -> Layout:
    """The part of a layout with these queues."""
    return Layout({queue: layout.addresses[queue] for queue in queues if queue in layout.addresses})
