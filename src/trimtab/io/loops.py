"""Which event loop our own threads and programs run on."""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop where that exists, else of asyncio."""
    try:
        import uvloop  # noqa: PLC0415 - there is none for Windows and PyPy
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
