"""The ends of transactions, and the questions about those that have none."""

from trimtab.broker import names
from trimtab.broker.copies import append_copy, destination_of
from trimtab.broker.core import BrokerCore, chore, on_growth
from trimtab.broker.later import reply_when_visible
from trimtab.broker.requests import LATER, OK, Access, Answer, Later, Refused, Request, handles
from trimtab.broker.store.errors import StoreDamagedError, StoreError
from trimtab.broker.transactions import Half, half_anew
from trimtab.errors import InvalidMessageError, ProtocolError
from trimtab.model import Now
from trimtab.wire import properties as keys
from trimtab.wire.codes import RequestCode, ResponseCode
from trimtab.wire.headers.admin import ResumeCheckHalfMessage
from trimtab.wire.headers.send import EndTransaction
from trimtab.wire.ids import decode_offset_message_id
from trimtab.wire.messages import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, StoredMessage


@handles(RequestCode.END_TRANSACTION, header=EndTransaction, access=Access(judged_by_handler=True))
def end_transaction(core: BrokerCore, request: Request[EndTransaction]) -> Answer | Later:
    """Shows the half message to everybody, or to nobody ever. A producer that does not know yet is asked later."""
    header, now = request.header, request.now
    if header.commit_or_rollback == 0:
        return LATER
    if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        raise Refused(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")
    half = _open_half(core, request)
    is_commit = header.commit_or_rollback == TRANSACTION_COMMIT
    run = core.transactions.commit if is_commit else core.transactions.roll_back
    try:
        end = run(core, half, now)
    except InvalidMessageError as error:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
    except StoreError as error:
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
    reply_when_visible(core, request, end, OK)
    return LATER


def _open_half(core: BrokerCore, request: Request[EndTransaction]) -> Half:
    header = request.header
    message = _message_at(core, header.commit_log_offset)
    if message is None or message.topic != names.HALF_TOPIC:
        raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    destination = destination_of(message)
    core.permit(request, publish=[] if destination is None else [destination[0]])
    if message.properties.get(keys.PRODUCER_GROUP) != header.producer_group:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if message.queue_offset != header.tran_state_table_offset:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    half = core.transactions.find(core, message)
    if half is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction has ended before")
    return half


def _message_at(core: BrokerCore, offset: int) -> StoredMessage | None:
    try:
        return core.store.message_at(offset)
    except StoreDamagedError as damage:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(damage)) from damage


@handles(RequestCode.RESUME_CHECK_HALF_MESSAGE, header=ResumeCheckHalfMessage, access=Access(admin=True))
def resume_check(core: BrokerCore, request: Request[ResumeCheckHalfMessage]) -> Answer | Later:
    """A transaction that was given up gets another chance."""
    try:
        offset = decode_offset_message_id(request.header.msg_id).physical_offset
    except ProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    message = _message_at(core, offset)
    if message is None or message.topic not in (names.CHECK_MAX_TOPIC, names.HALF_TOPIC):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"no half message, and none that was given up, lies at {request.header.msg_id}",
        )
    try:
        if message.topic == names.HALF_TOPIC:
            half = core.transactions.find(core, message)
            if half is None:
                raise Refused(ResponseCode.SYSTEM_ERROR, "the transaction has ended; it cannot be resumed")
            end = core.transactions.resume(core, half, request.now)
        else:
            end = append_copy(core, half_anew(message), request.now).end
    except (StoreError, InvalidMessageError) as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    reply_when_visible(core, request, end, OK)
    return LATER


@on_growth
def note_half_messages(core: BrokerCore, topic: str, _queue_id: int, _now: Now) -> None:
    """New half messages are open transactions."""
    if topic == names.HALF_TOPIC:
        core.transactions.catch_up(core)


@chore
def check_transactions(core: BrokerCore, now: Now) -> None:
    """Asks silent producers."""
    core.transactions.check(core, now)
