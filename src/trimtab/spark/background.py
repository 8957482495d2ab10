"""One event loop in a thread of its own per Python process, with its connections.

Spark keeps Python workers between tasks and batches, and with them this module: a task finds the connections of the one before it.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as WaitedTooLong
from pathlib import Path
from typing import Any, TypeVar

from trimtab.client.session import Session
from trimtab.client.sessions import acquire_session
from trimtab.errors import RequestTimeoutError
from trimtab.io.loops import loop_in_a_thread
from trimtab.settings import ConnectionOptions, Timeouts
from trimtab.spark.access import Access
from trimtab.wire.signing import Credentials

T = TypeVar("T")


class Background:
    """The loop's thread and the sessions on it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._sessions: dict[Access, Session] = {}
        _, self.loop = loop_in_a_thread("trimtab-spark")

    def run(self, coroutine: Coroutine[Any, Any, T], *, asked: str, seconds_max: float) -> T:
        """What a coroutine gives, or an error when that takes too long: Spark itself would wait for ever."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(seconds_max)
        except WaitedTooLong:
            if future.done():
                raise  # it is what the coroutine raised
            future.cancel()
            raise RequestTimeoutError(f"{asked} took more than {seconds_max:g} s") from None

    async def session(self, access: Access) -> Session:
        """The session for a cluster; to be called on the loop. It lives as long as the process."""
        session = self._sessions.get(access)
        if session is None:
            session = acquire_session(connection_options(access), timeouts=timeouts(access))
            self._sessions[access] = session
            await session.start()
        return session


_lock = threading.Lock()
_running: Background | None = None


def background() -> Background:
    """The one of this process; one that came along through a fork has no thread."""
    global _running  # noqa: PLW0603 - a worker process has one, and Spark gives us no other place to keep it
    with _lock:
        if _running is None or _running.pid != os.getpid():
            _running = Background()
        return _running


def connection_options(access: Access) -> ConnectionOptions:
    """As clients want them."""
    credentials = None
    if access.access_key is not None and access.secret_key is not None:
        credentials = Credentials(access.access_key, access.secret_key, access.security_token)
    tls = Path(access.tls_ca_file) if access.tls and access.tls_ca_file else access.tls or None
    return ConnectionOptions(nameserver=access.nameserver, credentials=credentials, tls=tls)


def timeouts(access: Access) -> Timeouts:
    """As clients want them."""
    seconds = access.request_ms / 1000
    return Timeouts(connect_s=seconds, request_s=seconds)


def patience_s(access: Access) -> float:
    """How long a question may take with all of its tries."""
    once_ms = 3 * access.request_ms + access.retry_ms
    return (access.retries + 1) * once_ms / 1000 + 5.0
