"""What a consumer gets: a light view of one message in the bytes of a pull."""

import msgspec

from trimtab.model import MessageQueue
from trimtab.wire import properties as names
from trimtab.wire.messages import StoredMessage, decode_messages
from trimtab.wire.resources import RETRY_PREFIX


class Received(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One received message. Its place in the queue is there at once, all else is cut out when it is first asked for.

    It keeps the bytes of the whole pull alive (on Apache's brokers at most 256 KiB, on ours as much as was asked
    for). Who keeps single messages for long keeps `message.detach()`, which has bytes of its own.
    """

    queue: MessageQueue
    """Where it was read; of a retry this is a queue of the group's retry topic."""
    stored: StoredMessage
    """The message as the broker stores it, with all that is not worth a name here."""

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes a second time, and without a namespace."""
        topic = self.queue.topic
        if "%" not in topic:
            return topic
        properties = self.stored.properties
        if topic.startswith(RETRY_PREFIX):
            topic = properties.get(names.RETRY_TOPIC) or topic
        namespace = properties.get(names.INSTANCE_ID)
        return topic.removeprefix(f"{namespace}%") if namespace else topic

    @property
    def broker_name(self) -> str:
        """The broker that it lies on."""
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        """The number of its queue at that broker."""
        return self.queue.queue_id

    @property
    def queue_offset(self) -> int:
        """Its place in the queue."""
        return self.stored.queue_offset

    @property
    def body(self) -> bytes:
        """The body as it was sent; a compressed one is inflated."""
        return self.stored.body

    @property
    def tag(self) -> str | None:
        """What subscriptions filter by."""
        return self.stored.tag

    @property
    def keys(self) -> tuple[str, ...]:
        """What it can be found by."""
        return self.stored.keys

    @property
    def properties(self) -> dict[str, str]:
        """All properties, the broker's own among them; one dictionary for all who ask, so do not change it."""
        return self.stored.properties

    @property
    def message_id(self) -> str:
        """The id that the producer gave; without one, the broker's."""
        return self.stored.message_id

    @property
    def offset_message_id(self) -> str:
        """The id that the broker gave: its address and the place in its log."""
        return self.stored.offset_message_id

    @property
    def born_timestamp(self) -> int:
        """When it was sent, in ms since 1970, by the producer's clock."""
        return self.stored.born_timestamp

    @property
    def store_timestamp(self) -> int:
        """When it was stored, in ms since 1970, by the broker's clock."""
        return self.stored.store_timestamp

    @property
    def reconsume_times(self) -> int:
        """How often it was handed out before and came back."""
        return self.stored.reconsume_times

    def detach(self) -> "Received":
        """The same message with its own copy of its bytes, to be kept for long."""
        return Received(self.queue, decode_messages(self.stored.stored_bytes)[0])

    def __repr__(self) -> str:
        return (
            f"<Received {self.queue} offset={self.queue_offset} id={self.message_id}"
            f" body={self.stored.stored_body_bytes} B>"
        )
