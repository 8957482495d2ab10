"""Answers to requests: a client sends one to the broker, which hands it to the client that asked."""

from dataclasses import dataclass
from typing import Any

import msgspec

from trimtab.broker.core import BrokerCore
from trimtab.broker.handlers.send import put, queue_for_sending
from trimtab.broker.later import reply
from trimtab.broker.placing import Incoming
from trimtab.broker.requests import LATER, Access, Answer, Later, Refused, Request, handles
from trimtab.broker.store import Appended, StoreError
from trimtab.errors import InvalidMessageError
from trimtab.model import Now
from trimtab.wire import properties as keys
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.callbacks import PushReplyMessage
from trimtab.wire.headers.send import SendMessage, SendMessageResponse, SendMessageV2
from trimtab.wire.ids import offset_message_id
from trimtab.wire.messages import TRANSACTION_MASK
from trimtab.wire.properties import decode_properties, encode_properties

TRACE_ON = "true"


@handles(RequestCode.SEND_REPLY_MESSAGE_V2, header=SendMessageV2, access=Access(publish_topic="topic"))
def send_reply_v2(core: BrokerCore, request: Request[SendMessageV2]) -> Later:
    """An answer, with the short names."""
    _take(core, request, request.header)
    return LATER


@handles(RequestCode.SEND_REPLY_MESSAGE, header=SendMessage, access=Access(publish_topic="topic"))
def send_reply(core: BrokerCore, request: Request[SendMessage]) -> Later:
    """An answer, with the long names."""
    _take(core, request, SendMessageV2(**msgspec.structs.asdict(request.header)))
    return LATER


@dataclass(slots=True)
class _Outcome:
    """Two things that happen in any order: the requester takes the answer, and the store keeps it."""

    queue_id: int
    stored: Appended | None
    is_settled: bool
    complaint: str | None = None
    is_pushed: bool = False


def _take(core: BrokerCore, request: Request[Any], header: SendMessageV2) -> None:
    queue_id = queue_for_sending(core, header, request.now)
    properties = decode_properties((header.properties or "").encode())
    try:
        told = _push_header(core, request, header, properties)
    except InvalidMessageError as error:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
    stored = _store(core, request, header, queue_id, properties)
    outcome = _Outcome(queue_id, stored, is_settled=stored is None)
    if stored is not None:
        _wait_for_store(core, request, stored, outcome)
    _push(core, request, told, properties.get(keys.REPLY_TO_CLIENT), outcome)


def _store(
    core: BrokerCore, request: Request[Any], header: SendMessageV2, queue_id: int, properties: dict[str, str]
) -> Appended | None:
    """Keeps the answer; one that cannot be kept is handed over all the same."""
    incoming = Incoming(
        topic=header.topic,
        queue_id=queue_id,
        body=request.command.body,
        properties={name: value for name, value in properties.items() if name != keys.WAIT},
        born_timestamp=header.born_timestamp,
        born_host=request.peer.host,
        flag=header.flag,
        sys_flag=header.sys_flag & ~TRANSACTION_MASK,
        reconsume_times=header.reconsume_times or 0,
    )
    try:
        return put(core, incoming, request.now)
    except Refused:
        return None


def _wait_for_store(core: BrokerCore, request: Request[Any], stored: Appended, outcome: _Outcome) -> None:
    def settled(failure: StoreError | None, _now: Now) -> None:
        outcome.is_settled = True
        if failure is not None:
            outcome.stored = None
        _reply_if_complete(core, request, outcome)

    core.writes.then(stored.end, settled)


def _push(
    core: BrokerCore, request: Request[Any], told: PushReplyMessage, requester: str | None, outcome: _Outcome
) -> None:
    def pushed(complaint: str | None) -> None:
        outcome.is_pushed, outcome.complaint = True, complaint
        _reply_if_complete(core, request, outcome)

    if requester is None:
        pushed(f"reply message properties[{keys.REPLY_TO_CLIENT}] is null")
        return
    connection = core.producers.connection_of(requester)
    if connection is None:
        pushed(f"push reply message fail, channel of <{requester}> not found.")
        return

    def answered(answer: Command | None) -> None:
        taken = answer is not None and answer.code == ResponseCode.SUCCESS
        pushed(None if taken else f"push reply message to {requester}fail.")

    code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    core.ask(connection, code, told, request.command.body, request.now, answered)


def _push_header(
    core: BrokerCore, request: Request[Any], header: SendMessageV2, properties: dict[str, str]
) -> PushReplyMessage:
    properties = properties | {keys.PUSH_REPLY_TIME: str(request.now.wall_ms)}
    return PushReplyMessage(
        producer_group=header.producer_group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        flag=header.flag,
        properties=encode_properties(properties).decode(),
        reconsume_times=header.reconsume_times,
        unit_mode=header.unit_mode,
        born_host=request.peer.address,
        store_host=core.address,
        store_timestamp=request.now.wall_ms,
    )


def _reply_if_complete(core: BrokerCore, request: Request[Any], outcome: _Outcome) -> None:
    if not outcome.is_pushed or not outcome.is_settled:
        return
    stored = outcome.stored
    header = SendMessageResponse(
        msg_id="0" if stored is None else offset_message_id(core.store_host, stored.physical_offset),
        queue_id=outcome.queue_id,
        queue_offset=0 if stored is None else stored.queue_offset,
        region=core.settings.region,
        trace_on=TRACE_ON,
    )
    code = ResponseCode.SUCCESS if outcome.complaint is None else ResponseCode.SYSTEM_ERROR
    reply(core, request, Answer(code, header=header, remark=outcome.complaint))
