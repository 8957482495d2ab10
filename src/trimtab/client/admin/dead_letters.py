"""Reading the dead letters of a group. A broker that does not answer is named beside what the others have."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.client.admin.letters import DLQ_PREFIX
from trimtab.client.admin.reach import NoSuchTopicError, is_unreachable
from trimtab.client.admin.rows import BrokerFailure, FoundMessage, QueueRange, TopicQueues
from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from trimtab.client.admin import Admin

READ_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class FoundLetters:
    """Letters, and the brokers whose letters are not among them."""

    messages: list[FoundMessage]
    failures: tuple[BrokerFailure, ...]


async def letter_queues(admin: "Admin", group: str) -> TopicQueues:
    """Where they lie. No queues where the group never had one; an error where there is no such group."""
    try:
        return await admin.topic_queues(DLQ_PREFIX + group)
    except NoSuchTopicError:
        await admin.group_settings(group)
        return TopicQueues(topic=DLQ_PREFIX + group, queues=())


async def letters_in(admin: "Admin", queues: Iterable[QueueRange]) -> AsyncGenerator[FoundMessage]:
    """The letters in these queues, each from its oldest on, to where the queues end now. Only a few are in memory."""
    for row in queues:
        offset = row.min_offset
        while offset < row.max_offset:
            read = await admin.read_anyway(row.queue, offset, READ_AT_ONCE)
            for message in read.messages:
                if message.queue_offset < row.max_offset:
                    yield message
            if read.next_offset <= offset:
                break
            offset = read.next_offset


async def oldest_letters(admin: "Admin", queues: TopicQueues, count: int) -> FoundLetters:
    """The oldest ones, from all queues at once."""
    found: list[FoundMessage] = []
    failed = {one.broker: one for one in queues.failures}

    async def read(row: QueueRange) -> None:
        taken = 0
        try:
            async with aclosing(letters_in(admin, (row,))) as letters:
                async for message in letters:
                    found.append(message)
                    taken += 1
                    if taken >= count:
                        break
        except TrimtabError as error:
            failed[row.broker] = BrokerFailure(
                broker=row.broker, address="", error=str(error), unreachable=is_unreachable(error)
            )

    await asyncio.gather(*(read(row) for row in queues.queues))
    found.sort(key=lambda message: message.store_timestamp)
    return FoundLetters(found[:count], tuple(failed.values()))
