"""The clients without await, for programs that have no event loop.

One thread per process runs one loop for all of them. It starts with the first client and ends when the program does. A call hands a
coroutine to that loop and waits; so clients may be used from any number of threads, but not from within the loop itself (a
handler that runs in it must be awaited code and use the asyncio clients).

How to give a client its blocking face, one line for each method:

    class Producer(Face[client.Producer]):
        made = client.Producer                      # what is made, with the same arguments
        send = waits(client.Producer.send)          # a coroutine method: waits for the result
        brokers = told(client.Producer.brokers)     # a plain method: runs in the loop, where the client lives
        group = shown(lambda client: client.group)  # an attribute or property

`with` starts and closes it, or `start()` and `close()` do. Types follow from the asyncio client.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from trimtab.errors import ClosedError
from trimtab.io.loops import loop_in_a_thread

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Client")

STOP_S_MAX = 5.0


class Client(Protocol):
    """What a client must have to get a blocking face."""

    async def start(self) -> None:
        """Begins."""

    async def close(self) -> None:
        """Ends, within a bounded time."""


class LoopThread:
    """The thread with the loop in it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._thread, self._loop = loop_in_a_thread("trimtab-blocking")

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """The result of a coroutine, waited for. A wait that is interrupted cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise ClosedError(
                "this would wait for itself: within the loop use the asyncio client and await it"
            )
        if not self._thread.is_alive():
            work.close()
            raise ClosedError("the blocking clients were stopped: make a new one")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Ends the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S_MAX)


class _Running:
    """The loop thread of this process, and the clients in it that are open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._open: dict[int, Client] = {}

    def thread(self) -> LoopThread:
        with self._lock:
            # A forked child has the object but not the thread.
            if self._thread is None or self._thread.pid != os.getpid():
                self._thread = LoopThread()
                self._open = {}
                atexit.register(self.stop)
            return self._thread

    def opened(self, client: Client) -> None:
        with self._lock:
            self._open[id(client)] = client

    def closed(self, client: Client) -> bool:
        with self._lock:
            return self._open.pop(id(client), None) is not None

    def stop(self) -> None:
        """Closes what is still open and ends the thread; the next client starts another one."""
        with self._lock:
            thread, self._thread = self._thread, None
            clients, self._open = list(self._open.values()), {}
        atexit.unregister(self.stop)
        if thread is None or thread.pid != os.getpid():
            return
        for client in clients:
            thread.run(client.close())
        thread.stop()


_running = _Running()
stop = _running.stop


class Face(Generic[C]):
    """A client without await. See the module's own words."""

    made: Callable[..., Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        """Takes what the asyncio client takes."""
        self._thread = _running.thread()
        self.client = cast("C", self._thread.run(_made(type(self).made, args, options)))
        """The asyncio client behind this face; it lives in the loop of another thread."""

    def __repr__(self) -> str:
        return f"<blocking {self.client!r}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begins; `with` does it."""
        self._thread.run(self.client.start())
        _running.opened(self.client)

    def close(self) -> None:
        """Ends; `with` does it."""
        if _running.closed(self.client):
            self._thread.run(self.client.close())

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine in the client's loop and waits for its result."""
        return self._thread.run(work)


async def _made(make: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return make(*args, **options)


class waits(Generic[P, R]):  # noqa: N801 - it stands where a function stands
    """A coroutine method of the asyncio client, as a method that waits."""

    def __init__(self, method: Callable[Concatenate[Any, P], Awaitable[R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face[Any], owner: type) -> Callable[P, R]: ...
    def __get__(self, face: Face[Any] | None, owner: type) -> Self | Callable[P, R]:
        if face is None:
            return self

        def call(*args: P.args, **options: P.kwargs) -> R:
            async def run() -> R:
                return await self._method(face.client, *args, **options)

            return face.run(run())

        call.__doc__ = self.__doc__
        return call


class told(Generic[P, R]):  # noqa: N801 - it stands where a function stands
    """A plain method of the asyncio client, as a method that runs in its loop."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face[Any], owner: type) -> Callable[P, R]: ...
    def __get__(self, face: Face[Any] | None, owner: type) -> Self | Callable[P, R]:
        if face is None:
            return self

        def call(*args: P.args, **options: P.kwargs) -> R:
            async def run() -> R:
                return self._method(face.client, *args, **options)

            return face.run(run())

        call.__doc__ = self.__doc__
        return call


class shown(Generic[R]):  # noqa: N801 - it stands where a property stands
    """An attribute of the asyncio client."""

    def __init__(self, get: Callable[[Any], R]) -> None:
        self._get = get

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face[Any], owner: type) -> R: ...
    def __get__(self, face: Face[Any] | None, owner: type) -> Self | R:
        return self if face is None else self._get(face.client)
