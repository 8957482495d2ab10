"""Figures that brokers answer to administrators."""

from msgspec import field

from trimtab.model import MessageQueue
from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.heartbeat import SubscriptionData
from trimtab.wire.scalars import F64, I32, I64


class TopicOffset(Body, frozen=True, kw_only=True):
    min_offset: I64 = 0
    max_offset: I64 = 0
    last_update_timestamp: I64 = 0
    """Store time of the last message, 0 if there is none."""


class TopicStatsTable(Body, frozen=True, kw_only=True):
    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: F64 | None = None


class OffsetWrapper(Body, frozen=True, kw_only=True):
    broker_offset: I64 = 0
    consumer_offset: I64 = 0
    last_timestamp: I64 = 0
    """Store time of the last message consumed."""
    pull_offset: I64 | None = None


class ConsumeStats(Body, frozen=True, kw_only=True):
    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: F64 = 0.0


class ConsumeStatsList(Body, frozen=True, kw_only=True):
    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    """Each table has a group as its key."""
    broker_addr: str | None = None
    total_diff: I64 = 0
    total_inflight_diff: I64 | None = None


class BrokerStatsItem(Body, frozen=True, kw_only=True):
    sum: I64 = 0
    tps: F64 = 0.0
    avgpt: F64 = 0.0
    """Average per call."""


class BrokerStatsData(Body, frozen=True, kw_only=True):
    """All three must be there for mqadmin."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


class QueueTimeSpan(Body, frozen=True, kw_only=True):
    """The texts are local time as `yyyy-MM-dd#HH:mm:ss:SSS`. Java writes them and never reads them."""

    message_queue: MessageQueue | None = None
    min_time_stamp: I64 = 0
    max_time_stamp: I64 = 0
    consume_time_stamp: I64 = 0
    delay_time: I64 = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body, frozen=True, kw_only=True):
    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


class ConsumeQueueData(Body, frozen=True, kw_only=True):
    physic_offset: I64 = 0
    physic_size: I32 = 0
    tags_code: I64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body, frozen=True, kw_only=True):
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueData, ...] | None = None
    max_queue_index: I64 = 0
    min_queue_index: I64 = 0
