"""Where queues begin and end, and how far groups have come."""

from trimtab.broker.core import BrokerCore
from trimtab.broker.fencing import commit_offset
from trimtab.broker.requests import OK, Access, Answer, Refused, Request, handles
from trimtab.broker.store import TimeRule
from trimtab.wire.codes import RequestCode, ResponseCode, Version
from trimtab.wire.headers.consume import (
    GetMaxOffset,
    OffsetResponse,
    QueryConsumerOffset,
    QueueOnly,
    SearchOffset,
    TimestampResponse,
    UpdateConsumerOffset,
)

READ = Access(consume_topic="topic")


@handles(RequestCode.GET_MAX_OFFSET, header=GetMaxOffset, access=READ)
def max_offset(core: BrokerCore, request: Request[GetMaxOffset]) -> Answer:
    """The offset that the next message of the queue will have."""
    header = request.header
    return Answer(header=OffsetResponse(offset=core.store.max_offset(header.topic, header.queue_id)))


@handles(RequestCode.GET_MIN_OFFSET, header=QueueOnly, access=READ)
def min_offset(core: BrokerCore, request: Request[QueueOnly]) -> Answer:
    """The offset of the oldest message that is kept; 0 for a queue that never was, as tools pull from there."""
    header = request.header
    return Answer(header=OffsetResponse(offset=core.store.min_offset(header.topic, header.queue_id)))


@handles(RequestCode.GET_EARLIEST_MSG_STORETIME, header=QueueOnly, access=READ)
def earliest_store_time(core: BrokerCore, request: Request[QueueOnly]) -> Answer:
    """When the oldest message of the queue was stored; -1 if there is none."""
    header = request.header
    stored_ms = core.store.earliest_store_ms(header.topic, header.queue_id)
    return Answer(header=TimestampResponse(timestamp=stored_ms))


@handles(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header=SearchOffset, access=READ)
def search_offset(core: BrokerCore, request: Request[SearchOffset]) -> Answer:
    """The offset that a time means; a 5.x client asks for a side of the gap, a 4.9 one takes the nearer message."""
    header = request.header
    rule = _time_rule(header.boundary_type, request.command.version)
    offset = core.store.offset_by_time(header.topic, header.queue_id, header.timestamp, rule)
    return Answer(header=OffsetResponse(offset=offset))


def _time_rule(boundary_type: str | None, version: int) -> TimeRule:
    if boundary_type is not None:
        return TimeRule.UPPER if boundary_type.lower() == "upper" else TimeRule.LOWER
    return TimeRule.LOWER if version >= Version.V5_0_0 else TimeRule.NEAREST


@handles(
    RequestCode.QUERY_CONSUMER_OFFSET,
    header=QueryConsumerOffset,
    access=Access(consume_topic="topic", consume_group="consumer_group"),
)
def query_consumer_offset(core: BrokerCore, request: Request[QueryConsumerOffset]) -> Answer:
    """What the group committed; a group that is new to a young queue begins at its beginning."""
    header = request.header
    offset = core.offsets.get(header.consumer_group, header.topic, header.queue_id)
    if offset is None or offset < 0:
        if not _is_young(core, header.topic, header.queue_id) or header.set_zero_if_not_found is False:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first")
        offset = 0
    return Answer(header=OffsetResponse(offset=offset))


@handles(
    RequestCode.UPDATE_CONSUMER_OFFSET,
    header=UpdateConsumerOffset,
    access=Access(consume_topic="topic", consume_group="consumer_group"),
)
def update_consumer_offset(core: BrokerCore, request: Request[UpdateConsumerOffset]) -> Answer:
    """Takes the group's word for how far it has come."""
    commit_offset(core, request.header)
    return OK


def _is_young(core: BrokerCore, topic: str, queue_id: int) -> bool:
    """Nothing of the queue is gone, and its first message is not far back in the log."""
    if core.store.min_offset(topic, queue_id) > 0:
        return False
    first = core.store.entry(topic, queue_id, 0)
    return first is None or core.store.written_end - first.physical_offset <= core.settings.young_log_bytes
