"""Offsets of groups, written so that brokers keep them.

Apache's brokers, of every version up to 5.5.0, have a table of offsets for each group and topic, and make it when the first offset comes. Several first ones that come at the same time make a table each; the
last table stays, and what the others held is gone although it was acknowledged: a queue that is handed over then begins anew. So the first offset that this process writes to a table is written
alone. Another process may be writing its first one just then: for a while what was written is read back, and written again if it is gone.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from trimtab.client.turns import Turns
from trimtab.errors import QueryNotFoundError, TrimtabError
from trimtab.io.clock import Clock
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset

_log = logging.getLogger(__name__)

YOUNG_MS: Final = 5_000
"""For so long after this process wrote to a table first, another one's first write is thought possible."""
WRITTEN_AGAIN_MAX: Final = 3

Ask: TypeAlias = Callable[..., Awaitable[Command]]
"""As a session asks."""


class Table(NamedTuple):
    """What a broker keeps of a group and a topic."""

    address: str
    group: str
    topic: str


class Commits:
    """See the module's own words. One for all consumers of a session; failures are raised."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._first_writes: Turns[Table] = Turns()
        self._written_since_ms: dict[Table, int] = {}

    def found(self, table: Table) -> None:
        """An offset was read from it, so it was made some time ago."""
        self._written_since_ms.setdefault(table, self._clock.monotonic_ms() - YOUNG_MS)

    async def write(
        self,
        address: str,
        header: UpdateConsumerOffset,
        *,
        asked: str,
        timeout_s: float | None = None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """Back when the broker has acknowledged it. `may_write` is asked before it is written a second time."""
        table = Table(address, header.consumer_group, header.topic)

        async def put() -> None:
            await self._ask(
                address, RequestCode.UPDATE_CONSUMER_OFFSET, header, asked=asked, timeout_s=timeout_s
            )

        async def put_first() -> bool:
            if table in self._written_since_ms:
                return False
            await put()
            self._written_since_ms[table] = self._clock.monotonic_ms()
            return True

        if table in self._written_since_ms or not await self._first_writes.take(table, put_first):
            await put()
        for _ in range(WRITTEN_AGAIN_MAX):
            if (
                not self._is_young(table)
                or await self._is_kept(address, header, timeout_s)
                or not may_write()
            ):
                return
            _log.info("%s at %s was acknowledged and is gone: it is written again", asked, address)
            await put()

    def _is_young(self, table: Table) -> bool:
        return self._clock.monotonic_ms() - self._written_since_ms[table] < YOUNG_MS

    async def _is_kept(self, address: str, header: UpdateConsumerOffset, timeout_s: float | None) -> bool:
        """Whether the broker has an offset of the queue; what it cannot be asked is taken for kept, as it was acknowledged."""
        if header.commit_offset <= 0:
            return True
        query = QueryConsumerOffset(
            consumer_group=header.consumer_group, topic=header.topic, queue_id=header.queue_id
        )
        asked = f"whether the offset of group {header.consumer_group!r} in {header.topic!r} was kept"
        try:
            answer = await self._ask(
                address, RequestCode.QUERY_CONSUMER_OFFSET, query, asked=asked, timeout_s=timeout_s
            )
        except QueryNotFoundError:
            return False
        except TrimtabError as error:
            _log.info("it is not known %s: %s", asked, error)
            return True
        # 4.9 says 0 where it has none and the queue still has its first message.
        return decode_ext(OffsetResponse, answer.ext).offset > 0
