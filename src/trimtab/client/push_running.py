"""What a push consumer tells about itself, as mqadmin and dashboards read it (GET_CONSUMER_RUNNING_INFO). PURE."""

import sys
import traceback
from collections.abc import Mapping

from trimtab.balance.progress import MIB
from trimtab.balance.start import StartRule
from trimtab.client.push_queue import HeldQueue
from trimtab.client.push_settings import Consuming
from trimtab.model import MessageQueue
from trimtab.wire.bodies import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ConsumeType,
    ProcessQueueInfo,
    SubscriptionData,
)

CLIENT_VERSION = "V4_9_3"
"""The version whose protocol we speak; tools look it up in a table of Java's versions."""


def queue_info(held: HeldQueue, lag_to_wall_ms: int) -> ProcessQueueInfo:
    """One queue. Times of the lock are kept in monotonic time: `lag_to_wall_ms` makes wall time of it."""
    progress, lock = held.progress, held.lock
    has_messages = progress.messages > 0
    return ProcessQueueInfo(
        commit_offset=held.offset_to_store,
        cached_msg_min_offset=progress.safe_offset if has_messages else 0,
        cached_msg_max_offset=progress.highest_offset if has_messages else 0,
        cached_msg_count=progress.messages,
        cached_msg_size_in_mib=progress.size_bytes // MIB,
        transaction_msg_count=held.running,
        locked=lock is not None and lock.is_locked,
        try_unlock_times=held.unlock_tries,
        last_lock_timestamp=lock.locked_ms + lag_to_wall_ms if lock is not None else 0,
        dropped=held.is_leaving,
        last_pull_timestamp=held.pulls.last_pull_ms + lag_to_wall_ms if held.pulls is not None else 0,
        last_consume_timestamp=held.consumed_ms + lag_to_wall_ms if held.consumed_ms else 0,
    )


def running_info(
    *,
    properties: Mapping[str, str],
    subscriptions: tuple[SubscriptionData, ...],
    held: Mapping[MessageQueue, HeldQueue],
    statuses: Mapping[str, ConsumeStatus],
    lag_to_wall_ms: int,
    with_stacks: bool,
) -> ConsumerRunningInfo:
    """Everything together."""
    return ConsumerRunningInfo(
        properties=dict(properties),
        subscription_set=subscriptions,
        mq_table={queue: queue_info(one, lag_to_wall_ms) for queue, one in held.items()},
        status_table={data.topic: statuses.get(data.topic, ConsumeStatus()) for data in subscriptions},
        jstack=stacks() if with_stacks else None,
    )


def properties_of(
    consuming: Consuming,
    *,
    nameserver: str,
    group: str,
    rule: StartRule,
    started_wall_ms: int,
    strategy: str,
    mode: str,
    is_ordered: bool,
    is_broadcast: bool,
    is_paused: bool,
    batch_messages_max: int,
) -> dict[str, str]:
    """The options under Java's names; mqadmin parses the first ones and fails without them."""
    limits = consuming.limits
    return {
        "PROP_NAMESERVER_ADDR": f"{nameserver};",
        "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.value,
        "PROP_CLIENT_VERSION": CLIENT_VERSION,
        "PROP_CONSUMER_START_TIMESTAMP": str(started_wall_ms),
        "PROP_CONSUMEORDERLY": str(is_ordered).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(consuming.concurrency),
        "consumerGroup": group,
        "messageModel": "BROADCASTING" if is_broadcast else "CLUSTERING",
        "consumeFromWhere": rule.where.value,
        "allocateMessageQueueStrategy": strategy,
        "consumeThreadMax": str(consuming.concurrency),
        "consumeMessageBatchMaxSize": str(batch_messages_max),
        "pullThresholdForQueue": str(limits.queue_messages_max),
        "pullThresholdForTopic": str(-1 if limits.topic_messages_max is None else limits.topic_messages_max),
        "consumeConcurrentlyMaxSpan": str(limits.queue_span_max),
        "pause": str(is_paused).lower(),
        "client": "trimtab",
        "trimtab.mode": mode,
    }


def stacks() -> str:
    """Where every thread of this process is, for whoever asks why a consumer stands still."""
    parts = []
    for number, frame in sorted(sys._current_frames().items()):  # noqa: SLF001 - the one way to see other threads
        parts.append(f"thread {number}\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)
