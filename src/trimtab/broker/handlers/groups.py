"""Consumer groups as they are configured, and their offsets as a whole."""

from trimtab.broker.core import BrokerCore
from trimtab.broker.handlers.saving import answer_when_saved
from trimtab.broker.requests import OK, Access, Answer, Later, NoHeader, Refused, Request, handles
from trimtab.wire.bodies import (
    GroupList,
    QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody,
    SubscriptionGroupConfig,
    TopicList,
)
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import (
    CloneGroupOffset,
    DeleteSubscriptionGroup,
    GroupNamed,
    QueryCorrectionOffset,
    QuerySubscription,
    TopicOnly,
)

RETRIES_MAX = (1 << 31) - 1
"""For ever, as some set it."""
FOR_EVER = (1 << 63) - 1
"""The correction of a queue in which the compared group lies behind the others."""


@handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, header=NoHeader, access=Access(admin=True))
def create_group(core: BrokerCore, request: Request[NoHeader]) -> Later:
    """Makes or alters a group; answered when it is on disk."""
    group = decode_body(SubscriptionGroupConfig, request.command.body)
    queues_max = core.settings.queues_per_topic_max
    if not 0 <= group.retry_queue_nums <= queues_max:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"retryQueueNums is {group.retry_queue_nums}, it must be between 0 and {queues_max}",
        )
    if not -1 <= group.retry_max_times <= RETRIES_MAX:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"retryMaxTimes is {group.retry_max_times}, it must be between -1 and {RETRIES_MAX}",
        )
    core.groups.put(group, request.now)
    return answer_when_saved(
        core, request, lambda saved: core.states.save_groups(core.groups.snapshot(), saved)
    )


@handles(RequestCode.DELETE_SUBSCRIPTIONGROUP, header=DeleteSubscriptionGroup, access=Access(admin=True))
def delete_group(core: BrokerCore, request: Request[DeleteSubscriptionGroup]) -> Later:
    """Forgets a group, and its offsets if that is asked for."""
    header = request.header
    core.groups.remove(header.group_name, request.now)
    core.leases.drop_group(header.group_name)
    core.stats.drop_group(header.group_name)
    if header.remove_offset or header.clean_offset:
        core.offsets.drop_group(header.group_name)
        core.states.save_offsets(core.offsets)
    return answer_when_saved(
        core, request, lambda saved: core.states.save_groups(core.groups.snapshot(), saved)
    )


@handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header=NoHeader, access=Access(admin=True))
def all_groups(core: BrokerCore, _request: Request[NoHeader]) -> Answer:
    """Every group, and the version of them all."""
    return Answer(body=encode_body(core.groups.snapshot()))


@handles(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header=GroupNamed, access=Access(consume_group="group"))
def group_config(core: BrokerCore, request: Request[GroupNamed]) -> Answer:
    """One group. Asking for it does not make it."""
    name = request.header.group
    group = core.groups.get(name)
    if group is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker: {name}; create it first"
        )
    return Answer(body=encode_body(group))


@handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header=TopicOnly, access=Access(consume_topic="topic"))
def groups_of_topic(core: BrokerCore, request: Request[TopicOnly]) -> Answer:
    """The groups that consume a topic now, or once did."""
    topic = request.header.topic
    online = [group.name for group in core.consumers if topic in group.subscriptions]
    groups = dict.fromkeys(online + core.offsets.groups_of(topic))
    return Answer(body=encode_body(GroupList(group_list=tuple(groups))))


@handles(RequestCode.QUERY_TOPICS_BY_CONSUMER, header=GroupNamed, access=Access(consume_group="group"))
def topics_of_group(core: BrokerCore, request: Request[GroupNamed]) -> Answer:
    """The topics that a group has offsets of."""
    topics = tuple(core.offsets.topics_of(request.header.group))
    return Answer(body=encode_body(TopicList(topic_list=topics, broker_addr=core.address)))


@handles(
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header=QuerySubscription, access=Access(consume_group="group")
)
def subscription_of_group(core: BrokerCore, request: Request[QuerySubscription]) -> Answer:
    """What a group that is online has subscribed to of a topic."""
    header = request.header
    group = core.consumers.get(header.group)
    found = None if group is None or header.topic is None else group.subscriptions.get(header.topic)
    body = QuerySubscriptionResponseBody(group=header.group, topic=header.topic, subscription_data=found)
    return Answer(body=encode_body(body))


@handles(RequestCode.GET_ALL_CONSUMER_OFFSET, header=NoHeader, access=Access(admin=True))
def all_offsets(core: BrokerCore, _request: Request[NoHeader]) -> Answer:
    """How far every group has come in every queue."""
    return Answer(body=encode_body(core.offsets.snapshot()))


@handles(RequestCode.CLONE_GROUP_OFFSET, header=CloneGroupOffset, access=Access(admin=True))
def clone_offsets(core: BrokerCore, request: Request[CloneGroupOffset]) -> Answer:
    """Gives one group the offsets of another, in one topic or in all that it consumes."""
    header = request.header
    source = None if header.offline else core.consumers.get(header.src_group)
    for topic in [header.topic] if header.topic else core.offsets.topics_of(header.src_group):
        is_left = source is not None and topic not in source.subscriptions
        if topic in core.topics and not is_left:
            core.offsets.clone(header.src_group, header.dest_group, topic)
    return OK


@handles(
    RequestCode.QUERY_CORRECTION_OFFSET,
    header=QueryCorrectionOffset,
    access=Access(consume_topic="topic", consume_group="compare_group"),
)
def correction_offsets(core: BrokerCore, request: Request[QueryCorrectionOffset]) -> Answer:
    """The lowest offset of all groups in each queue; without bound where the compared group lies below it."""
    header = request.header
    left_out = (header.filter_groups or "").split(",")
    lowest: dict[int, int] = {}
    for group in core.offsets.groups_of(header.topic):
        if group in left_out:
            continue
        for queue_id, offset in core.offsets.of(group, header.topic).items():
            if offset >= core.store.min_offset(header.topic, queue_id):
                lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
    for queue_id, offset in core.offsets.of(header.compare_group, header.topic).items():
        if lowest.get(queue_id, FOR_EVER) > offset:
            lowest[queue_id] = FOR_EVER
    return Answer(body=encode_body(QueryCorrectionOffsetBody(correction_offsets=lowest)))
