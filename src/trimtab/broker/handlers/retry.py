"""Messages that a consumer could not handle: once more later, or to the dead letters."""

from trimtab.broker import names
from trimtab.broker.core import BrokerCore
from trimtab.broker.handlers.send import DLQ_QUEUES, put
from trimtab.broker.later import reply_when_visible
from trimtab.broker.placing import Incoming
from trimtab.broker.requests import LATER, OK, Access, Answer, Later, Refused, Request, handles
from trimtab.broker.store.errors import StoreDamagedError
from trimtab.wire import properties as keys
from trimtab.wire.bodies import SubscriptionGroupConfig
from trimtab.wire.codes import RequestCode, ResponseCode, Version
from trimtab.wire.headers.send import ConsumerSendMsgBack
from trimtab.wire.messages import StoredMessage

FIRST_RETRY_LEVEL = 3
"""The level of the first retry, when the consumer leaves it to the broker: each further one waits a level longer."""


@handles(RequestCode.CONSUMER_SEND_MSG_BACK, header=ConsumerSendMsgBack, access=Access(consume_group="group"))
def send_back(core: BrokerCore, request: Request[ConsumerSendMsgBack]) -> Answer | Later:
    """Stores the message once more for its group, and answers when that is done."""
    header, now = request.header, request.now
    group = core.find_or_create_group(header.group, now)
    if group is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {header.group}: create it first",
        )
    if group.retry_queue_nums <= 0:
        return OK
    topic = core.ensure_topic(names.retry_topic(header.group), group.retry_queue_nums, now)
    if not topic.perm & names.PERM_WRITE:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden"
        )
    message = _message_at(core, header.offset)
    core.permit(request, consume=[message.topic])  # or it could be read as a message of one's own group
    if tries_are_over(message, header, group, request.command.version):
        incoming = _dead_letter(core, request, message)
    else:
        queue_id = core.chance.randrange(group.retry_queue_nums)
        level = header.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        incoming = again(message, topic.topic_name, queue_id, level)
    appended = put(core, incoming, now)
    core.stats.sent_back(incoming.properties[keys.RETRY_TOPIC], header.group)
    reply_when_visible(core, request, appended.end, OK)
    return LATER


def _message_at(core: BrokerCore, offset: int) -> StoredMessage:
    try:
        message = core.store.message_at(offset)
    except StoreDamagedError as damage:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(damage)) from damage
    if message is None or message.topic in names.NO_CLIENT_SENDS_TO:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
    return message


def tries_are_over(
    message: StoredMessage, header: ConsumerSendMsgBack, group: SubscriptionGroupConfig, version: int
) -> bool:
    """Whether the message goes to the dead letters: it was tried too often, or the consumer says so."""
    tries_max = group.retry_max_times
    if header.max_reconsume_times is not None and version >= Version.V3_4_9:
        tries_max = header.max_reconsume_times
    return message.reconsume_times >= tries_max or header.delay_level < 0


def _dead_letter(core: BrokerCore, request: Request[ConsumerSendMsgBack], message: StoredMessage) -> Incoming:
    topic = names.dlq_topic(request.header.group)
    core.ensure_topic(topic, DLQ_QUEUES, request.now)
    return again(message, topic, core.chance.randrange(DLQ_QUEUES), 0)


def again(message: StoredMessage, topic: str, queue_id: int, level: int) -> Incoming:
    """The message as it is tried again. It keeps its first id and its first topic through all tries."""
    properties = dict(message.properties)
    properties.setdefault(keys.RETRY_TOPIC, message.topic)
    properties.setdefault(keys.ORIGIN_MESSAGE_ID, message.offset_message_id)
    properties |= {keys.WAIT: "false", keys.DELAY: str(level)}
    return Incoming(
        topic=topic,
        queue_id=queue_id,
        body=message.stored_body,
        properties=properties,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host_bytes,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times + 1,
    )
