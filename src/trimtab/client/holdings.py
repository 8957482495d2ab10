"""What a member of ours tells of each queue that it holds, and whoever asks reads again (a property of its running info). PURE."""

from collections.abc import Iterable
from itertools import islice

import msgspec

from trimtab.model import MessageQueue

PROPERTY = "trimtab.holdings"
TOLD_QUEUES_MAX = 20_000


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """One queue."""

    topic: str
    broker: str
    queue_id: int
    since_ms: int
    """Wall time."""
    lease_age_ms: int | None
    """How long ago its lease was renewed; None without leases."""
    in_flight: int
    """Messages that are pulled, and handled or being handled not to the end."""

    @property
    def queue(self) -> MessageQueue:
        """As a value."""
        return MessageQueue(self.topic, self.broker, self.queue_id)


def holdings_text(holdings: Iterable[Holding]) -> str:
    """As JSON; what is beyond the limit is left out."""
    return msgspec.json.encode(list(islice(holdings, TOLD_QUEUES_MAX))).decode()


def read_holdings(text: str | None) -> tuple[Holding, ...]:
    """What a member told; nothing of one that tells nothing, or what nobody can read."""
    if text is None:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[Holding, ...])
    except msgspec.DecodeError:
        return ()
