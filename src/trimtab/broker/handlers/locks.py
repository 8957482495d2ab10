"""Leases on queues."""

from trimtab.balance.ordered import TRUSTED_MS
from trimtab.broker import names
from trimtab.broker.core import BrokerCore
from trimtab.broker.requests import BODY_BYTES_MAX, OK, Access, Answer, NoHeader, Refused, Request, handles
from trimtab.wire.bodies import LockBatchRequestBody, UnlockBatchRequestBody
from trimtab.wire.bodies.locks import LeaseBatchResponseBody
from trimtab.wire.codes import RequestCode, ResponseCode, keeps_leases
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body


@handles(RequestCode.LOCK_BATCH_MQ, header=NoHeader, access=Access(judged_by_handler=True))
def lock_batch(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """Grants or renews leases; the answer lists those that the client has, and the epoch of each."""
    asked = decode_body(LockBatchRequestBody, request.command.body, body_bytes_max=BODY_BYTES_MAX)
    core.permit(request, groups=[asked.consumer_group])
    _refuse_bad_names(asked)
    now_ms = request.now.monotonic_ms
    new = sum(core.leases.holder(asked.consumer_group, queue, now_ms) is None for queue in asked.mq_set)
    if new and len(core.leases) + new > core.settings.leases_max:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"{core.settings.leases_max} queues are leased, the limit of this broker",
        )
    granted = core.leases.lock(
        asked.consumer_group,
        asked.client_id,
        request.peer.connection,
        asked.mq_set,
        now_ms,
        trusted_ms=_trusted_ms(core, asked.consumer_group, request.peer.connection),
    )
    epochs = core.leases.epochs(asked.consumer_group, granted)
    return Answer(
        body=encode_body(LeaseBatchResponseBody(lock_ok_mq_set=tuple(granted), lease_epochs=epochs))
    )


def _trusted_ms(core: BrokerCore, group: str, connection: int) -> int:
    """Members of ours that keep leases trust none without its connection; all others go on as Java's client does."""
    found = core.consumers.get(group)
    member = None if found is None else found.members.get(connection)
    return 0 if member is None or keeps_leases(member.language, member.version) else TRUSTED_MS


def _refuse_bad_names(asked: LockBatchRequestBody) -> None:
    """Leases are bounded by their number, so what each is of must be bounded too."""
    complaint = names.group_complaint(asked.consumer_group) or names.plain_complaint(
        "client id", asked.client_id, names.CLIENT_ID_LENGTH_MAX
    )
    for queue in asked.mq_set:
        complaint = (
            complaint
            or names.address_complaint(queue.topic)
            or names.plain_complaint("broker name", queue.broker_name, names.BROKER_NAME_LENGTH_MAX)
        )
    if complaint is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, complaint)


@handles(RequestCode.UNLOCK_BATCH_MQ, header=NoHeader, access=Access(judged_by_handler=True))
def unlock_batch(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """Gives leases up."""
    asked = decode_body(UnlockBatchRequestBody, request.command.body, body_bytes_max=BODY_BYTES_MAX)
    core.permit(request, groups=[asked.consumer_group])
    core.leases.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
    return OK
