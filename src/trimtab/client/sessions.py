"""One session for all clients that can share one.

Clients of one event loop with the same name servers, credentials, TLS and timeouts share a session, and with it one connection per
address. A group of consumers appears once in a session, because brokers know a member by its client id: a second consumer of the
same group gets a session with an id of its own. An id that the user gave is used as it is.

    session = acquire_session(options, client_id=None, clock=clock, chance=chance, timeouts=timeouts, consumer_group="billing")
    await session.start()                                          # begins once, whoever calls it first
    ...
    await release_session(session, consumer_group="billing")       # takes the group back; the last one closes the session
"""

import asyncio
import os
import ssl
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from trimtab.client.identity import new_client_id
from trimtab.client.session import Session
from trimtab.errors import SettingsError
from trimtab.io.chance import Chance, seeded_chance
from trimtab.io.clock import Clock, SystemClock
from trimtab.io.nameservers import resolve_nameserver
from trimtab.io.tls import client_context
from trimtab.settings import ConnectionOptions, Intervals, Timeouts, Tls
from trimtab.wire.signing import Credentials

_Key: TypeAlias = tuple[object, ...]


@dataclass(slots=True)
class _Shared:
    session: Session
    loop: asyncio.AbstractEventLoop
    key: _Key
    has_own_id: bool
    users: int = 0
    groups: set[str] = field(default_factory=set)


_lock = threading.Lock()
_shared: list[_Shared] = []


def connection_options(
    nameserver: str | None = None,
    *,
    credentials: Credentials | None = None,
    tls: Tls = None,
    namespace: str | None = None,
    unit_name: str | None = None,
) -> ConnectionOptions:
    """The options with the environment's name server where none is given."""
    nameserver = nameserver or os.environ.get("NAMESRV_ADDR")
    if not nameserver:
        raise SettingsError("no name server is given: pass nameserver='host:port' or set NAMESRV_ADDR")
    return ConnectionOptions(
        nameserver=nameserver, credentials=credentials, tls=tls, namespace=namespace, unit_name=unit_name
    )


def acquire_session(
    options: ConnectionOptions,
    client_id: str | None = None,
    clock: Clock | None = None,
    chance: Chance | None = None,
    timeouts: Timeouts | None = None,
    *,
    intervals: Intervals | None = None,
    consumer_group: str | None = None,
) -> Session:
    """A session for one more client of the running loop. Give it back with `release_session`."""
    loop = asyncio.get_running_loop()
    timeouts = timeouts or Timeouts()
    key = _key(options, client_id, clock, timeouts, intervals or Intervals())
    with _lock:
        _shared[:] = [shared for shared in _shared if not shared.loop.is_closed()]
        found = _find(loop, key, consumer_group)
        if found is None:
            session = _new_session(options, client_id, clock, chance, timeouts, intervals)
            found = _Shared(session, loop, key, client_id is not None)
            _shared.append(found)
        found.users += 1
        if consumer_group is not None:
            found.groups.add(consumer_group)
        return found.session


async def release_session(
    session: Session, *, producer_group: str | None = None, consumer_group: str | None = None
) -> None:
    """Gives a session back. What the client was to the brokers is taken back; after the last client the session closes."""
    with _lock:
        found = next((shared for shared in _shared if shared.session is session), None)
        is_last = found is None or found.users == 1
        if found is not None:
            found.users -= 1
            if is_last:
                _shared.remove(found)
    if is_last:
        await session.close()
        return
    await session.leave(producer_group=producer_group, consumer_group=consumer_group)
    if found is not None and consumer_group is not None:
        session.forget_listings(consumer_group)
        found.groups.discard(consumer_group)


def tls_context(tls: Tls) -> ssl.SSLContext | None:
    """What connections use for a choice of TLS."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is None or tls is False:
        return None
    return client_context(None if tls is True else Path(tls))


def _find(loop: asyncio.AbstractEventLoop, key: _Key, consumer_group: str | None) -> _Shared | None:
    for shared in _shared:
        if shared.loop is not loop or shared.key != key:
            continue
        if consumer_group is None or consumer_group not in shared.groups:
            return shared
        if shared.has_own_id:
            raise SettingsError(
                f"a consumer of group {consumer_group!r} with client id {shared.session.client_id!r} is here already: give each its own id"
            )
    return None


def _key(
    options: ConnectionOptions,
    client_id: str | None,
    clock: Clock | None,
    timeouts: Timeouts,
    intervals: Intervals,
) -> _Key:
    # The time for a send is the producer's own matter; the system's clock is the same for all.
    own_clock = None if clock is None or isinstance(clock, SystemClock) else id(clock)
    session_timeouts = replace(timeouts, send_s=1.0)
    return (
        options.nameserver,
        options.credentials,
        options.tls,
        options.unit_name,
        client_id,
        own_clock,
        session_timeouts,
        intervals,
    )


def _new_session(
    options: ConnectionOptions,
    client_id: str | None,
    clock: Clock | None,
    chance: Chance | None,
    timeouts: Timeouts,
    intervals: Intervals | None,
) -> Session:
    chance = chance or seeded_chance()
    return Session(
        resolve_nameserver(options.nameserver),
        client_id or new_client_id(chance, options.unit_name),
        clock or SystemClock(),
        timeouts=timeouts,
        intervals=intervals,
        tls=tls_context(options.tls),
        credentials=options.credentials,
        chance=chance,
    )
