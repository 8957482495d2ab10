"""Numbers for members and queues that look like chance and are the same in every process."""

from functools import lru_cache
from hashlib import blake2b

from trimtab.model import MessageQueue

_REMEMBERED_QUEUES_MAX = 1 << 16
_REMEMBERED_MEMBERS_MAX = 1 << 14


@lru_cache(_REMEMBERED_QUEUES_MAX)
def queue_place(queue: MessageQueue) -> int:
    """A 64-bit number for a queue."""
    return _place(f"{queue.topic}\0{queue.broker_name}\0{queue.queue_id}")


@lru_cache(_REMEMBERED_MEMBERS_MAX)
def member_place(group: str, member: str) -> int:
    """A 64-bit number for a member, another one in every group: nobody is always first."""
    return _place(f"{group}\0{member}")


def in_turn(group: str, members: tuple[str, ...]) -> list[str]:
    """The members in the order in which they have a right to an odd queue. A newcomer changes nobody's place before it."""
    return sorted(members, key=lambda member: (member_place(group, member), member))


def _place(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
