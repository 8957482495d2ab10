"""`Admin`: typed calls for what administrators read and change.

Each call asks all servers that are concerned at once. What could not be had from some of them stands in the answer's `failures`;
a question that nobody answered, and a change that anybody refused, is raised. The parts:

| file | what |
|---|---|
| `rows` | what calls answer |
| `reach` | asking many servers, each with its deadline |
| `topics`, `groups`, `offsets`, `messages`, `cluster`, `letters`, `overview` | the calls, a subject a file |
| `facts` | looking at a group twice, for a diagnosis |
| `traces`, `diagnosis` | PURE: reading trace records, and what may be wrong with a group |
"""

from types import TracebackType
from typing import Self

from trimtab.client.admin.overview import Overview
from trimtab.client.sessions import acquire_session, connection_options, release_session
from trimtab.io.clock import Clock
from trimtab.io.nameservers import resolve_nameserver
from trimtab.settings import Timeouts, Tls
from trimtab.wire.signing import Credentials

REQUEST_S = 5.0


class Admin(Overview):
    """Use it as `async with trimtab.Admin(nameserver="host:port") as admin`."""

    def __init__(
        self,
        *,
        nameserver: str | None = None,
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tls: Tls = None,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`nameserver` is that of the environment, NAMESRV_ADDR, if none is given."""
        options = connection_options(nameserver, credentials=credentials, tls=tls)
        self._options = options
        self._client_id = client_id
        self._wanted_timeouts = timeouts or Timeouts(request_s=REQUEST_S)
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Admin {self._options.nameserver}{' closed' if self._open_session is None else ''}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begins; `async with` does it."""
        if self._open_session is None:
            self._nameservers = tuple(resolve_nameserver(self._options.nameserver).split(";"))
            self._open_session = acquire_session(
                self._options, self._client_id, self._clock, timeouts=self._wanted_timeouts
            )

    async def close(self) -> None:
        """Ends; `async with` does it."""
        session, self._open_session = self._open_session, None
        if session is not None:
            await release_session(session)


__all__ = ["Admin"]
