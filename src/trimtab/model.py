"""The frozen values that cross package borders."""

from typing import Annotated

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, rename="camel", gc=False, cache_hash=True):
    """One queue of one topic on one broker; `brokerName`, `queueId` and `topic` in JSON.

    It has no order of its own: Java sorts the names by UTF-16 units, which differs from Python's order
    outside the Basic Multilingual Plane, so whoever sorts must say how.
    """

    topic: str
    broker_name: str
    queue_id: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

    def __str__(self) -> str:
        """`topic@broker-a:3`, as it is shown to people."""
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


class Now(msgspec.Struct, frozen=True, gc=False):
    """The time at which something happens: one to measure with, one to show and to store."""

    monotonic_ms: int
    wall_ms: int


class Message(msgspec.Struct, frozen=True):
    """What a user sends. `keys` find it again, `tag` filters it, `properties` travel along."""

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] | list[str] = ()
    properties: dict[str, str] = {}
    flag: int = 0
    delay_level: int = 0
    deliver_at_ms: int | None = None
    """Wall time; brokers of 5.x and ours deliver to the second."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Where a message went, and how that place was chosen."""

    status: str
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    chosen: str = ""
    attempts: int = 1
