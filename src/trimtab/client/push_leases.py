"""Leases at the brokers: asked for over the connection on which the broker lists this member, and over no other."""

from collections.abc import Iterable
from typing import NamedTuple

from trimtab.client.session import Listed, Session
from trimtab.errors import NoRouteError, ProtocolError, ServerUnreachableError
from trimtab.model import MessageQueue
from trimtab.wire.bodies import LockBatchRequestBody, UnlockBatchRequestBody
from trimtab.wire.bodies.locks import LeaseBatchResponseBody
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body

ASK_S = 1.0


class Listing(NamedTuple):
    """News of how this member stands with a broker."""

    broker_name: str
    was_lost: bool
    """The connection on which it was listed is gone, or the broker was told that it leaves."""
    heard_ms: int | None
    """When the last heartbeat was acknowledged, if that is news."""


class Granted(NamedTuple):
    """What a broker granted."""

    queues: tuple[MessageQueue, ...]
    epochs: dict[MessageQueue, int]
    """Of each lease; nothing from Apache's brokers."""


def granted_of(answer: LeaseBatchResponseBody, wanted: tuple[MessageQueue, ...], broker_name: str) -> Granted:
    """An answer that grants what nobody asked for, or one thing twice, is worth nothing: no lease is built on it. PURE."""
    granted = answer.lock_ok_mq_set
    if len(set(granted)) != len(granted):
        raise ProtocolError(f"{broker_name} granted a lease twice in one answer; none of it counts")
    strange = set(granted).difference(wanted)
    if strange:
        raise ProtocolError(
            f"{broker_name} granted {len(strange)} lease(s) that were not asked for, {min(map(str, strange))} among them; none counts"
        )
    if answer.lease_epochs is None:
        return Granted(granted, {})
    if len(answer.lease_epochs) != len(granted):
        raise ProtocolError(
            f"{broker_name} granted {len(granted)} lease(s) with {len(answer.lease_epochs)} epoch(s); none counts"
        )
    return Granted(granted, dict(zip(granted, answer.lease_epochs, strict=True)))


class Leases:
    """The leases of one group's member."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._listed: dict[str, Listed] = {}
        """By broker name, the connection on which it lists this member, and when it said so last."""

    def listings(self) -> list[Listing]:
        """What changed since the last call."""
        news = []
        for address, name in self._session.masters().items():
            known = self._listed.get(name)
            listed = self._session.listed(address, self._group)
            was_lost = known is not None and (
                not known.connection.is_open or listed is None or listed.number != known.number
            )
            if was_lost:
                del self._listed[name]
                known = None
            is_news = listed is not None and listed.connection.is_open and listed != known
            if listed is not None and is_news:
                self._listed[name] = listed
            if was_lost or is_news:
                news.append(
                    Listing(name, was_lost, listed.heard_ms if listed is not None and is_news else None)
                )
        return news

    async def lock(self, broker_name: str, queues: Iterable[MessageQueue]) -> Granted:
        """Those of them that the broker grants."""
        wanted = tuple(queues)
        body = LockBatchRequestBody(
            consumer_group=self._group, client_id=self._session.client_id, mq_set=wanted
        )
        answer = await self._session.ask(
            self._address(broker_name, wanted), RequestCode.LOCK_BATCH_MQ, body=encode_body(body),
            asked=f"lease {len(wanted)} queues of {self._group} at {broker_name}", timeout_s=ASK_S,
        )  # fmt: skip
        return granted_of(decode_body(LeaseBatchResponseBody, answer.body), wanted, broker_name)

    async def unlock(
        self, broker_name: str, queues: Iterable[MessageQueue], *, owner: str | None = None
    ) -> None:
        """Gives leases up; in the name of another member, if one is named."""
        given = tuple(queues)
        body = UnlockBatchRequestBody(
            consumer_group=self._group, client_id=owner or self._session.client_id, mq_set=given
        )
        await self._session.ask(
            self._address(broker_name, given), RequestCode.UNLOCK_BATCH_MQ, body=encode_body(body),
            asked=f"give up {len(given)} leases of {self._group} at {broker_name}", timeout_s=ASK_S,
        )  # fmt: skip

    def _address(self, broker_name: str, queues: tuple[MessageQueue, ...]) -> str:
        """A broker whose connection is lost is not asked: what it grants over a new one would not count yet."""
        listed = self._listed.get(broker_name)
        if listed is None or not listed.connection.is_open:
            raise ServerUnreachableError(f"{broker_name} does not list this member of {self._group} now")
        if not queues:
            raise NoRouteError(f"no queue of {self._group} is at {broker_name}")
        return listed.connection.address
