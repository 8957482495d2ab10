"""The frozen values that cross package borders."""

import msgspec


class MessageQueue(msgspec.Struct, frozen=True, rename="camel"):
    """One queue of one topic on one broker; `brokerName`, `queueId` and `topic` in JSON.

    It has no order of its own: Java sorts the names by UTF-16 units, which differs from Python's order
    outside the Basic Multilingual Plane, so whoever sorts must say how.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """`topic@broker-a:3`, as it is shown to people."""
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


class Now(msgspec.Struct, frozen=True, gc=False):
    """The time at which something happens: one to measure with, one to show and to store."""

    monotonic_ms: int
    wall_ms: int
