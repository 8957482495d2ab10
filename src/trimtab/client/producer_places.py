"""Places that a message must go to: a given queue, the queue of a key, or what a user's function says. PURE."""

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.balance.pick import Choice
from trimtab.client.checks import I32, check_number
from trimtab.client.namespaces import with_namespace, without_namespace
from trimtab.client.selectors import Selector, chosen_by, index_by
from trimtab.errors import InvalidMessageError
from trimtab.model import Message, MessageQueue
from trimtab.wire import properties as names


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message must go: a queue, or what leads to one."""

    message: Message
    queue: MessageQueue | None = None
    key: str | None = None
    selector: str | Selector | None = None
    arg: object = None

    def __post_init__(self) -> None:
        """What contradicts itself, or is none, is refused."""
        if self.queue is not None and not isinstance(self.queue, MessageQueue):
            raise InvalidMessageError(f"the queue is a {type(self.queue).__name__}; give a MessageQueue")
        if self.queue is not None:
            check_number("queue id", self.queue.queue_id, *I32)
        if self.key is not None:
            check_key_type(self.key)
        if self.queue is not None and (self.key is not None or self.selector is not None):
            raise InvalidMessageError("give a queue, or a key or selector, not both")
        if self.queue is not None and self.queue.topic != self.message.topic:
            raise InvalidMessageError(
                f"the queue {self.queue} is not of the message's topic {self.message.topic!r}"
            )

    def choice(self, queues: tuple[MessageQueue, ...], namespace: str | None, usual_selector: str) -> Choice:
        """The queue among these, as they are on the wire; users see them without the namespace."""
        if self.queue is not None:
            return Choice(on_wire(namespace, self.queue), "as asked")
        if callable(self.selector):
            arg = self.key if self.arg is None else self.arg
            seen = queues if namespace is None else tuple(shown(namespace, queue) for queue in queues)
            queue = chosen_by(self.selector, seen, self.message, arg)
            return Choice(on_wire(namespace, queue), "by the selector given")
        name = self.selector or usual_selector
        if self.key is None:
            raise InvalidMessageError(f"selector {name!r} needs a key")
        return Choice(queues[index_by(name, self.key, len(queues))], f"key {self.key!r} by {name}")


def on_wire(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """A queue as brokers know it."""
    if namespace is None:
        return queue
    return MessageQueue(with_namespace(namespace, queue.topic), queue.broker_name, queue.queue_id)


def shown(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """A queue as users know it."""
    if namespace is None:
        return queue
    return MessageQueue(without_namespace(namespace, queue.topic), queue.broker_name, queue.queue_id)


def check_key_type(key: str) -> None:
    """A key is hashed as a text."""
    if not isinstance(key, str):
        raise InvalidMessageError(f"the key is a {type(key).__name__}; give a str")


def key_property(key: str) -> str:
    """The property in which a key travels, its separator in front."""
    check_key_type(key)
    if not key or "\x01" in key or "\x02" in key:
        raise InvalidMessageError(f"the key {key!r} is empty or holds a control character")
    return f"\x02{names.SHARDING_KEY}\x01{key}"


def same_broker(queues: Sequence[MessageQueue], _message: Message, broker_name: object) -> MessageQueue:
    """A queue of the broker with this name, if it has one."""
    return next((queue for queue in queues if queue.broker_name == broker_name), queues[0])
