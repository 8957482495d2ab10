"""Who is there: heartbeats, goodbyes, and the list that every consumer computes its share from."""

import msgspec

from trimtab.balance.members import Changed, Manner, Member
from trimtab.broker import names
from trimtab.broker.core import BrokerCore
from trimtab.broker.names import retry_topic
from trimtab.broker.requests import BODY_BYTES_MAX, OK, Access, Answer, NoHeader, Refused, Request, handles
from trimtab.broker.sql92 import FilterSyntaxError, compile_sql92
from trimtab.errors import ProtocolError
from trimtab.model import Now
from trimtab.wire.bodies import (
    CheckClientRequestBody,
    Connection,
    ConsumeFromWhere,
    ConsumerConnectionAndLeases,
    ConsumerData,
    ConsumerIdList,
    ConsumeType,
    HeartbeatData,
    LeasesOf,
    MessageModel,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from trimtab.wire.codes import LanguageCode, RequestCode, ResponseCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import ProducerGroupOnly
from trimtab.wire.headers.consume import GroupAndLeases, GroupOnly, UnregisterClient
from trimtab.wire.resources import GROUP_LENGTH_MAX

LEASES_TOLD_MAX = 20_000
"""A group that has more is not told: its members share as well as leases alone allow."""


@handles(RequestCode.HEART_BEAT, header=NoHeader, access=Access(judged_by_handler=True))
def heartbeat(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """Registers the client's producers and consumers, and tells the members of groups that changed."""
    data = decode_body(HeartbeatData, request.command.body, body_bytes_max=BODY_BYTES_MAX)
    _refuse_too_much(core, data)
    _refuse_bad_names(data)
    consumers = [_with_possible_topics(consumer) for consumer in data.consumer_data_set]
    for consumer in consumers:
        topics = [subscription.topic for subscription in consumer.subscription_data_set]
        core.permit(request, groups=[consumer.group_name], consume=topics)
    member = Member(
        connection=request.peer.connection,
        client_id=data.client_id,
        language=request.command.language.name,
        version=request.command.version,
        address=request.peer.address,
        last_heartbeat_ms=request.now.monotonic_ms,
    )
    for consumer in consumers:
        _take_consumer(core, request, consumer, member)
    for producer in data.producer_data_set:
        core.producers.heartbeat(producer.group_name, member)
    return OK


def _refuse_too_much(core: BrokerCore, data: HeartbeatData) -> None:
    """Groups of producers, and of consumers where groups are not made by themselves, are known by heartbeats alone."""
    settings = core.settings
    sizes = [len(data.producer_data_set), len(data.consumer_data_set)]
    sizes += [len(consumer.subscription_data_set) for consumer in data.consumer_data_set]
    if max(sizes) > settings.members_max:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"a heartbeat speaks of at most {settings.members_max} groups, and of as many topics of each",
        )
    more_producers = sum(not core.producers.members(one.group_name) for one in data.producer_data_set)
    more_consumers = sum(core.consumers.get(one.group_name) is None for one in data.consumer_data_set)
    if (
        len(core.producers) + more_producers > settings.groups_max
        or len(core.consumers) + more_consumers > settings.groups_max
    ):
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"{settings.groups_max} groups are connected, the limit of this broker"
        )


def _refuse_bad_names(data: HeartbeatData) -> None:
    """Whatever a client is called, it is kept and shown to others."""
    plain = names.plain_complaint
    complaints = [plain("client id", data.client_id, names.CLIENT_ID_LENGTH_MAX)]
    complaints += [plain("group", one.group_name, GROUP_LENGTH_MAX) for one in data.producer_data_set]
    for consumer in data.consumer_data_set:
        complaints.append(names.group_complaint(consumer.group_name))
    complaint = next(filter(None, complaints), None)
    if complaint is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, complaint)


def _with_possible_topics(consumer: ConsumerData) -> ConsumerData:
    """Without subscriptions to topics that cannot exist. Clients do not check them, and all their groups come in one heartbeat:
    one odd name must not keep the others from being served.
    """
    possible = [one for one in consumer.subscription_data_set if names.address_complaint(one.topic) is None]
    return msgspec.structs.replace(consumer, subscription_data_set=tuple(possible))


def _take_consumer(core: BrokerCore, request: Request[NoHeader], data: ConsumerData, member: Member) -> None:
    group = core.find_or_create_group(data.group_name, request.now)
    if group is not None:
        core.ensure_topic(retry_topic(data.group_name), group.retry_queue_nums, request.now)
    manner = Manner(
        consume_type=data.consume_type or ConsumeType.CONSUME_PASSIVELY,
        message_model=data.message_model or MessageModel.CLUSTERING,
        consume_from_where=data.consume_from_where or ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    )
    core.filters.register(data.group_name, data.subscription_data_set)
    change = core.consumers.heartbeat(data.group_name, manner, member, data.subscription_data_set)
    if change is not None:
        _tell(core, change)


def _tell(core: BrokerCore, change: Changed) -> None:
    """Tells the members, unless the group is set to be quiet."""
    group = core.groups.get(change.group)
    if change.is_gone or group is None or group.notify_consumer_ids_changed_enable:
        core.tell_members(change)


@handles(RequestCode.UNREGISTER_CLIENT, header=UnregisterClient, access=Access(judged_by_handler=True))
def unregister_client(core: BrokerCore, request: Request[UnregisterClient]) -> Answer:
    """A client says goodbye for a producer group, a consumer group, or both."""
    header, connection = request.header, request.peer.connection
    core.permit(request, groups=[header.consumer_group] if header.consumer_group is not None else [])
    if header.producer_group is not None:
        core.producers.unregister(header.producer_group, connection)
    if header.consumer_group is not None:
        change = core.consumers.unregister(header.consumer_group, connection)
        if change is not None:
            _tell(core, change)
    return OK


@handles(
    RequestCode.GET_CONSUMER_LIST_BY_GROUP, header=GroupOnly, access=Access(consume_group="consumer_group")
)
def consumer_list(core: BrokerCore, request: Request[GroupOnly]) -> Answer:
    """The ids of a group's members."""
    group = core.consumers.get(request.header.consumer_group)
    if group is None:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {request.header.consumer_group}"
        )
    return Answer(body=encode_body(ConsumerIdList(consumer_id_list=tuple(group.client_ids()))))


@handles(RequestCode.CHECK_CLIENT_CONFIG, header=NoHeader, access=Access(judged_by_handler=True))
def check_client_config(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """Does the filter of this subscription compile?"""
    asked = decode_body(CheckClientRequestBody, request.command.body, body_bytes_max=BODY_BYTES_MAX)
    subscription = asked.subscription_data
    if subscription is None:
        raise ProtocolError("CHECK_CLIENT_CONFIG without a subscription")
    core.permit(request, groups=[asked.group or ""], consume=[subscription.topic])
    if subscription.expression_type not in (None, "", "TAG"):
        try:
            compile_sql92(subscription.sub_string or "")
        except FilterSyntaxError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
    return OK


def _connection_of(member: Member) -> Connection:
    return Connection(
        client_id=member.client_id,
        client_addr=member.address,
        language=LanguageCode.__members__.get(member.language),
        version=member.version,
    )


@handles(
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    header=GroupAndLeases,
    access=Access(consume_group="consumer_group"),
)
def consumer_connections(core: BrokerCore, request: Request[GroupAndLeases]) -> Answer:
    """Everything known of a group's members; for members of ours also who has which lease."""
    header = request.header
    group = core.consumers.get(header.consumer_group)
    if group is None:
        raise Refused(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"the consumer group[{header.consumer_group}] not online",
        )
    body = ConsumerConnectionAndLeases(
        connection_set=tuple(_connection_of(member) for member in group.members.values()),
        subscription_table=dict(group.subscriptions),
        consume_type=ConsumeType(group.manner.consume_type),
        message_model=MessageModel(group.manner.message_model),
        consume_from_where=ConsumeFromWhere(group.manner.consume_from_where),
        leases=_leases_of(core, header.consumer_group, request.now) if header.with_leases else None,
        lease_memory_ms=_lease_memory_ms(core, request.now) if header.with_leases else None,
    )
    return Answer(body=encode_body(body))


def _lease_memory_ms(core: BrokerCore, now: Now) -> int:
    """Leases are not kept over a restart; a store that is new has had none before."""
    if core.store.is_new:
        return core.settings.lease_ms
    return now.monotonic_ms - core.started.monotonic_ms


def _leases_of(core: BrokerCore, group: str, now: Now) -> tuple[LeasesOf, ...] | None:
    held = core.leases.held(group, now.monotonic_ms)
    if len(held) > LEASES_TOLD_MAX:
        return None
    by_member: dict[tuple[str, str], list[int]] = {}
    for queue, client_id in held.items():
        if queue.broker_name == core.settings.broker_name:
            by_member.setdefault((client_id, queue.topic), []).append(queue.queue_id)
    return tuple(
        LeasesOf(client_id=client_id, topic=topic, queue_ids=tuple(queue_ids))
        for (client_id, topic), queue_ids in by_member.items()
    )


@handles(RequestCode.GET_PRODUCER_CONNECTION_LIST, header=ProducerGroupOnly, access=Access(admin=True))
def producer_connections(core: BrokerCore, request: Request[ProducerGroupOnly]) -> Answer:
    """The connections of a producer group."""
    members = core.producers.members(request.header.producer_group)
    if not members:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the producer group[{request.header.producer_group}] not exist"
        )
    return Answer(body=encode_body(ProducerConnection(connection_set=tuple(map(_connection_of, members)))))


@handles(RequestCode.GET_ALL_PRODUCER_INFO, header=NoHeader, access=Access(admin=True))
def all_producers(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """Every producer that is connected, by group."""

    def info(member: Member) -> ProducerInfo:
        silent_ms = request.now.monotonic_ms - member.last_heartbeat_ms
        return ProducerInfo(
            client_id=member.client_id,
            remote_ip=member.address,
            language=LanguageCode.__members__.get(member.language),
            version=member.version,
            last_update_timestamp=request.now.wall_ms - silent_ms,
        )

    data = {group: tuple(info(member) for member in members) for group, members in core.producers}
    return Answer(body=encode_body(ProducerTableInfo(data=data)))
