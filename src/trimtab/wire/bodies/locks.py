"""Who may consume which queue in order."""

from msgspec import field

from trimtab.model import MessageQueue
from trimtab.wire.bodies.base import Body
from trimtab.wire.scalars import I64


class LockBatchRequestBody(Body, frozen=True, kw_only=True):
    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool | None = None


class UnlockBatchRequestBody(LockBatchRequestBody, frozen=True, kw_only=True):
    pass


class LockBatchResponseBody(Body, frozen=True, kw_only=True):
    """The queues that were granted, of those that were asked for."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = field(name="lockOKMQSet", default=())


class LeaseBatchResponseBody(LockBatchResponseBody, frozen=True, kw_only=True):
    """The same with the epoch of each lease beside it. Stock clients pass over the field, stock brokers do not have it."""

    lease_epochs: tuple[I64, ...] | None = None
