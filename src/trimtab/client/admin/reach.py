"""How an admin reaches servers: all that are concerned at once, each with a deadline of its own.

One server that hangs delays nobody: the others' answers are there when they come, and its own place is taken by a
`BrokerFailure`. A question that every server failed to answer is raised, and so is a change that any of them refused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from trimtab.client.admin.rows import BrokerFailure, BrokerPlace
from trimtab.client.session import Session
from trimtab.errors import (
    BrokerNotFoundError,
    ClosedError,
    ConnectionLostError,
    NoRouteError,
    RequestTimeoutError,
    ServerUnreachableError,
    SettingsError,
    TopicNotFoundError,
    TrimtabError,
)
from trimtab.wire.bodies import BrokerData, ClusterInfo, TopicRouteData
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.base import Header
from trimtab.wire.headers.names import GetRouteInfo

T = TypeVar("T")

SLOW_FACTOR = 3
"""For what a broker must ask others, or count: as many times longer."""
ASKED_AT_ONCE_MAX = 256
"""Questions that one call has under way."""


class NoSuchTopicError(NoRouteError):
    """No name server knows the topic."""


class NoSuchGroupError(TrimtabError):
    """No broker knows the group."""


class NoSuchAccountError(TrimtabError):
    """No broker has the account."""


class PartlyDoneError(TrimtabError):
    """A change was made at some servers and failed at others."""

    indeterminate = True

    def __init__(self, asked: str, done: tuple[str, ...], failures: tuple[BrokerFailure, ...]) -> None:
        self.asked = asked
        self.done = done
        self.failures = failures
        failed = "; ".join(f"{failure.broker}: {failure.error}" for failure in failures)
        super().__init__(
            f"{asked}: done at {', '.join(done)}, not at {len(failures)} other(s): {failed}; do it again"
        )


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """The answers by server, and who did not give one."""

    asked: str
    found: dict[str, T]
    failures: tuple[BrokerFailure, ...]
    errors: tuple[TrimtabError, ...]

    def or_raise(self) -> "Gathered[T]":
        """Itself, if anybody answered or nobody was asked."""
        if self.errors and not self.found:
            raise self.errors[0]
        return self

    def all_done(self) -> "Gathered[T]":
        """Itself, if everybody did what was asked."""
        if self.errors and self.found:
            raise PartlyDoneError(self.asked, tuple(self.found), self.failures) from self.errors[0]
        return self.or_raise()


def is_unreachable(error: Exception) -> bool:
    """Whether a server could not be spoken to, rather than refused."""
    return isinstance(error, ServerUnreachableError | ConnectionLostError | RequestTimeoutError)


class Reach:
    """What the parts of `Admin` stand on."""

    _open_session: Session | None = None
    _nameservers: tuple[str, ...] = ()

    @property
    def _session(self) -> Session:
        if self._open_session is None:
            raise ClosedError("the admin is not open: use it as `async with trimtab.Admin(...) as admin`")
        return self._open_session

    @property
    def _slow_s(self) -> float:
        return self._session.timeouts.request_s * SLOW_FACTOR

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        asked: str,
        timeout_s: float | None = None,
    ) -> Command:
        return await self._session.ask(address, code, header, body, asked=asked, timeout_s=timeout_s)

    async def _each(
        self, asked: str, places: Mapping[str, str], ask: Callable[[str, str], Awaitable[T]]
    ) -> Gathered[T]:
        """`ask(name, address)` for every place, all at once."""
        room = asyncio.Semaphore(ASKED_AT_ONCE_MAX)
        found: dict[str, T] = {}
        failed: dict[str, TrimtabError] = {}

        async def one(name: str, address: str) -> None:
            async with room:
                try:
                    found[name] = await ask(name, address)
                except TrimtabError as error:
                    failed[name] = error

        await asyncio.gather(*(one(name, address) for name, address in places.items()))
        failures = tuple(
            BrokerFailure(
                broker=name,
                address=places[name],
                error=str(failed[name]),
                unreachable=is_unreachable(failed[name]),
            )
            for name in places
            if name in failed
        )
        return Gathered(
            asked,
            {name: found[name] for name in places if name in found},
            failures,
            tuple(failed[name] for name in places if name in failed),
        )

    # --- where things are ---------------------------------------------------------------------------------------

    async def _places(self) -> tuple[BrokerPlace, ...]:
        answer = await self._ask_names(RequestCode.GET_BROKER_CLUSTER_INFO, asked="list of brokers")
        info = decode_body(ClusterInfo, answer.body)
        return places_of(tuple(info.broker_addr_table.values()))

    async def _masters(
        self, brokers: tuple[str, ...] | list[str] | None = None, cluster: str | None = None
    ) -> dict[str, str]:
        """Broker name to the address of its master: those named, or all of a cluster, or all."""
        places = await self._places()
        if cluster is not None:
            places = tuple(place for place in places if place.cluster == cluster)
            if not places:
                raise SettingsError(f"there is no cluster {cluster!r}; `trimtab cluster info` lists them")
        masters = {place.broker: place.master for place in places if place.master is not None}
        if brokers is None:
            if not masters:
                raise NoRouteError("no broker is registered at the name server; is one running?")
            return masters
        missing = [name for name in brokers if name not in masters]
        if missing:
            raise BrokerNotFoundError(
                asked=f"master of {', '.join(missing)}",
                peer="the name server",
                remark=f"there are {', '.join(masters) or 'none'}",
            )
        return {name: masters[name] for name in brokers}

    async def _brokers_of(self, topic: str) -> dict[str, str]:
        """The brokers that have a topic: the master's address, else a slave's."""
        data = await self._route_data(topic)
        return {place.broker: place.any_address for place in places_of(data.broker_datas)}

    async def _route_data(self, topic: str) -> TopicRouteData:
        """Asked anew each time, and not kept: an admin's topics are none that the session should look after."""
        asked = f"route of topic {topic!r}"
        try:
            answer = await self._ask_names(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic), asked=asked
            )
        except TopicNotFoundError as error:
            raise NoSuchTopicError(
                f"topic {topic!r} does not exist: {', '.join(self._nameservers)} does not know it"
            ) from error
        return decode_body(TopicRouteData, answer.body)

    async def _ask_names(self, code: RequestCode, header: Header | None = None, *, asked: str) -> Command:
        return await self._session.ask_names(code, header, asked=asked)

    async def _each_nameserver(self, asked: str, ask: Callable[[str, str], Awaitable[T]]) -> Gathered[T]:
        return await self._each(asked, {address: address for address in self._nameservers}, ask)


def places_of(brokers: tuple[BrokerData, ...]) -> tuple[BrokerPlace, ...]:
    """The brokers of a body, by name; those without an address are left out."""
    return tuple(
        BrokerPlace(
            broker=data.broker_name,
            cluster=data.cluster or "",
            addresses=dict(sorted(data.broker_addrs.items())),
        )
        for data in sorted(brokers, key=lambda data: data.broker_name)
        if data.broker_addrs
    )
