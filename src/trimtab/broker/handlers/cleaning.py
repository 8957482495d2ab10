"""Letting go what nobody needs any more."""

from trimtab.broker.core import BrokerCore, chore
from trimtab.broker.requests import OK, Access, Answer, NoHeader, Request, handles
from trimtab.broker.store.errors import StoreError
from trimtab.model import Now
from trimtab.wire.codes import RequestCode

RETAIN_EVERY_MS = 60_000


@handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, header=NoHeader, access=Access(admin=True))
def clean_queues(_core: BrokerCore, _request: Request[NoHeader]) -> Answer:
    """Nothing to do: queues are shortened together with the log."""
    return OK


@handles(RequestCode.CLEAN_UNUSED_TOPIC, header=NoHeader, access=Access(admin=True))
def clean_topics(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """Forgets the messages of topics that do not exist any more."""
    core.finish(request.now)
    for topic in core.store.topics():
        if topic not in core.topics:
            core.store.delete_topic(topic)
    return OK


@handles(RequestCode.DELETE_EXPIRED_COMMITLOG, header=NoHeader, access=Access(admin=True))
def delete_expired(core: BrokerCore, request: Request[NoHeader]) -> Answer:
    """Lets old messages go now, by the same rule as otherwise every minute."""
    core.store.retain(request.now.wall_ms, keep_from=_first_waiting_place(core))
    return OK


def _first_waiting_place(core: BrokerCore) -> int | None:
    """A message that waits for its time, or for the end of its transaction, was acknowledged and has not been seen: it is
    kept, however old it is. Transactions end by themselves after `transaction_ms_max`.
    """
    places = (
        core.delays.first_place(core),
        core.timers.first_place(core),
        core.transactions.first_place(core),
    )
    return min((place for place in places if place is not None), default=None)


@chore
def let_old_messages_go(core: BrokerCore, now: Now) -> None:
    """What is older than the store's settings keep."""
    if now.monotonic_ms - core.retained_ms < RETAIN_EVERY_MS:
        return
    core.retained_ms = now.monotonic_ms
    try:
        core.store.retain(now.wall_ms, keep_from=_first_waiting_place(core))
    except StoreError as error:
        core.incidents.append((RequestCode.DELETE_EXPIRED_COMMITLOG, error))
