"""What passes between `QueuePulls` and who it pulls for: what is wanted, what came, how much room there is."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from trimtab.balance.pipeline import Found, Handed
from trimtab.client.received import Received
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.wire.headers.consume import PullMessageResponse
from trimtab.wire.messages import decode_messages

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"


@dataclass(frozen=True)
class Wanted:
    """Which messages of a topic: all, those with one of some tags (`a || b`), or those that an SQL92 expression is true for."""

    expression: str = ALL
    kind: str = TAG
    version: int = 0
    """Of the subscription, as heartbeats told it."""
    is_posted: bool = True
    """Whether each pull says it; else the broker uses what the group's heartbeat said."""

    @cached_property
    def tags(self) -> frozenset[str] | None:
        """The tags to check; the broker compares their hashes only. None: every tag will do."""
        if self.kind != TAG:
            return None
        tags = frozenset(tag.strip() for tag in self.expression.split("||")) - {""}
        return None if not tags or tags == {ALL} else tags

    @property
    def is_filtered(self) -> bool:
        """Whether the broker may pass over messages."""
        return self.kind != TAG or self.tags is not None


class Riding(NamedTuple):
    """An offset to commit with the next pull; on brokers of ours only under this lease."""

    offset: int
    lease_epoch: int | None = None


class OffsetMoved(NamedTuple):
    """The broker does not have the offset that was asked for; `offset` is where it says to go on."""

    queue: MessageQueue
    asked: int
    offset: int
    min_offset: int
    max_offset: int


class Room:
    """Bytes that pulled messages may take; shared by all queues of a consumer."""

    __slots__ = ("_line", "bytes_max", "taken_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken_bytes = 0
        self._line: deque[Callable[[], None]] = deque()

    def __repr__(self) -> str:
        return f"<Room {self.taken_bytes} of {self.bytes_max} B taken, {len(self._line)} queues wait>"

    @property
    def free_bytes(self) -> int:
        """What is left; never negative, though a large answer may have taken more."""
        return max(0, self.bytes_max - self.taken_bytes)

    def take(self, count: int) -> None:
        """Bytes are on their way or here."""
        self.taken_bytes += count

    def give(self, count: int) -> None:
        """Bytes were let go; who waited longest goes on first."""
        self.taken_bytes -= count
        while self._line and self.taken_bytes < self.bytes_max:
            self._line.popleft()()

    def wait(self, wake: Callable[[], None]) -> None:
        """Puts somebody at the end of the line."""
        self._line.append(wake)


class Pulled:
    """One answer, in its turn: the messages from `offset` up to `next_offset` that were wanted."""

    __slots__ = (
        "_messages", "_room", "body", "max_offset", "min_offset", "next_offset", "offset", "queue", "tags",
    )  # fmt: skip

    def __init__(
        self, queue: MessageQueue, body: bytes, handed: Handed, header: PullMessageResponse, *,
        tags: frozenset[str] | None, room: Room | None,
    ) -> None:  # fmt: skip
        self.queue = queue
        self.body = body
        """The messages as they came, for `wire.columns`."""
        self.offset = handed.offset
        self.next_offset = handed.next_offset
        self.min_offset = header.min_offset
        self.max_offset = header.max_offset
        self.tags = tags
        self._room = room
        self._messages: list[Received] | None = None

    def __repr__(self) -> str:
        return f"<Pulled {self.queue} {self.offset}..{self.next_offset} {len(self.body)} B>"

    @property
    def messages(self) -> list[Received]:
        """The messages, decoded at the first touch; `ProtocolError` if the broker sent something else."""
        messages = self._messages
        if messages is None:
            queue = self.queue
            messages = [Received(queue, stored) for stored in decode_messages(self.body)]
            if messages and messages[0].queue_offset < self.offset:
                messages = [message for message in messages if message.queue_offset >= self.offset]
            if self.tags is not None:
                messages = [message for message in messages if message.tag in self.tags]
            self._messages = messages
        return messages

    @property
    def offsets(self) -> range:
        """The part of the queue that this answer covers."""
        return range(self.offset, self.next_offset)

    def release(self) -> None:
        """Gives the room back; once is enough and more does not harm."""
        if self._room is not None:
            room, self._room = self._room, None
            room.give(len(self.body))


def nothing_between(moved: OffsetMoved) -> Pulled:
    """An answer without messages, for the offsets that a broker has no more."""
    handed = Handed(0, moved.asked, moved.offset, Found.NONE_MATCHED)
    header = PullMessageResponse(
        suggest_which_broker_id=0, next_begin_offset=moved.offset, min_offset=moved.min_offset, max_offset=moved.max_offset
    )  # fmt: skip
    return Pulled(moved.queue, b"", handed, header, tags=None, room=None)


class PullOwner(Protocol):
    """Who pulls for. Everything is called on the loop and must come back at once."""

    def on_pulled(self, pulled: Pulled) -> None:
        """The next answer of a queue."""

    def on_moved(self, moved: OffsetMoved) -> int | None:
        """The offset is not there. Where to go on; None for nowhere, and then the pulls are over."""

    def on_trouble(self, queue: MessageQueue, error: TrimtabError) -> None:
        """A pull failed and will be tried again."""

    def riding(self, queue: MessageQueue) -> Riding | None:
        """What to commit along with a pull, if anything."""
