"""Figures for administrators: how much there is, how far groups have come, how fast it goes."""

from collections.abc import Iterable
from datetime import UTC, datetime

from trimtab.broker import names
from trimtab.broker.core import BrokerCore, chore
from trimtab.broker.requests import Access, Answer, NoHeader, Refused, Request, handles
from trimtab.broker.stats import Figure
from trimtab.model import MessageQueue, Now
from trimtab.wire.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsets,
    KVTable,
    OffsetWrapper,
    TopicConfig,
    TopicOffset,
    TopicStatsTable,
)
from trimtab.wire.codes import SPOKEN_VERSION, RequestCode, ResponseCode, Version
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import GetBrokerConsumeStats, GetConsumeStats, TopicOnly, ViewBrokerStats

QUEUES_LOOKED_AT_MAX = 20_000
"""Of one request. A queue costs some microseconds, and meanwhile nobody else is served."""

TOPICS_SEPARATOR = ";"


@chore
def note_counters(core: BrokerCore, now: Now) -> None:
    """Figures over time are differences of these notes."""
    core.stats.sample(now.monotonic_ms, _local_day(now.wall_ms))


def _local_day(wall_ms: int) -> int:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).astimezone().toordinal()


# --- topics and groups ----------------------------------------------------------------------------------------


@handles(RequestCode.GET_TOPIC_STATS_INFO, header=TopicOnly, access=Access(consume_topic="topic"))
def topic_stats(core: BrokerCore, request: Request[TopicOnly]) -> Answer:
    """Where each queue of a topic begins and ends, and when its last message was stored."""
    topic = core.require_topic(request.header.topic)
    name, store = topic.topic_name, core.store
    table = {}
    for queue_id in range(topic.write_queue_nums):
        high = store.max_offset(name, queue_id)
        table[MessageQueue(name, core.settings.broker_name, queue_id)] = TopicOffset(
            min_offset=store.min_offset(name, queue_id),
            max_offset=high,
            last_update_timestamp=max(0, store.store_ms_at(name, queue_id, high - 1)) if high else 0,
        )
    put_tps = core.stats.put_per_second(name) if _is_newer(request) else None
    return Answer(body=encode_body(TopicStatsTable(offset_table=table, topic_put_tps=put_tps)))


@handles(RequestCode.GET_CONSUME_STATS, header=GetConsumeStats, access=Access(consume_group="consumer_group"))
def consume_stats(core: BrokerCore, request: Request[GetConsumeStats]) -> Answer:
    """How far a group has come in one topic, in some, or in all that it has offsets of."""
    header = request.header
    group = header.consumer_group
    if header.topic_list:
        asked = [topic for topic in header.topic_list.split(TOPICS_SEPARATOR) if topic]
    else:
        asked = [header.topic] if header.topic else core.offsets.topics_of(group)
    topics = _topics_of_group(core, group, asked)
    _refuse_too_many(sum(topic.read_queue_nums for topic in topics))
    table: dict[MessageQueue, OffsetWrapper] = {}
    for topic in topics:
        table |= _progress(core, group, topic, topic.read_queue_nums, shows_pulls=_is_newer(request))
    tps = sum(core.stats.got_per_second(topic.topic_name, group) for topic in topics)
    return Answer(body=encode_body(ConsumeStats(offset_table=table, consume_tps=float(tps))))


@handles(RequestCode.GET_BROKER_CONSUME_STATS, header=GetBrokerConsumeStats, access=Access(admin=True))
def broker_consume_stats(core: BrokerCore, request: Request[GetBrokerConsumeStats]) -> Answer:
    """How far every group has come, topic by topic."""
    shown = []
    behind = queues = 0
    for group in core.groups:
        name = group.group_name
        stats = []
        for topic in _topics_of_group(core, name, core.offsets.topics_of(name)):
            if request.header.is_order and not topic.order:
                continue
            queues += topic.write_queue_nums
            _refuse_too_many(queues)
            table = _progress(core, name, topic, topic.write_queue_nums, shows_pulls=_is_newer(request))
            behind += sum(max(0, place.broker_offset - place.consumer_offset) for place in table.values())
            tps = core.stats.got_per_second(topic.topic_name, name)
            stats.append(ConsumeStats(offset_table=table, consume_tps=tps))
        shown.append({name: tuple(stats)})
    body = ConsumeStatsList(consume_stats_list=tuple(shown), broker_addr=core.address, total_diff=behind)
    return Answer(body=encode_body(body))


def _topics_of_group(core: BrokerCore, group: str, topics: Iterable[str]) -> list[TopicConfig]:
    """Those that exist, without those that the group, if it is online, does not consume any more."""
    online = core.consumers.get(group)
    configs = [core.topics.get(topic) for topic in topics]
    return [
        config
        for config in configs
        if config is not None
        and (online is None or not online.subscriptions or config.topic_name in online.subscriptions)
    ]


def _progress(
    core: BrokerCore, group: str, topic: TopicConfig, queues: int, *, shows_pulls: bool
) -> dict[MessageQueue, OffsetWrapper]:
    name, store = topic.topic_name, core.store
    offsets = core.offsets.of(group, name)
    table = {}
    for queue_id in range(queues):
        offset = max(0, offsets.get(queue_id, 0))
        consumed_ms = store.store_ms_at(name, queue_id, offset - 1) if offset else 0
        table[MessageQueue(name, core.settings.broker_name, queue_id)] = OffsetWrapper(
            broker_offset=store.max_offset(name, queue_id),
            consumer_offset=offset,
            last_timestamp=max(0, consumed_ms),
            pull_offset=offset if shows_pulls else None,
        )
    return table


def _refuse_too_many(queues: int) -> None:
    if queues > QUEUES_LOOKED_AT_MAX:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"more than {QUEUES_LOOKED_AT_MAX} queues would have to be looked at; ask for one group and topic",
        )


def _is_newer(
    request: Request[TopicOnly] | Request[GetConsumeStats] | Request[GetBrokerConsumeStats],
) -> bool:
    """Whether the asker knows the fields that 5.x added."""
    return request.command.version >= Version.V5_0_0


@handles(RequestCode.GET_ALL_DELAY_OFFSET, header=NoHeader, access=Access(admin=True))
def delay_offsets(core: BrokerCore, _request: Request[NoHeader]) -> Answer:
    """How far the delivery of delayed messages has come, level by level."""
    return Answer(body=encode_body(DelayOffsets(offset_table=core.delays.offsets())))


# --- rates ----------------------------------------------------------------------------------------------------


@handles(RequestCode.VIEW_BROKER_STATS_DATA, header=ViewBrokerStats, access=Access(admin=True))
def view_stats(core: BrokerCore, request: Request[ViewBrokerStats]) -> Answer:
    """What one counter made over the last minute, hour and day."""
    header = request.header
    figures = core.stats.view(header.stats_name, header.stats_key)
    if figures is None:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
        )
    body = BrokerStatsData(
        stats_minute=_stats_item(figures.minute),
        stats_hour=_stats_item(figures.hour),
        stats_day=_stats_item(figures.day),
    )
    return Answer(body=encode_body(body))


def _stats_item(figure: Figure) -> BrokerStatsItem:
    return BrokerStatsItem(sum=figure.sum, tps=figure.per_second, avgpt=figure.per_call)


# --- the broker as a whole ------------------------------------------------------------------------------------


@handles(RequestCode.GET_BROKER_RUNTIME_INFO, header=NoHeader, access=Access(admin=True))
def runtime_info(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """Everything that tools and dashboards show of a broker, under the names of both 4.9 and 5.x."""
    table = _of_time(core, request.now) | _of_traffic(core) | _of_store(core) | _of_waiting(core)
    table |= {
        "brokerActive": "true",
        "brokerVersion": str(int(SPOKEN_VERSION)),
        "brokerVersionDesc": SPOKEN_VERSION.name,
    }
    return Answer(body=encode_body(KVTable(table=dict(sorted(table.items())))))


def _of_time(core: BrokerCore, now: Now) -> dict[str, str]:
    seconds = max(0, now.monotonic_ms - core.started.monotonic_ms) // 1_000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return {
        "bootTimestamp": str(core.started.wall_ms),
        "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
        "startAcceptSendRequestTimeStamp": str(core.started.wall_ms),
    }


def _of_traffic(core: BrokerCore) -> dict[str, str]:
    stats = core.stats
    totals = stats.totals()

    def rates(*words: str) -> str:
        """Over 10 s, 60 s and 600 s."""
        return " ".join([str(sum(stats.rate(word, seconds) for word in words)) for seconds in (10, 60, 600)])

    transferred = rates("got_messages")
    return {
        "putTps": rates("put_messages"),
        "getFoundTps": rates("found"),
        "getMissTps": rates("missed"),
        "getTotalTps": rates("found", "missed"),
        "getTransferedTps": transferred,
        "getTransferredTps": transferred,
        "putMessageTimesTotal": str(totals.put_messages),
        "putMessageSizeTotal": str(totals.put_bytes),
        "putMessageAverageSize": str(totals.put_bytes / max(1, totals.put_messages)),
        "putMessageFailedTimes": str(stats.put_failures),
        "msgPutTotalYesterdayMorning": str(stats.put_days.yesterday_morning),
        "msgPutTotalTodayMorning": str(stats.put_days.today_morning),
        "msgPutTotalTodayNow": str(totals.put_messages),
        "msgGetTotalYesterdayMorning": str(stats.got_days.yesterday_morning),
        "msgGetTotalTodayMorning": str(stats.got_days.today_morning),
        "msgGetTotalTodayNow": str(totals.got_messages),
    }


def _of_store(core: BrokerCore) -> dict[str, str]:
    stats = core.store.stats()
    free, total = stats.disk_free_bytes, stats.disk_total_bytes
    used_ratio = str(1 - free / total if total else 1.0)
    table = {
        "commitLogDiskRatio": used_ratio,
        "consumeQueueDiskRatio": used_ratio,
        "commitLogMinOffset": str(stats.log_start),
        "commitLogMaxOffset": str(stats.log_end),
        "commitLogDirCapacity": f"Total : {_bytes_text(total)}, Free : {_bytes_text(free)}.",
        "remainHowManyDataToFlush": _bytes_text(stats.log_end - stats.log_durable),
        "earliestMessageTimeStamp": str(core.store.first_store_ms()),
    }
    for level, offset in core.delays.offsets().items():
        high = core.store.max_offset(names.SCHEDULE_TOPIC, level - 1)
        table[f"scheduleMessageOffset_{level}"] = f"{offset},{high}"
    return table


_UNUSED = {
    **dict.fromkeys(
        (
            *(
                "putMessageEntireTimeMax",
                "getMessageEntireTimeMax",
                "dispatchMaxBuffer",
                "dispatchBehindBytes",
            ),
            *("pageCacheLockTimeMills", "remainTransientStoreBufferNumbs"),
            *(
                "timerReadBehind",
                "timerOffsetBehind",
                "timerCongestNum",
                "timerEnqueueTps",
                "timerDequeueTps",
            ),
        ),
        "0",
    ),
    "putMessageDistributeTime": "",
}
"""What a broker without page cache locks, dispatch threads and buffers has nothing to say of."""


def _of_waiting(core: BrokerCore) -> dict[str, str]:
    """Requests are decided as they come, so no queue of them ever has a length."""
    capacity = str(core.settings.unanswered_requests_max)
    table = dict(_UNUSED)
    for pool in ("send", "pull", "litePull", "query", "ack"):
        table[f"{pool}ThreadPoolQueueSize"] = "0"
        table[f"{pool}ThreadPoolQueueCapacity"] = capacity
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return table | {"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": capacity}


def _bytes_text(count: int) -> str:
    if count < 1_024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_BYTES_UNITS) - 1)
    return f"{count / 1_024**power:.1f} {_BYTES_UNITS[power]}iB"


_BYTES_UNITS = " KMGTPE"
