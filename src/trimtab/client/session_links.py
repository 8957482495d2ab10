"""The connections of a session: one per address, opened when first needed, opened anew with growing pauses.

Everybody who needs an address while it is being dialled waits for the same attempt. After a failure the next attempt waits, longer each
time and by chance a little shorter or longer, so that a dead server is not hammered and a server that comes back is not met by
all of its clients at once. A server that takes connections and closes them without a word counts as failing too.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from trimtab.client.shared_tasks import shared
from trimtab.errors import ClosedError
from trimtab.io.chance import Chance
from trimtab.io.connection import OnRequest, PeerConnection

PAUSE_MIN_S = 0.1
PAUSE_MAX_S = 5.0
TROUBLES_MAX = 10_000
"""Addresses whose failures are remembered; brokers that move leave old ones behind."""
CLOSE_S_MAX = 1.0
"""How long the other side may take to say goodbye."""


def pause_s(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row, half of it left to chance. PURE."""
    if failures <= 0:
        return 0.0
    longest = min(PAUSE_MAX_S, PAUSE_MIN_S * 2.0 ** min(failures - 1, 16))
    return longest * (0.5 + chance / 2)


@dataclass(slots=True)
class _Trouble:
    failures: int = 0
    not_before: float = 0.0


class Links:
    """See the module's own words."""

    def __init__(
        self,
        chance: Chance,
        *,
        on_request: OnRequest,
        on_open: Callable[[PeerConnection], None],
        tls: ssl.SSLContext | None,
        connect_s_max: float,
        silent_s_max: float,
    ) -> None:
        self._chance = chance
        self._on_request = on_request
        self._on_open = on_open
        self._tls = tls
        self._connect_s_max = connect_s_max
        self._silent_s_max = silent_s_max
        self._opening: dict[str, asyncio.Task[PeerConnection]] = {}
        self._open: dict[str, PeerConnection] = {}
        self._troubles: dict[str, _Trouble] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def now(self, address: str) -> PeerConnection | None:
        """The connection to an address, if it stands."""
        connection = self._open.get(address)
        return connection if connection is not None and connection.is_open else None

    async def to(self, address: str) -> PeerConnection:
        """The connection to an address, opened if need be. Who waits bounds the waiting."""
        connection = self._open.get(address)
        if connection is not None and connection.is_open:
            return connection
        if self._is_closed:
            raise ClosedError("the client is closed")
        opening = self._opening.get(address)
        if opening is None:
            opening = self._opening[address] = asyncio.create_task(self._dial(address))
            opening.add_done_callback(_look_at)
        return await shared(opening)

    def waits_s(self, address: str) -> float:
        """How long until the address is dialled again; 0 if nothing holds that up."""
        trouble = self._troubles.get(address)
        if trouble is None or self.now(address) is not None:
            return 0.0
        return max(0.0, trouble.not_before - asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Closes everything; nobody gets a connection any more."""
        self._is_closed = True
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = list(self._open.values())
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.ended(CLOSE_S_MAX) for connection in connections))

    async def _dial(self, address: str) -> PeerConnection:
        try:
            await asyncio.sleep(self.waits_s(address))
            connection = await PeerConnection.open(
                address,
                on_request=self._on_request,
                on_lost=self._lost,
                tls=self._tls,
                connect_s_max=self._connect_s_max,
                silent_s_max=self._silent_s_max,
            )
        except Exception:
            self._failed(address)
            raise
        finally:
            del self._opening[address]
        self._open[address] = connection
        self._on_open(connection)
        return connection

    def _lost(self, connection: PeerConnection) -> None:
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
        if connection.has_answered:
            self._troubles.pop(connection.address, None)
        else:
            self._failed(connection.address)

    def _failed(self, address: str) -> None:
        if address not in self._troubles and len(self._troubles) >= TROUBLES_MAX:
            del self._troubles[next(iter(self._troubles))]
        trouble = self._troubles.setdefault(address, _Trouble())
        trouble.failures += 1
        pause = pause_s(trouble.failures, self._chance.random())
        trouble.not_before = asyncio.get_running_loop().time() + pause


def _look_at(opening: "asyncio.Task[PeerConnection]") -> None:
    """Whoever waited may have gone; a failure that nobody hears of is not an unretrieved one."""
    if not opening.cancelled():
        opening.exception()
