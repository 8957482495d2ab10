"""Where a group's offsets are kept: at the brokers, or for broadcasting in a file in Java's form."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from trimtab.balance.start import NOT_STORED, UNKNOWN, At, AtEnd, AtTime, StartRule, where_to_start
from trimtab.client.commits import Table
from trimtab.client.session import Session
from trimtab.client.turns import Turns
from trimtab.errors import (
    IllegalOperationError,
    QueryNotFoundError,
    SettingsError,
    TrimtabError,
)
from trimtab.model import MessageQueue
from trimtab.wire.bodies import LocalOffsets, encode_local_offsets
from trimtab.wire.codes import RequestCode
from trimtab.wire.commands import Command
from trimtab.wire.fastjson import decode_body
from trimtab.wire.headers.base import Header, decode_ext
from trimtab.wire.headers.consume import (
    GetMaxOffset,
    OffsetResponse,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)

_log = logging.getLogger(__name__)

ASK_S = 5.0
JAVA_DIRECTORY = ".rocketmq_offsets"


class Offsets(Protocol):
    """Where offsets are kept."""

    async def read(self, queue: MessageQueue) -> int:
        """What is stored; `NOT_STORED`, or `UNKNOWN` if that cannot be found out."""

    async def write(self, queue: MessageQueue, offset: int) -> bool:
        """Stores an offset for good; whether that succeeded."""

    async def write_all(self, offsets: dict[MessageQueue, int]) -> None:
        """Stores the offsets of all queues that are held; what failed is in the log."""


class Right(Protocol):
    """The right to write the offset of a queue, as it was when somebody asked for the write."""

    epoch: int | None
    """Of the lease; a broker that counts leases refuses a former holder by it."""

    def holds(self) -> bool:
        """Whether it still may be written."""

    def refused(self) -> None:
        """The broker says that it may not."""


class BrokerOffsets:
    """Offsets at the brokers of the queues.

    A broker handles requests of one connection side by side: an offset that is written before the one before it
    is acknowledged may be overtaken, and the group goes back. So each queue's writes wait for one another.
    """

    def __init__(
        self, session: Session, group: str, right_to: Callable[[MessageQueue], Right] | None = None
    ) -> None:
        self._session = session
        self._group = group
        self._right_to = right_to
        self._writes: Turns[MessageQueue] = Turns()

    async def read(self, queue: MessageQueue) -> int:
        # 4.9.3 takes every refusal for "nothing is stored" and then may skip to the end. We take only the answer that says so.
        header = QueryConsumerOffset(consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id)
        try:
            answer = await self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header, "offset")
            address = await self._session.master_of(queue)
        except QueryNotFoundError:
            return NOT_STORED
        except TrimtabError as error:
            _log.warning("the offset of %s in %s cannot be read: %s", self._group, queue, error)
            return UNKNOWN
        offset = decode_ext(OffsetResponse, answer.ext).offset
        if offset > 0:
            self._session.commits.found(Table(address, self._group, queue.topic))
        return offset

    def is_writing(self, queue: MessageQueue) -> bool:
        """Whether an offset of the queue is on its way."""
        return self._writes.is_taken(queue)

    async def write(self, queue: MessageQueue, offset: int) -> bool:
        right = None if self._right_to is None else self._right_to(queue)
        return await self._writes.take(queue, lambda: self._write(queue, offset, right))

    async def write_all(self, offsets: dict[MessageQueue, int]) -> None:
        await asyncio.gather(*(self.write(queue, offset) for queue, offset in offsets.items()))

    async def _write(self, queue: MessageQueue, offset: int, right: Right | None) -> bool:
        try:
            address = await self._session.master_of(queue)
            if right is not None and not right.holds():
                _log.info(
                    "offset %d of %s in %s is not stored: its lease is over", offset, self._group, queue
                )
                return False
            await self._session.commits.write(
                address, self._commit(queue, offset, right), asked=f"commit of {self._group} in {queue}", timeout_s=ASK_S,
                may_write=lambda: right is None or right.holds(),
            )  # fmt: skip
        except TrimtabError as error:
            _log.warning("offset %d of %s in %s was not stored: %s", offset, self._group, queue, error)
            if right is not None and isinstance(error, IllegalOperationError):
                right.refused()
            return False
        return True

    async def max_of(self, queue: MessageQueue) -> int:
        """The queue's end: the offset of the next message."""
        header = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._ask(queue, RequestCode.GET_MAX_OFFSET, header, "max offset")
        return decode_ext(OffsetResponse, answer.ext).offset

    async def at_time(self, queue: MessageQueue, at_ms: int) -> int:
        """The offset of the first message at or after a time. Brokers of 4.x take the nearest message instead."""
        header = SearchOffset(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=at_ms, boundary_type="lower"
        )
        answer = await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, "offset of a time")
        return decode_ext(OffsetResponse, answer.ext).offset

    def _commit(self, queue: MessageQueue, offset: int, right: Right | None) -> UpdateConsumerOffset:
        return UpdateConsumerOffset(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset,
            lease_epoch=None if right is None else right.epoch,
        )  # fmt: skip

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Header, what: str) -> Command:
        address = await self._session.master_of(queue)
        asked = f"{what} of {self._group} in {queue}"
        return await self._session.ask(address, code, header, asked=asked, timeout_s=ASK_S)


class FileOffsets:
    """Offsets of a broadcasting consumer, in `directory/clientId/group/offsets.json` and the same with `.bak`."""

    def __init__(
        self,
        directory: Path | None,
        client_id: str,
        group: str,
        topics: Callable[[], Collection[str]] | None = None,
    ) -> None:
        """`topics` are those whose offsets are worth keeping though their queues are not held; without it, all."""
        base = directory if directory is not None else Path.home() / JAVA_DIRECTORY
        # Java takes both for names of folders as they are; a name that would lead elsewhere is not one.
        for name in (client_id, group):
            if "/" in name or "\x00" in name or name in ("", ".", ".."):
                raise SettingsError(
                    f"{name!r} cannot be the name of a folder, and offsets of broadcasting need one; give it another name"
                )
        self.path = base / client_id / group / "offsets.json"
        self._topics = topics
        self._last: bytes | None = None
        self._turns: Turns[Path] = Turns()

    async def read(self, queue: MessageQueue) -> int:
        table = await asyncio.to_thread(self.load)
        return table.get(queue, NOT_STORED)

    async def write(self, queue: MessageQueue, offset: int) -> bool:
        # One at a time: what is read, changed and written again must not be changed by another meanwhile.
        return await self._turns.take(self.path, lambda: self._change(queue, offset))

    async def write_all(self, offsets: dict[MessageQueue, int]) -> None:
        # A broker that is away comes again, and has messages that nobody has seen.
        await self._turns.take(self.path, lambda: self._merge(dict(offsets)))

    async def _merge(self, offsets: dict[MessageQueue, int]) -> bool:
        topics = None if self._topics is None else self._topics()
        table = await asyncio.to_thread(self.load)
        kept = {queue: at for queue, at in table.items() if topics is None or queue.topic in topics}
        return await self._save(kept | offsets)

    async def _change(self, queue: MessageQueue, offset: int) -> bool:
        table = await asyncio.to_thread(self.load)
        table[queue] = offset
        return await self._save(table)

    def load(self) -> dict[MessageQueue, int]:
        """What the file says; its backup if the file is not there or is damaged; else nothing."""
        for path in (self.path, _backup(self.path)):
            try:
                text = path.read_bytes()
                if text:
                    return dict(decode_body(LocalOffsets, text).offset_table)
            except FileNotFoundError:
                continue
            except (OSError, TrimtabError) as error:
                _log.warning("offsets in %s cannot be read: %s", path, error)
        return {}

    async def _save(self, offsets: dict[MessageQueue, int]) -> bool:
        text = encode_local_offsets(LocalOffsets(offset_table=offsets))
        if text == self._last:
            return True
        try:
            await asyncio.to_thread(self._write, text)
        except OSError as error:
            _log.warning("offsets could not be written to %s: %s", self.path, error)
            return False
        self._last = text
        return True

    def _write(self, text: bytes) -> None:
        """Aside, synced, renamed; what was there before is the backup."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(self.path.name + ".tmp")
        with aside.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            _backup(self.path).write_bytes(self.path.read_bytes())
        aside.replace(self.path)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


async def start_of(queue: MessageQueue, rule: StartRule, offsets: Offsets, brokers: BrokerOffsets) -> int:
    """Where to read from (C10), asked of whoever knows; -1 for not now."""
    start = where_to_start(rule, queue.topic, await offsets.read(queue))
    try:
        if isinstance(start, At):
            return start.offset
        if isinstance(start, AtEnd):
            return await brokers.max_of(queue)
        if isinstance(start, AtTime):
            return await brokers.at_time(queue, start.at_ms)
    except TrimtabError as error:
        _log.warning("it is not known where to start in %s: %s", queue, error)
    return -1
