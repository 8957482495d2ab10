"""Java's order of names and queues.

Every member sorts for itself and all must come to the same list, Java members too. Java compares strings by UTF-16 units; that is
not Python's order where a name has characters outside the Basic Multilingual Plane. Big-endian UTF-16 bytes sort as the units do.
"""

from collections.abc import Iterable

from trimtab.model import MessageQueue


def name_key(name: str) -> bytes:
    """Sorts as `String.compareTo`."""
    return name.encode("utf-16-be", "surrogatepass")


def queue_key(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Sorts as `MessageQueue.compareTo`: topic, broker name, queue id."""
    return name_key(queue.topic), name_key(queue.broker_name), queue.queue_id


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Client ids as Java sorts them before it shares; doubles stay."""
    names = tuple(names)
    # The two orders are one while there are only ASCII names, which is nearly always.
    plain = all(map(str.isascii, names))
    return tuple(sorted(names) if plain else sorted(names, key=name_key))


def sorted_queues(queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
    """Queues as Java sorts them before it shares; doubles stay."""
    return tuple(sorted(queues, key=queue_key))


def java_form(queue: MessageQueue) -> str:
    """`MessageQueue.toString()` in Java, which the consistent hash is taken of."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
