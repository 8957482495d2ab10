"""Waiting for what others wait for too."""

import asyncio
from typing import TypeVar

from trimtab.errors import ClosedError

R = TypeVar("R")


async def shared(task: "asyncio.Task[R]") -> R:
    """Its result. Whoever stops waiting does not stop it; if it was stopped, its client was closed, and nobody else is cancelled for that."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        me = asyncio.current_task()
        if task.cancelled() and not (me is not None and me.cancelling()):
            raise ClosedError("the client was closed before the answer came") from None
        raise
