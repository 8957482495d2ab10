"""Offsets of queues, asked of their brokers: where a queue begins and ends, where a group stands."""

from datetime import datetime
from typing import Literal, TypeAlias

from trimtab.client.checks import I64_MAX, check_time
from trimtab.client.commits import Table
from trimtab.client.session import Session
from trimtab.client.turns import Turns
from trimtab.errors import QueryNotFoundError, SettingsError
from trimtab.model import MessageQueue
from trimtab.wire.codes import RequestCode
from trimtab.wire.headers.base import Header, decode_ext
from trimtab.wire.headers.consume import (
    GetMaxOffset,
    OffsetResponse,
    QueryConsumerOffset,
    QueueOnly,
    SearchOffset,
    UpdateConsumerOffset,
)

Where: TypeAlias = int | Literal["begin", "end"] | datetime
"""A place in a queue: an offset, its ends, or the first message stored at or after a time, as the broker finds it."""

ASK_S = 5.0


class QueueOffsets:
    """See the module's own words. Failures are raised."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._commits: Turns[MessageQueue] = Turns()

    async def of(self, queue: MessageQueue, where: Where) -> int:
        """The offset of a place."""
        if isinstance(where, datetime):
            at_ms = check_time(where)
            header = SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=at_ms)
            return await self._offset(
                queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, f"offset at {where}"
            )
        if where == "begin":
            return await self.begin(queue)
        if where == "end":
            return await self.end(queue)
        return _offset_said(queue, where)

    async def begin(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        header = QueueOnly(topic=queue.topic, queue_id=queue.queue_id)
        # A queue that nobody has written to yet has no begin: -1.
        return max(0, await self._offset(queue, RequestCode.GET_MIN_OFFSET, header, "begin"))

    async def end(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        header = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, header, "end")

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group stands, if the broker knows."""
        header = QueryConsumerOffset(consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id)
        try:
            offset = await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header, "committed offset")
        except QueryNotFoundError:
            return None
        if offset > 0:
            self._session.commits.found(Table(await self._session.master_of(queue), self._group, queue.topic))
        return offset

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Stores where the group stands. Commits of one queue wait for one another: a late one must not overtake."""
        await self._commits.take(queue, lambda: self._commit(queue, offset))

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffset(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        asked = f"commit of offset {offset} of {queue} for group {self._group!r}"
        address = await self._session.master_of(queue)
        await self._session.commits.write(address, header, asked=asked, timeout_s=ASK_S)

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: Header, what: str) -> int:
        address = await self._session.master_of(queue)
        asked = f"{what} of {queue} for group {self._group!r}"
        answer = await self._session.ask(address, code, header, asked=asked, timeout_s=ASK_S)
        return decode_ext(OffsetResponse, answer.ext).offset


def _offset_said(queue: MessageQueue, where: object) -> int:
    if not isinstance(where, int) or isinstance(where, bool):
        raise SettingsError(f"{where!r} is no place in {queue}: say an offset, 'begin', 'end' or a datetime")
    if abs(where) > I64_MAX:
        raise SettingsError(f"offset {where} in {queue} is more than brokers can count")
    return where
