"""What all clients of one process and one set of name servers share: connections, routes, heartbeats.

One connection per address carries everything (`session_links`). Routes are asked for when they are first needed, refreshed by themselves, and
kept when no name server answers (`session_routes`). Heartbeats go to all brokers at once, to a broker that is new or reached anew
without waiting for the next round; what one broker is told of who is here it is told in order (`session_turns`). Every request is signed when
there are credentials. Nothing waits without a deadline, and closing leaves no task behind.
"""

import asyncio
import itertools
import logging
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from trimtab.client.commits import Commits
from trimtab.client.routes import Route
from trimtab.client.session_links import Links
from trimtab.client.session_roles import Listener, Listeners, Roles
from trimtab.client.session_routes import Routes, new_addresses
from trimtab.client.session_turns import Turns
from trimtab.errors import (
    NoRouteError,
    ResponseError,
    ServerUnreachableError,
    TopicNotFoundError,
    TrimtabError,
    error_from_response,
)
from trimtab.io.chance import Chance, seeded_chance
from trimtab.io.clock import Clock
from trimtab.io.connection import PeerConnection
from trimtab.io.nameservers import resolve_nameserver
from trimtab.settings import Intervals, Timeouts
from trimtab.wire.bodies import TopicRouteData
from trimtab.wire.codes import ONEWAY_FLAG, RESPONSE_FLAG, SPOKEN_VERSION, RequestCode, ResponseCode
from trimtab.wire.commands import Command, encode_command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.base import Header, encode_ext
from trimtab.wire.headers.consume import UnregisterClient
from trimtab.wire.headers.names import GetRouteInfo
from trimtab.wire.signing import Credentials

_log = logging.getLogger(__name__)

OnRequest = Callable[[PeerConnection, Command], None]

OWN_ADDRESS_MS = 300_000
"""Brokers forget a silent connection after two minutes and a little; heartbeats come every half minute."""
OWN_ADDRESSES_MAX = 10_000


class Listed(NamedTuple):
    """How a broker lists this client as a consumer of a group."""

    connection: PeerConnection
    heard_ms: int
    number: int
    """Another one when it was not listed in between, however shortly."""


class _Heard(NamedTuple):
    """A heartbeat that a broker took."""

    connection: PeerConnection
    at_ms: int
    listings: Mapping[str, int]
    """By group of consumers, the number of the listing."""


class Session:
    """See the module's own words. `sessions.acquire_session` gives one that is shared."""

    def __init__(
        self,
        nameserver: str,
        client_id: str,
        clock: Clock,
        *,
        timeouts: Timeouts | None = None,
        intervals: Intervals | None = None,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        chance: Chance | None = None,
    ) -> None:
        self.client_id = client_id
        self.clock = clock
        self.timeouts = timeouts or Timeouts()
        self.credentials = credentials
        self.roles = Roles()
        self.on_request: dict[int, OnRequest] = {}
        """One taker for all requests of a code, whatever `listen` says."""
        self._listeners = Listeners()
        self._intervals = intervals or Intervals()
        self._nameservers = resolve_nameserver(nameserver).split(";")
        self._links = Links(
            chance or seeded_chance(),
            on_request=self._requested,
            on_open=self._opened,
            tls=tls,
            connect_s_max=self.timeouts.connect_s,
            silent_s_max=self.timeouts.silent_s,
        )
        self._routes = Routes(self._route_data, self._route_changed)
        self.connection = self._links.to
        """The connection to an address, opened if need be; everybody who waits for it gets the same one."""
        self.connection_now = self._links.now
        """The connection to an address, if it stands."""
        self.route_now = self._routes.now
        """The route of a topic, if it is known."""
        self.master_of = self._routes.master_of
        """The address where a queue is written; asked for anew if the known route has none."""
        self.commits = Commits(self.ask, clock)
        """How offsets of groups are written."""
        self._heard: dict[str, _Heard] = {}
        self._listing_numbers = itertools.count(1)
        self._own_addresses: dict[tuple[str, str], int] = {}
        self._introduced: dict[str, tuple[PeerConnection, int]] = {}
        """By address: over which connection it was told which version of the producer groups."""
        self._turns = Turns(self._tell_all)
        self._background: set[asyncio.Task[None]] = set()
        self._is_started = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Session {self.client_id} topics={len(self._routes)} connections={len(self._links)}>"

    async def start(self) -> None:
        """Begins to refresh routes and to send heartbeats by itself; a second call changes nothing."""
        if self._is_started:
            return
        self._is_started = True
        self._spawn(self._every(self._intervals.route_refresh_s, self.refresh_routes))
        self._spawn(self._every(self._intervals.heartbeat_s, self.send_heartbeats))

    async def close(self) -> None:
        """Says goodbye to the brokers and closes everything, within the time for closing."""
        if self._is_closed:
            return
        self._is_closed = True
        background = list(self._background)
        for task in background:
            task.cancel()
        await self._goodbyes(
            (
                *((group, None) for group in self.roles.producer_groups),
                *((None, g) for g in self.roles.consumers),
            )
        )
        await self._turns.close()
        await asyncio.gather(*background, return_exceptions=True)
        await self._routes.close()
        await self._links.close()

    async def leave(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Takes back what one client was to the brokers, while the session goes on for others."""
        if producer_group is not None and self.roles.remove_producer(producer_group):
            await self._goodbyes([(producer_group, None)])
        self.roles.leased.discard(consumer_group or "")
        if consumer_group is not None and self.roles.consumers.pop(consumer_group, None) is not None:
            await self._goodbyes([(None, consumer_group)])

    # --- asking -----------------------------------------------------------------------------------------------

    def frame(
        self,
        code: int,
        header: Header | None,
        *,
        opaque: int,
        body: bytes = b"",
        flag: int = 0,
        version: int = SPOKEN_VERSION,
    ) -> bytes:
        """A request as it goes on the wire, signed if there are credentials."""
        ext = {} if header is None else encode_ext(header)
        return encode_command(
            Command(
                code=code, opaque=opaque, flag=flag, ext=self.signed(ext, body), body=body, version=version
            )
        )

    def signed(self, ext: Mapping[str, str], body: bytes = b"") -> Mapping[str, str]:
        """The fields of a request together with the signature, if there are credentials."""
        return ext if self.credentials is None else self.credentials.signed(ext, body)

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        asked: str,
        timeout_s: float | None = None,
        version: int = SPOKEN_VERSION,
    ) -> Command:
        """The answer of a server; what is not a success is raised. `asked` tells people what it was about."""
        timeout_s = timeout_s or self.timeouts.request_s
        deadline = asyncio.get_running_loop().time() + timeout_s
        connection = self._links.now(address) or await self._connection_by(address, deadline, asked)
        opaque = connection.next_opaque()
        frame = self.frame(code, header, opaque=opaque, body=body, version=version)
        answer = await connection.answer_to(opaque, frame, deadline=deadline, asked=asked)
        if answer.code != ResponseCode.SUCCESS:
            raise error_from_response(answer.code, asked=asked, peer=address, remark=answer.remark or "")
        return answer

    async def tell(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Sends a request that nobody answers."""
        deadline = asyncio.get_running_loop().time() + (timeout_s or self.timeouts.request_s)
        connection = self._links.now(address) or await self._connection_by(address, deadline, f"{code.name}")
        opaque = connection.next_opaque()
        connection.send(self.frame(code, header, opaque=opaque, body=body, flag=ONEWAY_FLAG))

    async def ask_names(self, code: RequestCode, header: Header | None = None, *, asked: str) -> Command:
        """The answer of the first name server that has one; the next one is tried when it does not come in time."""
        failures = []
        # One that is waited for after a failure comes last; the others keep their order, so that the last good one is first.
        order = sorted(self._nameservers, key=lambda address: self._links.waits_s(address) > 0)
        for address in order:
            try:
                answer = await self.ask(
                    address, code, header, asked=asked, timeout_s=self.timeouts.request_s / len(order)
                )
            except ResponseError:  # a "no" is an answer too: who gave it is asked first the next time
                self._prefer(address)
                raise
            except TrimtabError as error:
                failures.append(str(error))
                continue
            self._prefer(address)
            return answer
        raise NoRouteError(f"{asked}: no name server answered ({'; '.join(failures)})")

    def _prefer(self, nameserver: str) -> None:
        self._nameservers.remove(nameserver)
        self._nameservers.insert(0, nameserver)

    def waits_s(self, address: str) -> float:
        """How long until an address that failed is dialled again; 0 if nothing holds that up."""
        return self._links.waits_s(address)

    async def _connection_by(self, address: str, deadline: float, asked: str) -> PeerConnection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._links.to(address)
        except TimeoutError:
            raise ServerUnreachableError(
                f"{asked}: no connection to {address} in time; is it running there, and reachable from here?"
            ) from None

    # --- requests of brokers ----------------------------------------------------------------------------------

    def listen(self, code: RequestCode, listener: Listener) -> Callable[[], None]:
        """Shows requests of brokers to `listener`: one-way ones that tell something always, others until somebody gives True. Call what you get to end it."""
        return self._listeners.add(code, listener)

    def answer(
        self,
        connection: PeerConnection,
        request: Command,
        *,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        header: Header | None = None,
        body: bytes = b"",
    ) -> None:
        """Answers a request of a broker; a one-way one has no answer."""
        if request.is_oneway or not connection.is_open:
            return
        ext = {} if header is None else encode_ext(header)
        answer = Command(
            code=code, opaque=request.opaque, flag=RESPONSE_FLAG, ext=ext, remark=remark, body=body
        )
        connection.send(encode_command(answer))

    def _requested(self, connection: PeerConnection, command: Command) -> None:
        handler = self.on_request.get(command.code)
        if handler is not None:
            handler(connection, command)
        elif not self._listeners.pass_on(connection, command):
            self.answer(
                connection,
                command,
                code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"this client does not serve request {command.code}",
            )

    # --- routes -----------------------------------------------------------------------------------------------

    async def route(self, topic: str, *, may_create_queues: int = 0) -> Route:
        """The route of a topic. With `may_create_queues` a topic that does not exist gets the route that sending creates."""
        return await self._routes.of(topic, may_create_queues=may_create_queues)

    async def refresh_route(self, topic: str, *, may_create_queues: int = 0) -> Route:
        """Asks anew; everybody who asks at the same time shares the answer."""
        return await self._routes.refresh(topic, may_create_queues=may_create_queues)

    def refresh_route_soon(self, topic: str, *, may_create_queues: int = 0) -> None:
        """Asks anew while others go on; one that cannot be had keeps its old route."""

        async def refresh() -> None:
            try:
                await self._routes.refresh(topic, may_create_queues=may_create_queues)
            except TrimtabError as error:
                _log.info("route of %s not refreshed: %s", topic, error)

        if not self._is_closed:
            self._spawn(refresh())

    async def refresh_routes(self) -> None:
        """Asks anew for every topic in use; one that cannot be had keeps its old route."""
        await self._routes.refresh_all()

    async def _route_data(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfo(topic=topic)
        try:
            answer = await self.ask_names(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, header, asked=f"route of topic {topic!r}"
            )
        except TopicNotFoundError:
            return None
        return decode_body(TopicRouteData, answer.body)

    def _route_changed(self, before: Route | None, after: Route) -> None:
        for address in new_addresses(before, after, masters_only=not self.roles.consumers):
            if self._links.now(address) is not None:
                self._beat_soon(address)

    # --- heartbeats -------------------------------------------------------------------------------------------

    def broker_addresses(self) -> dict[str, str]:
        """The brokers of all topics in use, address to name: all of them for consumers, masters only without one."""
        return self._routes.broker_addresses(masters_only=not self.roles.consumers)

    def masters(self) -> dict[str, str]:
        """The masters of all topics in use, address to name."""
        return self._routes.broker_addresses(masters_only=True)

    def listed(self, address: str, group: str) -> Listed | None:
        """By the last heartbeat that a broker took; it lists this client while that connection stands."""
        heard = self._heard.get(address)
        if heard is None or group not in heard.listings:
            return None
        return Listed(heard.connection, heard.at_ms, heard.listings[group])

    def own_addresses(self, address: str) -> frozenset[str]:
        """From where this client has spoken to a broker lately, by its own word: one that is gone may be listed for a while."""
        self._note_own_address(address)
        since_ms = self.clock.monotonic_ms() - OWN_ADDRESS_MS
        return frozenset(
            own for (to, own), at_ms in self._own_addresses.items() if to == address and at_ms >= since_ms
        )

    def _note_own_address(self, address: str) -> None:
        connection = self._links.now(address)
        if connection is None or not connection.local_address:
            return
        key = address, connection.local_address
        self._own_addresses.pop(key, None)
        self._own_addresses[key] = self.clock.monotonic_ms()
        if len(self._own_addresses) > OWN_ADDRESSES_MAX:
            del self._own_addresses[next(iter(self._own_addresses))]

    async def send_heartbeats(self) -> None:
        """Tells every broker, all at once, what this process is."""
        addresses = self.broker_addresses()
        for table in (self._heard, self._introduced):
            for gone in [
                address for address in table.keys() - addresses.keys() if not self._links.now(address)
            ]:
                del table[gone]
        await self._beat(addresses)

    async def introduce_producers(self) -> None:
        """Tells the brokers that do not know of all producer groups yet. One that is not to be reached now is told when it is."""
        version = self.roles.producers_version
        strangers = [
            address
            for address in self.masters()
            if self._introduced.get(address) != (self._links.now(address), version)
            and not self._links.waits_s(address)
        ]
        if strangers:
            await self._beat(strangers)

    def introduce_producers_soon(self) -> None:
        """The same while others go on."""
        if not self._is_closed:
            self._spawn(self.introduce_producers())

    async def _beat(self, addresses: Iterable[str]) -> None:
        await asyncio.gather(*map(self._turns.beat, addresses))

    async def _tell_all(self, address: str) -> None:
        """One heartbeat to one broker; to be called in its turn."""
        heartbeats = [(encode_body(data), version) for data, version in self.roles.heartbeats(self.client_id)]
        groups, introduced = tuple(self.roles.consumers), self.roles.producers_version
        if not heartbeats or self._is_closed:
            return
        before = self._links.now(address)
        try:
            for body, version in heartbeats:
                await self.ask(address, RequestCode.HEART_BEAT, body=body, asked="heartbeat", version=version)
        except TrimtabError as error:
            _log.info("heartbeat to %s failed: %s", address, error)
            return
        finally:
            self._note_own_address(address)
        connection = self._links.now(address)
        if connection is not None and before in (None, connection):
            self._note_heard(address, connection, groups)
            self._introduced[address] = connection, introduced

    def _note_heard(self, address: str, connection: PeerConnection, groups: Iterable[str]) -> None:
        heard = self._heard.get(address)
        known = heard.listings if heard is not None and heard.connection is connection else {}
        # A group that is told of no longer keeps its number: its last consumer still hands over what it holds.
        new = {group: next(self._listing_numbers) for group in groups if group not in known}
        self._heard[address] = _Heard(connection, self.clock.monotonic_ms(), {**known, **new})

    async def introduce_anew(self, address: str, consumer_group: str) -> None:
        """Says goodbye and comes again: Apache's brokers keep of a connection what its first heartbeat for a group said of the client."""

        async def introduce() -> None:
            self._forget_listing(address, consumer_group)
            await self.unregister(address, consumer_group=consumer_group)
            await self._tell_all(address)

        await self._turns.take(address, introduce)

    def forget_listings(self, consumer_group: str) -> None:
        """The consumer of the group is done: how it was listed says nothing of the next one."""
        for address in self._heard:
            self._forget_listing(address, consumer_group)

    def _forget_listing(self, address: str, consumer_group: str) -> None:
        heard = self._heard.get(address)
        if heard is not None:
            listings = {group: number for group, number in heard.listings.items() if group != consumer_group}
            self._heard[address] = heard._replace(listings=listings)

    def _opened(self, connection: PeerConnection) -> None:
        """A broker knows its clients by their connections: a new connection must be introduced."""
        self._note_own_address(connection.address)
        if connection.address in self.broker_addresses():
            self._beat_soon(connection.address)

    def _beat_soon(self, address: str) -> None:
        if self._is_started and not self._is_closed:
            self._spawn(self._beat([address]))

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

    async def _goodbyes(self, groups: Iterable[tuple[str | None, str | None]]) -> None:
        reached = [address for address in self.broker_addresses() if self._links.now(address) is not None]
        goodbyes = [
            self._turns.take(
                address, partial(self.unregister, address, producer_group=producer, consumer_group=consumer)
            )
            for producer, consumer in groups
            for address in reached
        ]
        try:
            async with asyncio.timeout(self.timeouts.close_s):
                await asyncio.gather(*goodbyes)
        except TimeoutError:
            _log.warning("%s left before every broker was told", self)

    # --- tasks ------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _every(self, seconds: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except TrimtabError as error:
                _log.warning("%s: %s", self, error)
