"""`trimtab message consume` and `tail`: all queues of a topic at once, for nobody's account."""

import sys
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.cli.moments import Place
from trimtab.errors import SettingsError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable

    from trimtab.client.admin import Admin
    from trimtab.client.admin.rows import FoundMessage, QueueRange

WAIT_MS = 5_000
AHEAD_MAX = 1_000
"""Messages that were read and not yet printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to read."""

    topic: str
    start: Place
    expression: str = "*"
    expression_type: str = "TAG"
    queue: str | None = None
    """`broker-a:0`; None for all."""
    count: int | None = None
    follow: bool = False


async def print_messages(admin: "Admin", wanted: Wanted, line: "Callable[[FoundMessage], bytes]") -> int:
    """Prints messages as they come; gives how many."""
    out = sys.stdout.buffer
    printed = 0
    async with aclosing(messages_of(admin, wanted)) as found:
        async for message in found:
            out.write(line(message))
            out.flush()
            printed += 1
            if wanted.count is not None and printed >= wanted.count:
                break
    return printed


async def messages_of(admin: "Admin", wanted: Wanted) -> "AsyncGenerator[FoundMessage]":
    """Messages of all queues as they come; it ends when every queue was read to where it ended at first, unless it follows."""
    import asyncio

    queues = [
        row
        for row in (await admin.topic_queues(wanted.topic)).queues
        if wanted.queue in (None, f"{row.broker}:{row.queue_id}")
    ]
    if not queues:
        raise SettingsError(
            f"topic {wanted.topic!r} has no queue {wanted.queue}; write it like broker-a:0, `trimtab topic queues` lists them"
        )
    shelf: asyncio.Queue[FoundMessage | Exception | None] = asyncio.Queue(AHEAD_MAX)
    readers = [asyncio.create_task(_read(admin, row, wanted, shelf)) for row in queues]
    left = len(readers)
    try:
        while left:
            item = await shelf.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _read(
    admin: "Admin",
    row: "QueueRange",
    wanted: Wanted,
    shelf: "asyncio.Queue[FoundMessage | Exception | None]",
) -> None:
    try:
        offset = await _start(admin, row, wanted.start)
        address = (await admin.topic_route(row.topic)).brokers
        place = next(one.any_address for one in address if one.broker == row.broker)
        while wanted.follow or offset < row.max_offset:
            found = await admin.read(
                row.queue,
                offset,
                expression=wanted.expression,
                expression_type=wanted.expression_type,
                wait_ms=WAIT_MS if wanted.follow else 0,
                address=place,
            )
            for message in found.messages:
                if wanted.follow or message.queue_offset < row.max_offset:
                    await shelf.put(message)
            if found.next_offset <= offset and not wanted.follow:
                break
            offset = found.next_offset
        await shelf.put(None)
    except Exception as error:  # noqa: BLE001 - handed to whoever reads
        await shelf.put(error)


async def _start(admin: "Admin", row: "QueueRange", start: Place) -> int:
    if start.kind == "begin":
        return row.min_offset
    if start.kind == "end":
        return row.max_offset
    if start.kind == "time":
        return await admin.offset_at(row.queue, start.value)
    return max(row.min_offset, min(start.value, row.max_offset))
