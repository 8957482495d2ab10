"""How far groups have come, and how to set them elsewhere."""

from msgspec import field

from trimtab.model import MessageQueue
from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.topics import DataVersion
from trimtab.wire.fastjson_writer import encode_as
from trimtab.wire.scalars import I32, I64


class ResetOffsetBody(Body, frozen=True, kw_only=True):
    offset_table: dict[MessageQueue, I64] = field(default_factory=dict)


class MessageQueueForC(Body, frozen=True, kw_only=True):
    topic: str
    broker_name: str
    queue_id: I32 = 0
    offset: I64 = 0


class ResetOffsetBodyForC(Body, frozen=True, kw_only=True):
    """The same for clients in C++, whose parser knows standard JSON only."""

    offset_table: tuple[MessageQueueForC, ...] = ()


class GetConsumerStatusBody(Body, frozen=True, kw_only=True):
    message_queue_table: dict[MessageQueue, I64] = field(default_factory=dict)
    """What one client answers."""
    consumer_table: dict[str, dict[MessageQueue, I64]] = field(default_factory=dict)
    """What a broker answers: client id to that client's table."""


class ConsumerOffsets(Body, frozen=True, kw_only=True):
    """All offsets of a broker; the key is `topic@group`, then the queue id."""

    offset_table: dict[str, dict[I32, I64]] = field(default_factory=dict)
    data_version: DataVersion | None = None


class DelayOffsets(Body, frozen=True, kw_only=True):
    """Delay level to offset."""

    offset_table: dict[I32, I64] = field(default_factory=dict)
    data_version: DataVersion | None = None


class QueryCorrectionOffsetBody(Body, frozen=True, kw_only=True):
    correction_offsets: dict[I32, I64] = field(default_factory=dict)


class OffsetMovedEvent(Body, frozen=True, kw_only=True):
    consumer_group: str | None = None
    message_queue: MessageQueue | None = None
    offset_request: I64 = 0
    offset_new: I64 = 0


class LocalOffsets(Body, frozen=True, kw_only=True):
    """The file `offsets.json` of a broadcasting consumer."""

    offset_table: dict[MessageQueue, I64] = field(default_factory=dict)


def encode_local_offsets(offsets: LocalOffsets) -> bytes:
    """The file's text in fastjson's pretty form, which is pretty only as far as Java's keys allow."""
    entries = ",".join(
        [
            "{\n\t\t\t"
            f'"brokerName":{_json_text(queue.broker_name)},\n\t\t\t'
            f'"queueId":{queue.queue_id},\n\t\t\t'
            f'"topic":{_json_text(queue.topic)}\n\t\t'
            f"}}:{offset}"
            for queue, offset in offsets.offset_table.items()
        ]
    )
    table = f"{{{entries}\n\t}}" if entries else "{}"
    return f'{{\n\t"offsetTable":{table}\n}}'.encode()


def _json_text(text: str) -> str:
    return encode_as(str, text).decode()
