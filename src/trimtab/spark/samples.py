"""A few messages read on the driver: to find an exact offset by time, and to know how large messages are.

A broker's own answer about a time depends on its version: 4.9 gives the nearest message, or any of several with that time. So the
answer is only where the search begins; the store times of messages decide.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from trimtab.client.session import Session
from trimtab.errors import (
    ProtocolError,
    PullNotFoundError,
    PullOffsetMovedError,
    PullRetryImmediatelyError,
    TrimtabError,
)
from trimtab.model import MessageQueue
from trimtab.spark.losses import Kept
from trimtab.wire.codes import RequestCode
from trimtab.wire.headers.consume import PullMessage
from trimtab.wire.messages import StoredMessage, decode_messages

TOOLS_GROUP = "TOOLS_CONSUMER"
"""Every broker has it, so that reading needs no group of its own."""
_SUBSCRIPTION_FLAG = 4
SAMPLE_MESSAGES = 32
_PULLED_AT_ONCE_MAX = 64

StoreTimeAt = Callable[[int], Awaitable[int | None]]
"""When the message at an offset was stored; None if it is gone."""


async def first_at(at_ms: int, kept: Kept, hint: int, store_time_at: StoreTimeAt) -> int:
    """The offset of the first message that was stored at that time or later; `kept.next` if there is none."""
    low, high = kept.first, kept.next
    at = hint
    while low < high:
        at = min(max(at, low), high - 1)
        stored_ms = await store_time_at(at)
        if stored_ms is None or stored_ms < at_ms:
            low = at + 1
            at = low if at == hint else (low + high) // 2
        else:
            high = at
            at = high - 1 if at == hint else (low + high) // 2
    return low


@dataclass(frozen=True, slots=True)
class Sampler:
    """Pulls few messages of a queue, without a filter."""

    session: Session
    group: str
    timeout_s: float

    async def pull(self, queue: MessageQueue, address: str, offset: int, count: int) -> list[StoredMessage]:
        """The messages at an offset; none if it is not there."""
        header = PullMessage(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=_SUBSCRIPTION_FLAG,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
        )
        asked = f"message {offset} of {queue}"
        try:
            answer = await self.session.ask(
                address, RequestCode.PULL_MESSAGE, header, asked=asked, timeout_s=self.timeout_s
            )
        except (PullNotFoundError, PullOffsetMovedError, PullRetryImmediatelyError):
            return []
        return decode_messages(answer.body)

    async def offset_at(self, queue: MessageQueue, address: str, at_ms: int, kept: Kept, hint: int) -> int:
        """See `first_at`."""

        async def store_time_at(offset: int) -> int | None:
            messages = await self.pull(queue, address, offset, 1)
            return messages[0].store_timestamp if messages else None

        return await first_at(at_ms, kept, hint, store_time_at)

    async def mean_bytes(
        self, places: Mapping[MessageQueue, str], offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, float]:
        """How large a message is for who reads it, from a handful of each queue."""
        room = asyncio.Semaphore(_PULLED_AT_ONCE_MAX)

        async def one(queue: MessageQueue, address: str) -> float:
            async with room:
                messages = await self.pull(queue, address, offsets[queue], SAMPLE_MESSAGES)
            return sum(map(_read_bytes, messages)) / max(len(messages), 1)

        sizes = await asyncio.gather(*(one(queue, address) for queue, address in places.items()))
        return {queue: size for queue, size in zip(places, sizes, strict=True) if size}

    async def store_times(
        self, places: Mapping[MessageQueue, str], offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """When the messages at these offsets were stored; those that cannot be had are left out."""
        room = asyncio.Semaphore(_PULLED_AT_ONCE_MAX)

        async def one(queue: MessageQueue, address: str) -> list[StoredMessage]:
            async with room:
                try:
                    return await self.pull(queue, address, offsets[queue], 1)
                except TrimtabError:
                    return []

        found = await asyncio.gather(*(one(queue, address) for queue, address in places.items()))
        return {
            queue: messages[0].store_timestamp
            for queue, messages in zip(places, found, strict=True)
            if messages
        }


def _read_bytes(message: StoredMessage) -> int:
    """Bodies are compressed on brokers, and not in Spark."""
    try:
        body_bytes = len(message.body)
    except ProtocolError:
        return message.stored_size  # the task that reads it says what is wrong
    return message.stored_size - message.stored_body_bytes + body_bytes
