"""What a consumer tells about its inner state."""

from msgspec import field

from trimtab.model import MessageQueue
from trimtab.wire.bodies.base import Body
from trimtab.wire.bodies.enums import ConsumeResult
from trimtab.wire.bodies.heartbeat import SubscriptionData
from trimtab.wire.scalars import F64, I32, I64


class ProcessQueueInfo(Body, frozen=True, kw_only=True):
    commit_offset: I64 = 0
    cached_msg_min_offset: I64 = 0
    cached_msg_max_offset: I64 = 0
    cached_msg_count: I32 = 0
    cached_msg_size_in_mib: I32 = field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: I64 = 0
    transaction_msg_max_offset: I64 = 0
    transaction_msg_count: I32 = 0
    locked: bool = False
    try_unlock_times: I64 = 0
    last_lock_timestamp: I64 = 0
    dropped: bool = field(name="droped", default=False)
    last_pull_timestamp: I64 = 0
    last_consume_timestamp: I64 = 0


class PopProcessQueueInfo(Body, frozen=True, kw_only=True):
    wait_ack_count: I32 = 0
    dropped: bool = field(name="droped", default=False)
    last_pop_timestamp: I64 = 0


class ConsumeStatus(Body, frozen=True, kw_only=True):
    """Rates per second, and times in milliseconds."""

    pull_rt: F64 = field(name="pullRT", default=0.0)
    pull_tps: F64 = field(name="pullTPS", default=0.0)
    consume_rt: F64 = field(name="consumeRT", default=0.0)
    consume_ok_tps: F64 = field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: F64 = field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: I64 = 0


class ConsumerRunningInfo(Body, frozen=True, kw_only=True):
    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] | None = None
    user_consumer_info: dict[str, str] | None = None


class ConsumeMessageDirectlyResult(Body, frozen=True, kw_only=True):
    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_mills: I64 = 0
