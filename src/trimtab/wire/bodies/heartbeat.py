"""What a client tells brokers about its producers and consumers."""

from msgspec import field

from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from trimtab.wire.scalars import I32, I64


class SubscriptionData(Body, frozen=True, kw_only=True):
    topic: str
    sub_string: str | None = None
    tags_set: tuple[str, ...] = ()
    code_set: tuple[I32, ...] = ()
    """The Java hash of each tag."""
    sub_version: I64 = 0
    """Milliseconds; the broker takes a higher one for newer. Java's default is the present, ours is 0."""
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body, frozen=True, kw_only=True):
    group_name: str


class ConsumerData(Body, frozen=True, kw_only=True):
    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True, kw_only=True):
    client_id: str = field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: I32 | None = None
    without_sub: bool | None = None


class CheckClientRequestBody(Body, frozen=True, kw_only=True):
    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class QuerySubscriptionResponseBody(Body, frozen=True, kw_only=True):
    group: str | None = None
    topic: str | None = None
    subscription_data: SubscriptionData | None = None
