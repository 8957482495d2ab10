"""An event loop whose time is virtual: sleeping costs nothing, and a program that waits for nothing is an error at once.

When nothing is left to do now, time jumps to the next timer. Connections are made by the `Network` that it is given. What other
threads would do is done here and now, since a thread would bring real time back in.
"""

import asyncio
import heapq
import selectors
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import TrimtabError
from trimtab.sim.shells.process import BEGIN_S, PROCESS, VirtualProcess

if TYPE_CHECKING:
    from trimtab.sim.shells.network import Network

JUMP_S_MAX: Final = 3_600.0
"""Nobody here waits for longer: whoever would, waits for something that never comes."""


class StuckError(TrimtabError):
    """Every task waits, and nothing will ever wake one."""


class _VirtualSelector(selectors.SelectSelector):
    """Never waits for a socket: the time that it should wait passes at once."""

    now_s = BEGIN_S

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout > JUMP_S_MAX:
            raise StuckError(f"nothing is left to do after {self.now_s - BEGIN_S:.3f} virtual s")
        self.now_s += max(0.0, timeout)
        return []


class _Soon(asyncio.Handle):
    """A callback that belongs to a process."""

    __slots__ = ("process",)
    process: VirtualProcess

    def _run(self) -> None:
        self.process.due(self._do)

    def _do(self) -> None:
        if not self.cancelled():
            super()._run()


class _Timer(asyncio.TimerHandle):
    """A timer that belongs to a process."""

    __slots__ = ("process",)
    process: VirtualProcess

    def _run(self) -> None:
        self.process.due(self._do)

    def _do(self) -> None:
        if not self.cancelled():
            super()._run()


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module's own words."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)
        self.network: Network | None = None

    @property
    def world_s(self) -> float:
        """The time that is nobody's own."""
        return self._virtual.now_s

    def time(self) -> float:
        process = PROCESS.get(None)
        return self._virtual.now_s if process is None else process.local_s(self._virtual.now_s)

    # --- callbacks --------------------------------------------------------------------------------------------

    def _call_soon(self, callback: Callable[..., Any], args: Any, context: Context | None) -> asyncio.Handle:
        """Every callback of asyncio comes this way; ours know their process."""
        context = copy_context() if context is None else context
        process = context.get(PROCESS)
        handle: asyncio.Handle
        if process is None:
            handle = asyncio.Handle(callback, args, self, context)
        else:
            handle = _Soon(callback, args, self, context)
            handle.process = process
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """`when` is in the time of the process that the callback belongs to."""
        context = copy_context() if context is None else context
        process = context.get(PROCESS)
        at_s = when if process is None else process.world_s(when)
        return self.call_at_world(at_s, callback, *args, context=context)

    def call_at_world(
        self, at_s: float, callback: Callable[..., Any], *args: Any, context: Context
    ) -> asyncio.TimerHandle:
        """In the world's time."""
        process = context.get(PROCESS)
        timer: asyncio.TimerHandle
        if process is None:
            timer = asyncio.TimerHandle(at_s, callback, args, self, context)
        else:
            timer = _Timer(at_s, callback, args, self, context)
            timer.process = process
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio's own call_at does
        return timer

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002 - there is no other thread
        func: Callable[..., Any],
        *args: Any,
    ) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future

    # --- connections ------------------------------------------------------------------------------------------

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: object
    ) -> tuple[asyncio.Transport, Any]:
        return await self._net.connect(protocol_factory, f"{host}:{port}")

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int = 0, **_: object
    ) -> Any:
        return self._net.listen(protocol_factory, host, port)

    @property
    def _net(self) -> "Network":
        assert self.network is not None, "the loop was given no network"
        return self.network
