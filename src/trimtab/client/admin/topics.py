"""Topics: making, changing, removing and looking at them."""

import asyncio

from trimtab.client.admin.reach import Gathered, Reach, places_of
from trimtab.client.admin.rows import (
    BrokerFailure,
    Names,
    Perm,
    QueueRange,
    RouteOfNameserver,
    TopicOnBroker,
    TopicQueues,
    TopicRoute,
    TopicSettings,
)
from trimtab.client.checks import check_topic
from trimtab.errors import NoRouteError, RequestCodeNotSupportedError, SettingsError, TopicNotFoundError
from trimtab.model import MessageQueue
from trimtab.wire.bodies import (
    GroupList,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
    TopicStatsTable,
)
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.admin import CreateTopic, GetTopicConfig, TopicOnly
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import OffsetResponse as _Offset
from trimtab.wire.headers.consume import QueueOnly, SearchOffset, TimestampResponse
from trimtab.wire.headers.names import DeleteTopicInNames, GetRouteInfo
from trimtab.wire.resources import DEFAULT_TOPIC

PERM_BITS: dict[Perm, int] = {"rw": 6, "r": 4, "w": 2, "none": 0}
QUEUES_MAX = 65_536
ROUTE_POLL_S = 0.02


def perm_of(bits: int) -> Perm:
    """The letters of a permission."""
    letters = ("r" if bits & 4 else "") + ("w" if bits & 2 else "")
    return {"rw": "rw", "r": "r", "w": "w"}.get(letters, "none")  # type: ignore[return-value]


class Topics(Reach):
    """See the module's own words; `Admin` is the public face."""

    async def topics(self) -> Names:
        """All topics that name servers know, system topics and retry topics too."""
        answer = await self._ask_names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, asked="list of topics")
        return Names(names=tuple(sorted(set(decode_body(TopicList, answer.body).topic_list))))

    async def create_topic(
        self,
        topic: str,
        queues: int = 16,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Perm = "rw",
        order: bool = False,
        brokers: list[str] | tuple[str, ...] | None = None,
        cluster: str | None = None,
        attributes: dict[str, str] | None = None,
    ) -> TopicSettings:
        """Makes a topic, or changes it, at all masters or at those named. It can be used when this comes back.

        `queues` is per broker. `attributes` is for brokers of 5.x, `{"+message.type": "DELAY"}`.
        """
        check_topic(topic)
        header = CreateTopic(
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=_queue_count(queues if read_queues is None else read_queues),
            write_queue_nums=_queue_count(queues if write_queues is None else write_queues),
            perm=_bits(perm),
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=order,
            attributes=None
            if not attributes
            else ",".join(f"{name}={value}" for name, value in attributes.items()),
        )
        masters = await self._masters(brokers, cluster)
        asked = f"create topic {topic!r}"

        async def create(broker: str, address: str) -> TopicOnBroker:
            await self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, asked=asked)
            return TopicOnBroker(
                broker=broker,
                read_queues=header.read_queue_nums,
                write_queues=header.write_queue_nums,
                perm=perm,
                order=order,
                attributes=attributes or {},
            )

        done = (await self._each(asked, masters, create)).all_done()
        await self._until_routed(topic, done.found)
        return TopicSettings(topic=topic, brokers=tuple(done.found.values()))

    async def alter_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Perm | None = None,
        order: bool | None = None,
        brokers: list[str] | tuple[str, ...] | None = None,
    ) -> TopicSettings:
        """Changes what is given, at each broker that has the topic, and leaves the rest."""
        known = await self.topic_settings(topic)
        if known.failures:
            failure = known.failures[0]
            raise SettingsError(
                f"topic {topic!r} is not changed: {failure.broker} does not say what it has: {failure.error}"
            )
        wanted = [one for one in known.brokers if brokers is None or one.broker in brokers]
        if not wanted:
            raise SettingsError(f"none of {', '.join(brokers or ())} has topic {topic!r}")
        changed: list[TopicOnBroker] = []
        for one in wanted:
            done = await self.create_topic(
                topic,
                read_queues=_first(read_queues, queues, one.read_queues),
                write_queues=_first(write_queues, queues, one.write_queues),
                perm=one.perm if perm is None else perm,
                order=one.order if order is None else order,
                brokers=[one.broker],
            )
            changed += done.brokers
        return TopicSettings(topic=topic, brokers=tuple(changed))

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> tuple[str, ...]:
        """Removes a topic from all brokers, slaves too, and from every name server; gives the brokers' names."""
        places = [one for one in await self._places() if cluster is None or one.cluster == cluster]
        addresses = {
            f"{place.broker}:{number}" if number else place.broker: address
            for place in places
            for number, address in place.addresses.items()
        }
        asked = f"delete topic {topic!r}"

        async def delete(_broker: str, address: str) -> None:
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicOnly(topic=topic), asked=asked)

        async def forget(_name: str, address: str) -> None:
            header = DeleteTopicInNames(topic=topic, cluster_name=cluster)
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header, asked=asked)

        done = (await self._each(asked, addresses, delete)).all_done()
        (await self._each_nameserver(asked, forget)).all_done()
        return tuple(done.found)

    async def topic_route(self, topic: str) -> TopicRoute:
        """Where a topic is, as clients are told."""
        return route_row(topic, await self._route_data(topic))

    async def topic_routes(
        self, topic: str
    ) -> tuple[tuple[RouteOfNameserver, ...], tuple[BrokerFailure, ...]]:
        """What each name server says, one by one: they should agree."""
        asked = f"route of topic {topic!r}"

        async def route(_name: str, address: str) -> TopicRoute | None:
            try:
                answer = await self._ask(
                    address, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic), asked=asked
                )
            except TopicNotFoundError:
                return None
            return route_row(topic, decode_body(TopicRouteData, answer.body))

        told = await self._each_nameserver(asked, route)
        rows = tuple(RouteOfNameserver(nameserver=name, route=found) for name, found in told.found.items())
        return rows, told.failures

    async def topic_settings(self, topic: str) -> TopicSettings:
        """A topic as each of its brokers keeps it."""
        asked = f"settings of topic {topic!r}"

        async def settings(broker: str, address: str) -> TopicOnBroker:
            return topic_row(broker, await self._topic_config(address, topic, asked))

        told = (await self._each(asked, await self._brokers_of(topic), settings)).or_raise()
        return TopicSettings(topic=topic, brokers=tuple(told.found.values()), failures=told.failures)

    async def _topic_config(self, address: str, topic: str, asked: str) -> TopicConfig:
        try:
            header = GetTopicConfig(topic=topic)
            answer = await self._ask(address, RequestCode.GET_TOPIC_CONFIG, header, asked=asked)
            return decode_body(TopicConfig, answer.body)
        except RequestCodeNotSupportedError:  # 4.9 gives all or nothing
            answer = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, asked=asked)
            known = decode_body(TopicConfigSerializeWrapper, answer.body).topic_config_table.get(topic)
            if known is None:
                raise TopicNotFoundError(asked=asked, peer=address) from None
            return known

    async def topic_queues(self, topic: str, *, times: bool = False) -> TopicQueues:
        """All queues with their first and last offsets; with `times` also when the oldest message was stored."""
        asked = f"queues of topic {topic!r}"

        async def stats(_broker: str, address: str) -> list[QueueRange]:
            answer = await self._ask(
                address, RequestCode.GET_TOPIC_STATS_INFO, TopicOnly(topic=topic), asked=asked
            )
            table = decode_body(TopicStatsTable, answer.body).offset_table
            rows = [
                QueueRange(
                    topic=queue.topic,
                    broker=queue.broker_name,
                    queue_id=queue.queue_id,
                    min_offset=max(0, offsets.min_offset),
                    max_offset=max(0, offsets.max_offset),
                    oldest_ms=await self._oldest_ms(address, queue, asked) if times else None,
                    newest_ms=offsets.last_update_timestamp or None,
                )
                for queue, offsets in table.items()
            ]
            return sorted(rows, key=lambda row: row.queue_id)

        told: Gathered[list[QueueRange]] = await self._each(asked, await self._brokers_of(topic), stats)
        rows = tuple(row for rows in told.or_raise().found.values() for row in rows)
        return TopicQueues(topic=topic, queues=rows, failures=told.failures)

    async def _oldest_ms(self, address: str, queue: MessageQueue, asked: str) -> int | None:
        header = QueueOnly(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header, asked=asked)
        stored_ms = decode_ext(TimestampResponse, answer.ext).timestamp
        return stored_ms if stored_ms > 0 else None

    async def offset_at(self, queue: MessageQueue, at_ms: int) -> int:
        """The offset that a time means in a queue, as its broker counts."""
        address = (await self._brokers_of(queue.topic)).get(queue.broker_name)
        if address is None:
            raise NoRouteError(f"{queue}: the topic has no queue at {queue.broker_name}")
        return await self._offset_at(address, queue, at_ms)

    async def _offset_at(self, address: str, queue: MessageQueue, at_ms: int) -> int:
        header = SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=at_ms)
        answer = await self._ask(
            address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, asked=f"offset of {queue} at {at_ms}"
        )
        return decode_ext(_Offset, answer.ext).offset

    async def topic_groups(self, topic: str) -> Names:
        """The groups that consume a topic, connected or not."""
        asked = f"groups of topic {topic!r}"

        async def groups(_broker: str, address: str) -> tuple[str, ...]:
            answer = await self._ask(
                address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicOnly(topic=topic), asked=asked
            )
            return decode_body(GroupList, answer.body).group_list

        told = (await self._each(asked, await self._brokers_of(topic), groups)).or_raise()
        names = {name for names in told.found.values() for name in names}
        return Names(names=tuple(sorted(names)), failures=told.failures)

    async def _until_routed(self, topic: str, brokers: dict[str, TopicOnBroker]) -> None:
        """Brokers tell name servers a little later; who makes a topic wants to use it."""
        deadline = asyncio.get_running_loop().time() + self._session.timeouts.request_s
        while asyncio.get_running_loop().time() < deadline:
            try:
                route = await self.topic_route(topic)
            except NoRouteError:
                route = None
            if route is not None and _shows(route, brokers):
                return
            await asyncio.sleep(ROUTE_POLL_S)


def _shows(route: TopicRoute, brokers: dict[str, TopicOnBroker]) -> bool:
    known = {one.broker: (one.read_queues, one.write_queues, one.perm) for one in route.queues}
    return all(
        known.get(name) == (one.read_queues, one.write_queues, one.perm) for name, one in brokers.items()
    )


def topic_row(broker: str, config: TopicConfig) -> TopicOnBroker:
    """A broker's settings as a row."""
    return TopicOnBroker(
        broker=broker,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        perm=perm_of(config.perm),
        order=config.order,
        sys_flag=config.topic_sys_flag,
        attributes=config.attributes or {},
    )


def route_row(topic: str, data: TopicRouteData) -> TopicRoute:
    """A name server's answer as a row, sorted, so that equal routes are equal."""
    return TopicRoute(
        topic=topic,
        queues=tuple(
            TopicOnBroker(
                broker=one.broker_name,
                read_queues=one.read_queue_nums,
                write_queues=one.write_queue_nums,
                perm=perm_of(one.perm),
                sys_flag=one.topic_sys_flag,
            )
            for one in sorted(data.queue_datas, key=lambda one: one.broker_name)
        ),
        brokers=places_of(data.broker_datas),
        order_conf=data.order_topic_conf or None,
    )


def _bits(perm: Perm) -> int:
    if perm not in PERM_BITS:
        raise SettingsError(f"permission {perm!r} is none of {', '.join(PERM_BITS)}")
    return PERM_BITS[perm]


def _queue_count(count: int) -> int:
    if not 1 <= count <= QUEUES_MAX:
        raise SettingsError(f"{count} queues cannot be; say 1 to {QUEUES_MAX}")
    return count


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
