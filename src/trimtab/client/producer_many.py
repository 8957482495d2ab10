"""Many sends at once: as many as keep brokers busy, however many there are, and what became of each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from trimtab.errors import TrimtabError
from trimtab.model import Message, Receipt

AT_ONCE_MAX = 8_192
"""Enough for full batches of every queue; few enough that none waits long behind the others."""


async def outcomes_of(
    send: Callable[[Message], Awaitable[Receipt]], messages: Iterable[Message]
) -> list[Receipt | Exception]:
    """What became of each message. They are taken, and sent, in their order; what the iterable raises is raised when all taken are done."""
    outcomes: list[Receipt | Exception] = []
    left = iter(messages)
    broken: list[BaseException] = []

    def taken() -> tuple[int, Message] | None:
        if broken:
            return None
        try:
            message = next(left, None)
        except Exception as error:  # noqa: BLE001 - the user's own code
            broken.append(error)
            return None
        if message is None:
            return None
        outcomes.append(_NOT_YET)
        return len(outcomes) - 1, message

    async def work(first: tuple[int, Message]) -> None:
        turn: tuple[int, Message] | None = first
        while turn is not None:
            number, message = turn
            try:
                outcomes[number] = await send(message)
            except Exception as error:  # noqa: BLE001 - every outcome is told
                outcomes[number] = error
            turn = taken()

    async with asyncio.TaskGroup() as workers:
        while len(outcomes) < AT_ONCE_MAX and (turn := taken()) is not None:
            workers.create_task(work(turn))
    if broken:
        raise broken[0]
    return outcomes


_NOT_YET = TrimtabError("it is on its way")
