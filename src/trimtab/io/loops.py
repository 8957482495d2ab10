"""Which event loop our own threads and programs run on."""

import asyncio
import threading
from concurrent.futures import Future


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop where that exists, else of asyncio."""
    try:
        import uvloop  # noqa: PLC0415 - there is none for Windows and PyPy
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def loop_in_a_thread(name: str) -> tuple[threading.Thread, asyncio.AbstractEventLoop]:
    """A thread that runs a loop until the loop is stopped, and its loop, running."""
    started: Future[asyncio.AbstractEventLoop] = Future()
    thread = threading.Thread(target=_live, args=(started,), name=name, daemon=True)
    thread.start()
    return thread, started.result()


def _live(started: "Future[asyncio.AbstractEventLoop]") -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        loop = runner.get_loop()
        loop.call_soon(started.set_result, loop)
        loop.run_forever()
