"""Looking messages up: by place, by key, by queue and index, by time."""

from trimtab.broker.core import BrokerCore
from trimtab.broker.requests import Access, Answer, Refused, Request, handles
from trimtab.broker.store.errors import StoreError, StoreSearchTooWideError
from trimtab.model import MessageQueue
from trimtab.wire.bodies import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import QueryConsumeQueue, TopicAndGroup
from trimtab.wire.headers.consume import QueryMessage, QueryMessageResponse, ViewMessage

RESULTS_MAX = 64
RESULTS_BY_UNIQUE_KEY = 32
KEY_CHARACTERS_MAX = 1_024
ENTRIES_MAX = 1_024
"""Of a queue, in one answer."""


@handles(RequestCode.VIEW_MESSAGE_BY_ID, header=ViewMessage, access=Access(judged_by_handler=True))
def view_message(core: BrokerCore, request: Request[ViewMessage]) -> Answer:
    """The message that lies at a place in the log, for those who may consume its topic."""
    offset = request.header.offset
    try:
        message = core.store.message_at(offset)
    except StoreError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    if message is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
    if core.acl is not None:
        core.acl.permit(request.command, consume=[message.topic])
    return Answer(body=message.stored_bytes)


@handles(RequestCode.QUERY_MESSAGE, header=QueryMessage, access=Access(consume_topic="topic"))
def query_message(core: BrokerCore, request: Request[QueryMessage]) -> Answer:
    """Messages with a key, the newest ones if there are many, in the order in which they were stored."""
    header = request.header
    results_max = RESULTS_BY_UNIQUE_KEY if header.unique_key_query else min(header.max_num, RESULTS_MAX)
    if len(header.key) > KEY_CHARACTERS_MAX:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"a query is for a key of at most {KEY_CHARACTERS_MAX} characters"
        )
    try:
        found = core.store.query_by_key(
            header.topic,
            header.key,
            max(0, results_max),
            header.begin_timestamp,
            header.end_timestamp,
            # A unique key tells when it was made: clients ask from then on, and the message is not far from there.
            oldest_first=bool(header.unique_key_query and header.begin_timestamp > 0),
        )
    except StoreSearchTooWideError as error:
        raise Refused(ResponseCode.QUERY_NOT_FOUND, str(error)) from error
    except StoreError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    fresh = QueryMessageResponse(
        index_last_update_timestamp=found[0].store_timestamp if found else 0,
        index_last_update_phyoffset=core.store.visible_end,
    )
    if not found:
        remark = "can not find message, maybe time range not correct"
        return Answer(ResponseCode.QUERY_NOT_FOUND, header=fresh, remark=remark)
    found.sort(key=lambda message: message.physical_offset)
    return Answer(header=fresh, body=b"".join([message.stored_bytes for message in found]))


@handles(RequestCode.QUERY_CONSUME_QUEUE, header=QueryConsumeQueue, access=Access(consume_topic="topic"))
def query_queue(core: BrokerCore, request: Request[QueryConsumeQueue]) -> Answer:
    """The entries of a queue: where each message lies and the code of its tag."""
    header, store = request.header, core.store
    topic, queue_id = header.topic, header.queue_id
    if queue_id not in store.queue_ids(topic):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    group = None if header.consumer_group is None else core.consumers.get(header.consumer_group)
    subscription = None if group is None else group.subscriptions.get(topic)
    is_away = header.consumer_group is not None and subscription is None
    start = max(low, header.index)
    stop = min(high, header.index + max(0, min(header.count, ENTRIES_MAX)))
    entries = [store.entry(topic, queue_id, offset) for offset in range(start, stop)]
    body = QueryConsumeQueueResponseBody(
        subscription_data=subscription,
        filter_data=f"{header.consumer_group}@{topic} is not online!" if is_away else None,
        queue_data=tuple(
            ConsumeQueueData(
                physic_offset=entry.physical_offset, physic_size=entry.size, tags_code=entry.tags_code
            )
            for entry in entries
            if entry is not None
        ),
        max_queue_index=high,
        min_queue_index=low,
    )
    is_there = low <= header.index < high
    remark = None if is_there else f"Index {header.index} of {queue_id}@{topic} is not exist!"
    return Answer(body=encode_body(body), remark=remark)


@handles(
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    header=TopicAndGroup,
    access=Access(consume_topic="topic", consume_group="group"),
)
def consume_time_span(core: BrokerCore, request: Request[TopicAndGroup]) -> Answer:
    """For each queue when its messages were stored, and which of them the group has come to."""
    header = request.header
    topic = core.require_topic(header.topic)
    spans = tuple(_time_span(core, request, queue_id) for queue_id in range(topic.write_queue_nums))
    return Answer(body=encode_body(QueryConsumeTimeSpanBody(consume_time_span_set=spans)))


def _time_span(core: BrokerCore, request: Request[TopicAndGroup], queue_id: int) -> QueueTimeSpan:
    topic, store = request.header.topic, core.store
    high = store.max_offset(topic, queue_id)
    first_ms = store.earliest_store_ms(topic, queue_id)
    offset = core.offsets.get(request.header.group, topic, queue_id)
    consumed_ms = store.store_ms_at(topic, queue_id, offset - 1) if offset else first_ms
    next_ms = store.store_ms_at(topic, queue_id, offset or 0) if (offset or 0) < high else -1
    return QueueTimeSpan(
        message_queue=MessageQueue(topic, core.settings.broker_name, queue_id),
        min_time_stamp=first_ms,
        max_time_stamp=store.store_ms_at(topic, queue_id, high - 1),
        consume_time_stamp=consumed_ms,
        delay_time=request.now.wall_ms - next_ms if next_ms >= 0 else 0,
    )
