"""Locks of queues at their brokers, for ordered consumption."""

import asyncio
import logging
from collections.abc import Iterable

from trimtab.client.session import Session
from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue
from trimtab.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from trimtab.wire.codes import RequestCode
from trimtab.wire.fastjson import decode_body
from trimtab.wire.fastjson_writer import encode_body

_log = logging.getLogger(__name__)

LOCK_S = 1.0


class Locks:
    """Asks for the locks of one group's member."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Granted or refused; a queue whose broker did not answer is in neither state and not in the answer."""
        answers = await asyncio.gather(*(self._lock_at(some) for some in _by_broker(queues)))
        return {queue: granted for answer in answers for queue, granted in answer.items()}

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Gives locks up; back when the brokers know."""
        await asyncio.gather(*(self._unlock_at(some) for some in _by_broker(queues)))

    async def _lock_at(self, queues: list[MessageQueue]) -> dict[MessageQueue, bool]:
        body = LockBatchRequestBody(
            consumer_group=self._group, client_id=self._session.client_id, mq_set=tuple(queues)
        )
        try:
            answer = await self._session.ask(
                await self._session.master_of(queues[0]), RequestCode.LOCK_BATCH_MQ, body=encode_body(body),
                asked=f"lock {len(queues)} queues of {self._group}", timeout_s=LOCK_S,
            )  # fmt: skip
            granted = set(decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set)
        except TrimtabError as error:
            _log.warning("%d queues of %s were not locked: %s", len(queues), self._group, error)
            return {}
        return {queue: queue in granted for queue in queues}

    async def _unlock_at(self, queues: list[MessageQueue]) -> None:
        body = UnlockBatchRequestBody(
            consumer_group=self._group, client_id=self._session.client_id, mq_set=tuple(queues)
        )
        try:
            await self._session.ask(
                await self._session.master_of(queues[0]), RequestCode.UNLOCK_BATCH_MQ, body=encode_body(body),
                asked=f"unlock {len(queues)} queues of {self._group}", timeout_s=LOCK_S,
            )  # fmt: skip
        except TrimtabError as error:
            _log.warning("%d queues of %s were not unlocked: %s", len(queues), self._group, error)


def _by_broker(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    by_broker: dict[tuple[str, str], list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault((queue.broker_name, queue.topic), []).append(queue)
    return list(by_broker.values())
