"""Many sends at once: as many as keep brokers busy, however many there are, and what became of each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from trimtab.client.lanes import Parcel
from trimtab.errors import ClosedError, NotSentError, TrimtabError
from trimtab.model import Message, Receipt

AT_ONCE_MAX = 8_192
"""Enough for full batches of every queue; few enough that none waits long behind the others."""


async def outcomes_of(
    send: Callable[[Message], Awaitable[Receipt]], messages: Iterable[Message]
) -> list[Receipt | Exception]:
    """What became of each message. They are taken, and sent, in their order; what the iterable raises is raised when all taken are done.

    Once the producer is closed no more are taken: there may be no end of them.
    """
    outcomes: list[Receipt | Exception] = []
    left = iter(messages)
    broken: list[BaseException] = []
    is_closed = False

    def taken() -> tuple[int, Message] | None:
        if broken or is_closed:
            return None
        try:
            message = next(left)
        except StopIteration:
            return None
        except Exception as error:  # noqa: BLE001 - the user's own code
            broken.append(error)
            return None
        outcomes.append(_NOT_YET)
        return len(outcomes) - 1, message

    async def work(first: tuple[int, Message]) -> None:
        nonlocal is_closed
        turn: tuple[int, Message] | None = first
        while turn is not None:
            number, message = turn
            try:
                outcomes[number] = await send(message)
            except Exception as error:  # noqa: BLE001 - every outcome is told
                outcomes[number] = error
                is_closed = is_closed or isinstance(error, ClosedError)
            turn = taken()

    async with asyncio.TaskGroup() as workers:
        while len(outcomes) < AT_ONCE_MAX and (turn := taken()) is not None:
            workers.create_task(work(turn))
    if broken:
        raise broken[0]
    return outcomes


def outcomes_after(
    receipts: Sequence[Receipt], parcels: Sequence[Parcel], error: Exception
) -> list[Receipt | Exception]:
    """What became of each message of a batch in parts: those stored, the part that failed, and those that were not tried any more. PURE."""
    failed, *left = parcels
    never_left = NotSentError("the part of the batch before this message failed, so it was not sent")
    return [
        *receipts,
        *(error for _ in failed.batch),
        *(never_left for parcel in left for _ in parcel.batch),
    ]


_NOT_YET = TrimtabError("it is on its way")
