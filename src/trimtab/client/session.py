"""What all clients of one process and one set of name servers share: connections, routes, heartbeats.

One connection per address carries everything. A connection is opened when it is first needed, by whoever comes first, and
opened anew after it was lost. Routes are asked for when they are first needed and refreshed by themselves. Heartbeats go to all
brokers at once. Nothing waits without a deadline, and closing leaves no task behind.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from trimtab.client.routes import MASTER, Route, as_new_topic
from trimtab.errors import (
    ClosedError,
    NoRouteError,
    ResponseError,
    TopicNotFoundError,
    TrimtabError,
    error_from_response,
)
from trimtab.io.clock import Clock
from trimtab.io.connection import PeerConnection
from trimtab.io.nameservers import resolve_nameserver
from trimtab.settings import Intervals, Timeouts
from trimtab.wire.bodies import ConsumerData, HeartbeatData, ProducerData, TopicRouteData
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.base import Header, encode_ext
from trimtab.wire.headers.consume import UnregisterClient
from trimtab.wire.headers.names import GetRouteInfo
from trimtab.wire.resources import DEFAULT_TOPIC

_log = logging.getLogger(__name__)

OnRequest = Callable[[PeerConnection, Command], None]


@dataclass(slots=True)
class Roles:
    """What this process is to the brokers: the content of its heartbeats."""

    producer_groups: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, Callable[[], ConsumerData]] = field(default_factory=dict)

    def heartbeat(self, client_id: str) -> HeartbeatData | None:
        """What there is to say, if anything."""
        if not self.producer_groups and not self.consumers:
            return None
        return HeartbeatData(
            client_id=client_id,
            producer_data_set=tuple(ProducerData(group_name=group) for group in self.producer_groups),
            consumer_data_set=tuple(describe() for describe in self.consumers.values()),
        )


class Session:
    """See the module's own words."""

    def __init__(
        self,
        nameserver: str,
        client_id: str,
        clock: Clock,
        *,
        timeouts: Timeouts | None = None,
        intervals: Intervals | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.client_id = client_id
        self.clock = clock
        self.timeouts = timeouts or Timeouts()
        self.roles = Roles()
        self.on_request: dict[int, OnRequest] = {}
        """What to do with the requests of brokers, by code; others are answered that they are not supported."""
        self._intervals = intervals or Intervals()
        self._tls = tls
        self._nameservers = resolve_nameserver(nameserver).split(";")
        self._opening: dict[str, asyncio.Task[PeerConnection]] = {}
        self._connections: dict[str, PeerConnection] = {}
        self._known: dict[str, Route] = {}
        self._asking: dict[str, asyncio.Task[Route]] = {}
        self._chores: list[asyncio.Task[None]] = []
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Session {self.client_id} topics={len(self._known)} connections={len(self._connections)}>"

    async def start(self) -> None:
        """Begins to refresh routes and to send heartbeats by itself."""
        self._chores = [
            asyncio.create_task(self._every(self._intervals.route_refresh_s, self.refresh_routes)),
            asyncio.create_task(self._every(self._intervals.heartbeat_s, self.send_heartbeats)),
        ]

    async def close(self) -> None:
        """Says goodbye to the brokers and closes everything, within the time for closing."""
        if self._is_closed:
            return
        for chore in self._chores:
            chore.cancel()
        try:
            async with asyncio.timeout(self.timeouts.close_s):
                await self._say_goodbye()
        except TimeoutError:
            _log.warning("%s closed before every broker was told", self)
        self._is_closed = True
        tasks = [*self._chores, *self._opening.values(), *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- asking -----------------------------------------------------------------------------------------------

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        asked: str,
        timeout_s: float | None = None,
    ) -> Command:
        """The answer of a server; what is not a success is raised. `asked` tells people what it was about."""
        connection = await self.connection(address)
        command = Command(
            code=code,
            opaque=connection.next_opaque(),
            ext={} if header is None else encode_ext(header),
            body=body,
        )
        answer = await connection.ask(command, timeout_s=timeout_s or self.timeouts.request_s)
        if answer.code != ResponseCode.SUCCESS:
            raise error_from_response(answer.code, asked=asked, peer=address, remark=answer.remark or "")
        return answer

    async def ask_names(self, code: RequestCode, header: Header | None = None, *, asked: str) -> Command:
        """The answer of the first name server that can be reached; the next one is tried when it cannot."""
        failures = []
        for _ in range(len(self._nameservers)):
            address = self._nameservers[0]
            try:
                return await self.ask(address, code, header, asked=asked)
            except ResponseError:
                raise
            except TrimtabError as error:
                failures.append(f"{address}: {error}")
                self._nameservers.append(self._nameservers.pop(0))
        raise NoRouteError(f"{asked}: no name server answered ({'; '.join(failures)})")

    async def connection(self, address: str) -> PeerConnection:
        """The connection to an address, opened if need be; everybody who waits for it gets the same one."""
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        if self._is_closed:
            raise ClosedError("the client is closed")
        opening = self._opening.get(address)
        if opening is None:
            opening = self._opening[address] = asyncio.create_task(self._open(address))
        return await asyncio.shield(opening)

    def connection_now(self, address: str) -> PeerConnection | None:
        """The connection to an address, if it stands."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_open else None

    async def _open(self, address: str) -> PeerConnection:
        try:
            connection = await PeerConnection.open(
                address, on_request=self._requested, tls=self._tls, connect_s_max=self.timeouts.connect_s
            )
            self._connections[address] = connection
            return connection
        finally:
            del self._opening[address]

    def _requested(self, connection: PeerConnection, command: Command) -> None:
        handler = self.on_request.get(command.code)
        if handler is not None:
            handler(connection, command)

    # --- routes -----------------------------------------------------------------------------------------------

    async def route(self, topic: str, *, may_create_queues: int = 0) -> Route:
        """The route of a topic. With `may_create_queues` a topic that does not exist gets the route that sending creates."""
        known = self._known.get(topic)
        if known is not None:
            return known
        return await self.refresh_route(topic, may_create_queues=may_create_queues)

    def route_now(self, topic: str) -> Route | None:
        """The route of a topic, if it is known."""
        return self._known.get(topic)

    async def refresh_route(self, topic: str, *, may_create_queues: int = 0) -> Route:
        """Asks anew; everybody who asks at the same time shares the answer."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._ask_route(topic, may_create_queues))
        return await asyncio.shield(asking)

    async def _ask_route(self, topic: str, may_create_queues: int) -> Route:
        try:
            data = await self._route_data(topic)
            if data is None and may_create_queues:
                data = await self._route_data(DEFAULT_TOPIC)
                data = None if data is None else as_new_topic(data, may_create_queues)
            if data is None:
                raise NoRouteError(
                    f"topic {topic!r} has no route: {', '.join(self._nameservers)} does not know it; create the topic, or"
                    " let brokers create topics"
                )
            known = self._known.get(topic)
            if known is None or known.data != data:
                known = self._known[topic] = Route(topic, data)
            return known
        finally:
            del self._asking[topic]

    async def _route_data(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfo(topic=topic)
        try:
            answer = await self.ask_names(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, header, asked=f"route of topic {topic!r}"
            )
        except TopicNotFoundError:
            return None
        return decode_body(TopicRouteData, answer.body)

    async def refresh_routes(self) -> None:
        """Asks anew for every topic in use; one that cannot be had keeps its old route."""

        async def refresh(topic: str) -> None:
            try:
                await self.refresh_route(topic)
            except TrimtabError as error:
                _log.info("route of %s not refreshed: %s", topic, error)

        await asyncio.gather(*(refresh(topic) for topic in list(self._known)))

    # --- heartbeats -------------------------------------------------------------------------------------------

    def broker_addresses(self) -> dict[str, str]:
        """The brokers of all topics in use, address to name: all of them for consumers, masters only without one."""
        every_id = bool(self.roles.consumers)
        return {
            address: name
            for route in self._known.values()
            for name, by_id in route.addresses.items()
            for number, address in by_id.items()
            if every_id or number == MASTER
        }

    async def send_heartbeats(self) -> None:
        """Tells every broker, all at once, what this process is."""
        heartbeat = self.roles.heartbeat(self.client_id)
        if heartbeat is None:
            return
        body = encode_body(heartbeat)

        async def beat(address: str) -> None:
            try:
                await self.ask(address, RequestCode.HEART_BEAT, body=body, asked="heartbeat")
            except TrimtabError as error:
                _log.info("heartbeat to %s failed: %s", address, error)

        await asyncio.gather(*(beat(address) for address in self.broker_addresses()))

    async def _say_goodbye(self) -> None:
        goodbyes: list[Coroutine[None, None, None]] = []
        for address in self.broker_addresses():
            if self.connection_now(address) is None:
                continue
            goodbyes += [
                self.unregister(address, producer_group=group) for group in self.roles.producer_groups
            ]
            goodbyes += [self.unregister(address, consumer_group=group) for group in self.roles.consumers]
        await asyncio.gather(*goodbyes)

    async def unregister(
        self, address: str, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Takes a group back from a broker."""
        header = UnregisterClient(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        try:
            await self.ask(address, RequestCode.UNREGISTER_CLIENT, header, asked="goodbye")
        except TrimtabError as error:
            _log.info("goodbye to %s failed: %s", address, error)

    async def _every(self, seconds: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except TrimtabError as error:
                _log.warning("%s: %s", self, error)
