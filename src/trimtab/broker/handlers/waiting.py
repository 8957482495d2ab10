"""What waits for its time: delivering it, and taking a timer message back."""

from trimtab.broker.core import BrokerCore, at_stop, chore
from trimtab.broker.handlers.send import put
from trimtab.broker.later import reply_when_visible
from trimtab.broker.placing import TIMER_DEL_UNIQKEY, TIMER_DELIVER_MS, Incoming
from trimtab.broker.recalls import decode_recall_handle
from trimtab.broker.requests import LATER, Access, Answer, Later, Refused, Request, handles
from trimtab.model import Now
from trimtab.wire import properties as keys
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.send import RecallMessage, RecallMessageResponse

RECALL_TAG = "_RECALL_TAG_"


@chore
def deliver_delayed(core: BrokerCore, now: Now) -> None:
    """By level."""
    core.delays.deliver(core, now)


@chore
def deliver_timers(core: BrokerCore, now: Now) -> None:
    """By time."""
    core.timers.deliver(core, now)


@at_stop
def save_cursors(core: BrokerCore, now: Now) -> None:
    """So that the next start has nothing to look for."""
    core.finish(now)
    core.delays.save(core, now)
    core.timers.save(core, now)


@handles(RequestCode.RECALL_MESSAGE, header=RecallMessage, access=Access(publish_topic="topic"))
def recall_message(core: BrokerCore, request: Request[RecallMessage]) -> Answer | Later:
    """Stores a message that takes a timer message of the same topic back when its second comes."""
    header, now = request.header, request.now
    core.require_topic(header.topic)
    handle = decode_recall_handle(header.recall_handle)
    if header.topic != handle.topic:
        raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
    if handle.broker_name != core.settings.broker_name:
        raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, the message lies on another broker")
    if not 0 < handle.deliver_ms - now.wall_ms < core.settings.timer_ms_max:
        raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
    properties = {
        keys.TAGS: RECALL_TAG,
        TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_id}",
        keys.UNIQ_KEY: handle.unique_id,
        TIMER_DELIVER_MS: str(handle.deliver_ms),
    }
    if header.producer_group:
        properties[keys.PRODUCER_GROUP] = header.producer_group
    incoming = Incoming(
        topic=header.topic,
        queue_id=0,
        body=b"0",
        properties=properties,
        born_timestamp=now.wall_ms,
        born_host=request.peer.host,
    )
    appended = put(core, incoming, now)
    answer = Answer(header=RecallMessageResponse(msg_id=handle.unique_id))
    reply_when_visible(core, request, appended.end, answer)
    return LATER
