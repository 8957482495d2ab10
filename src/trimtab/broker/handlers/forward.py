"""Questions of tools that only a client can answer: the broker passes them on, and the answers back."""

from collections.abc import Callable

from trimtab.balance.members import ConsumerGroup, Member
from trimtab.broker.core import BrokerCore, at_stop
from trimtab.broker.later import reply
from trimtab.broker.requests import LATER, Access, Answer, Later, Refused, Request, handles
from trimtab.broker.store import TimeRule
from trimtab.broker.store.errors import StoreDamagedError
from trimtab.errors import ProtocolError
from trimtab.model import MessageQueue, Now
from trimtab.wire.bodies import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    SubscriptionData,
    TopicConfig,
)
from trimtab.wire.codes import LanguageCode, RequestCode, ResponseCode, Version
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body
from trimtab.wire.headers.admin import GetConsumerStatus, ResetOffset
from trimtab.wire.headers.base import Header
from trimtab.wire.headers.callbacks import ConsumeMessageDirectly, GetInfoOfOurs
from trimtab.wire.ids import decode_offset_message_id
from trimtab.wire.messages import StoredMessage

STATUS_MS_MAX = 5_000
NEVER_MS = 1 << 62
TO_THE_END = -1
"""As a timestamp of a reset: behind the last message."""


@handles(
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    header=GetInfoOfOurs,
    access=Access(consume_group="consumer_group"),
)
def consumer_running_info(core: BrokerCore, request: Request[GetInfoOfOurs]) -> Later:
    """What a consumer says of its inner state; or a producer, for who asks for one."""
    header = request.header
    named = _producer_named if header.of_producer else _member_named
    member = named(core, header.consumer_group, header.client_id)
    _pass_on(core, request, member, header, b"")
    return LATER


@handles(RequestCode.CONSUME_MESSAGE_DIRECTLY, header=ConsumeMessageDirectly, access=Access(admin=True))
def consume_directly(core: BrokerCore, request: Request[ConsumeMessageDirectly]) -> Later:
    """Lets a consumer handle one message, now, and says what came of it."""
    header = request.header
    message = _message_with_id(core, header.msg_id or "")
    member = _member_named(core, header.consumer_group, header.client_id or "")
    passed = ConsumeMessageDirectly(
        consumer_group=header.consumer_group,
        client_id=header.client_id,
        msg_id=header.msg_id,
        broker_name=core.settings.broker_name,
        topic=header.topic,
    )
    _pass_on(core, request, member, passed, message.stored_bytes)
    return LATER


def _message_with_id(core: BrokerCore, msg_id: str) -> StoredMessage:
    try:
        message = core.store.message_at(decode_offset_message_id(msg_id).physical_offset)
    except (ProtocolError, StoreDamagedError) as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    if message is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no message {msg_id[:80]} lies here")
    return message


def _member_named(core: BrokerCore, group: str, client_id: str) -> Member:
    known = core.consumers.get(group)
    member = None if known is None else known.member_named(client_id)
    if member is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
    if member.version < Version.V3_1_8_SNAPSHOT:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
        )
    return member


def _producer_named(core: BrokerCore, group: str, client_id: str) -> Member:
    found = [one for one in core.producers.members(group) if one.client_id == client_id]
    if not found:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"The Producer <{group}> <{client_id}> not online")
    return found[-1]


def _pass_on(
    core: BrokerCore,
    request: Request[GetInfoOfOurs] | Request[ConsumeMessageDirectly],
    member: Member,
    header: Header,
    body: bytes,
) -> None:
    group = request.header.consumer_group

    def answered(answer: Command | None) -> None:
        if answer is not None:
            reply(core, request, Answer(answer.code, body=answer.body, remark=answer.remark))
        elif member.connection in core.peers:
            text = f"consumer <{group}> <{member.client_id}> Timeout: it did not answer in time"
            reply(core, request, Answer(ResponseCode.CONSUME_MSG_TIMEOUT, remark=text))
        else:
            text = f"invoke consumer <{group}> <{member.client_id}> Exception: its connection is closed"
            reply(core, request, Answer(ResponseCode.SYSTEM_ERROR, remark=text))

    core.ask(member.connection, RequestCode(request.command.code), header, body, request.now, answered)


# --- resetting offsets


@handles(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header=ResetOffset, access=Access(admin=True))
def reset_offset(core: BrokerCore, request: Request[ResetOffset]) -> Answer:
    """Moves a group to a time. A 4.9 broker leaves it to the consumers and needs one; a 5.x one does it itself.

    Here the age of the tool decides. In both cases the consumers that are there are told, so that they go on from the new
    offsets instead of committing their own ones over them.
    """
    header = request.header
    group = core.consumers.get(header.group)
    members = [] if group is None else _able(list(group.members.values()))
    if request.command.version >= Version.V5_0_0:
        table = _offsets_for_5(core, header)
        for queue, offset in table.items():
            core.offsets.commit(header.group, header.topic, queue.queue_id, offset)
    else:
        table = _offsets_for_4(core, header)
        if not members:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic}"
                f" Timestamp: {header.timestamp}",
            )
    told = ResetOffset(topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=False)
    body = _reset_body(table, is_cpp=request.command.language is LanguageCode.CPP)
    for member in members:
        core.tell(member.connection, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, body)
    return Answer(body=encode_body(ResetOffsetBody(offset_table=table)))


def _offsets_for_4(core: BrokerCore, header: ResetOffset) -> dict[MessageQueue, int]:
    topic = core.topics.get(header.topic)
    if topic is None:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
        )
    table = {}
    for queue_id in range(topic.write_queue_nums):
        committed = core.offsets.get(header.group, header.topic, queue_id)
        if committed is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
        wanted = _offset_at(core, header, queue_id, TimeRule.NEAREST)
        table[_queue(core, header, queue_id)] = wanted if header.is_force else min(wanted, committed)
    return table


def _offsets_for_5(core: BrokerCore, header: ResetOffset) -> dict[MessageQueue, int]:
    topic = core.require_topic(header.topic)
    if core.groups.get(header.group) is None:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
    if header.queue_id is None or header.queue_id < 0:
        return {
            _queue(core, header, queue_id): _offset_at(core, header, queue_id, TimeRule.LOWER)
            for queue_id in range(topic.read_queue_nums)
        }
    return {_queue(core, header, header.queue_id): _offset_in_one_queue(core, header, topic, header.queue_id)}


def _offset_in_one_queue(core: BrokerCore, header: ResetOffset, topic: TopicConfig, queue_id: int) -> int:
    if queue_id >= topic.read_queue_nums:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"topic {header.topic} has {topic.read_queue_nums} queues, no queue {queue_id}",
        )
    if header.offset is None or header.offset == TO_THE_END:
        return _offset_at(core, header, queue_id, TimeRule.LOWER)
    low, high = core.store.min_offset(header.topic, queue_id), core.store.max_offset(header.topic, queue_id)
    if not low <= header.offset <= high:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"Target offset {header.offset} not in consume queue range [{low}-{high}]",
        )
    return header.offset


def _queue(core: BrokerCore, header: ResetOffset, queue_id: int) -> MessageQueue:
    return MessageQueue(header.topic, core.settings.broker_name, queue_id)


def _offset_at(core: BrokerCore, header: ResetOffset, queue_id: int, rule: TimeRule) -> int:
    """4.9 goes to the nearest message, so never behind the last one; 5.x to the first one that is not older."""
    if header.timestamp < 0:
        return core.store.max_offset(header.topic, queue_id)
    return max(0, core.store.offset_by_time(header.topic, queue_id, header.timestamp, rule))


def _reset_body(table: dict[MessageQueue, int], *, is_cpp: bool) -> bytes:
    """In the JSON that the tool's own language reads, as Apache's broker has it."""
    if not is_cpp:
        return encode_body(ResetOffsetBody(offset_table=table))
    queues = (
        MessageQueueForC(
            topic=each.topic, broker_name=each.broker_name, queue_id=each.queue_id, offset=offset
        )
        for each, offset in table.items()
    )
    return encode_body(ResetOffsetBodyForC(offset_table=tuple(queues)))


def _able(members: list[Member]) -> list[Member]:
    """These members, if they all know what they will be asked."""
    for member in members:
        if member.version < Version.V3_0_7_SNAPSHOT:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={member.version}",
            )
    return members


# --- collecting offsets from clients


@handles(
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    header=GetConsumerStatus,
    access=Access(consume_topic="topic", consume_group="group"),
)
def consumer_status(core: BrokerCore, request: Request[GetConsumerStatus]) -> Later:
    """The offsets that the members of a group have in memory; who does not answer in time is left out."""
    header = request.header
    group = core.consumers.get(header.group)
    if group is None:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
        )
    members = _members_asked(group, header.client_addr)
    found: dict[str, dict[MessageQueue, int]] = {}
    awaited = len(members)

    def answered_by(member: Member) -> Callable[[Command | None], None]:
        def answered(answer: Command | None) -> None:
            nonlocal awaited
            awaited -= 1
            table = _status_in(answer)
            if table is not None:
                found[member.client_id] = table
            if not awaited:
                _reply_status(core, request, found)

        return answered

    question = GetConsumerStatus(topic=header.topic, group=header.group)
    for member in members:
        core.ask(
            member.connection,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            question,
            b"",
            request.now,
            answered_by(member),
            STATUS_MS_MAX,
        )
    if not members:
        _reply_status(core, request, found)
    return LATER


def _members_asked(group: ConsumerGroup[SubscriptionData], client_id: str | None) -> list[Member]:
    """All, or the one with that id: its field is called an address and holds an id."""
    if not client_id:
        return _able(list(group.members.values()))
    member = group.member_named(client_id)
    return [] if member is None else _able([member])


def _status_in(answer: Command | None) -> dict[MessageQueue, int] | None:
    if answer is None or answer.code != ResponseCode.SUCCESS or not answer.body:
        return None
    try:
        return decode_body(GetConsumerStatusBody, answer.body).message_queue_table
    except ProtocolError:
        return None  # one that talks nonsense must not keep the others' answers from the asker


def _reply_status(
    core: BrokerCore, request: Request[GetConsumerStatus], found: dict[str, dict[MessageQueue, int]]
) -> None:
    reply(core, request, Answer(body=encode_body(GetConsumerStatusBody(consumer_table=found))))


@at_stop
def give_up_questions(core: BrokerCore, _now: Now) -> None:
    """Whoever waits for a client's answer is told that none will come."""
    core.conversations.expire(NEVER_MS)
