"""Messages on their way into the store, and the answers that wait for them.

Within a wake-up messages are appended; at its end one write takes them all. When they are visible (durable, with the default
flush mode) their senders are answered and the pulls that wait for their queues are looked at again. A write that fails
answers all of its senders so, and nobody sees any of it. When the disk does not keep up, only so many may wait for it; the
others hear at once that the broker is busy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimtab.broker.requests import Answer
from trimtab.broker.store.errors import OVERLOAD, StoreBusyError, StoreError, StoreWriteError
from trimtab.wire.codes import ResponseCode

if TYPE_CHECKING:
    from trimtab.broker.core import BrokerCore
    from trimtab.broker.store import Appended, AppendedTogether, Grown
    from trimtab.model import Now
    from trimtab.wire.messages import Storable, StorableTogether

Then = Callable[["StoreError | None", "Now"], None]

# Answers that are right as soon as the log is visible up to an end: that end, the opaques of the requests, the frames. A bare
# tuple, because it is made tens of thousands of times a second.
_Promise = tuple[int, Sequence[int], bytes]


@dataclass(slots=True)
class _Batch:
    """What one wake-up brought."""

    promises: dict[int, list[_Promise]] = field(default_factory=dict)
    """By connection."""
    thens: list[tuple[int, Then]] = field(default_factory=list)
    end: int = 0
    grown: "list[Grown]" = field(default_factory=list)
    """Once it is written: the queues that have more now."""
    kept_end: int = 0
    """Once it is settled: how much of it is there."""
    failure: StoreError | None = None


class Writes:
    """See the module's own words."""

    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._store = core.store
        self._batch = _Batch()
        self._settled: list[_Batch] = []
        self._waiting = 0
        """Promised answers and callbacks of batches that are written and not yet visible."""
        self._waiting_max = core.settings.unsynced_sends_max
        self.when_settled: Callable[[], None] = lambda: None
        """Called, from the loop, when a batch became visible outside of an event. The shell then calls `settle`."""

    def append(self, message: "Storable", now: "Now", tags_code: int, keys: Sequence[bytes]) -> "Appended":
        """Gives a message its place. It is stored by the next `finish`. `StoreBusyError` if too many wait already."""
        if self._waiting >= self._waiting_max:
            raise self._busy()
        try:
            appended = self._store.append(message, now.wall_ms, self._core.store_host, tags_code, keys)
        except StoreWriteError as failure:
            self._lose_batch(failure)
            raise
        self._batch.end = appended.end
        return appended

    def append_together(
        self,
        messages: "StorableTogether",
        now: "Now",
        tags_codes: Sequence[int],
        keys: Sequence[Sequence[bytes]],
    ) -> "AppendedTogether":
        """Gives several messages of one queue their places."""
        if self._waiting >= self._waiting_max:
            raise self._busy()
        try:
            appended = self._store.append_together(
                messages, now.wall_ms, self._core.store_host, tags_codes, keys
            )
        except StoreWriteError as failure:
            self._lose_batch(failure)
            raise
        self._batch.end = appended.end
        return appended

    def _busy(self) -> StoreBusyError:
        return StoreBusyError(
            f"{OVERLOAD}: {self._waiting} requests wait for the disk, as many as may; send slower, or try again later"
        )

    def promise(self, end: int, connection: int, opaques: Sequence[int], frames: bytes) -> None:
        """Sends these answers when the log is visible up to `end`; an error to each opaque in their place if it never will be."""
        promises = self._batch.promises
        if connection in promises:
            promises[connection].append((end, opaques, frames))
        else:
            promises[connection] = [(end, opaques, frames)]

    def then(self, end: int, run: Then) -> None:
        """Calls back when the log is visible up to `end`, with an error if it never will be."""
        self._batch.thens.append((end, run))

    def finish(self, now: "Now") -> None:
        """Writes what was appended since the last time."""
        while self._batch.end or self._settled:
            if self._batch.end:
                batch, self._batch = self._batch, _Batch()
                self._write(batch)
            self.settle(now)  # may append again

    def settle(self, now: "Now") -> None:
        """Lets go what waited for batches that are visible by now."""
        while self._settled:
            self._let_go(self._settled.pop(0), now)

    def _write(self, batch: _Batch) -> None:
        try:
            self._store.write()
        except StoreError as failure:
            self._lose(batch, failure)
        else:
            self._count(batch)
            self._watch(batch)

    def _count(self, batch: _Batch) -> None:
        batch.grown = self._store.take_grown()
        for grown in batch.grown:
            self._core.stats.stored(grown.topic, grown.bytes, grown.messages)

    def _lose_batch(self, failure: StoreError) -> None:
        batch, self._batch = self._batch, _Batch()
        self._lose(batch, failure)

    def _lose(self, batch: _Batch, failure: StoreError) -> None:
        """A write failed: what was not written before is lost. A large batch is written in pieces, so some may have been."""
        written = self._store.written_end
        kept = _Batch(end=written)
        lost = _Batch(failure=failure)
        self._count(kept)
        for connection, promises in batch.promises.items():
            kept.promises[connection] = [promise for promise in promises if promise[0] <= written]
            lost.promises[connection] = [promise for promise in promises if promise[0] > written]
        for end, run in batch.thens:
            (kept if end <= written else lost).thens.append((end, run))
        self._settled.append(lost)
        self._watch(kept)

    def _watch(self, batch: _Batch) -> None:
        is_within_event = True
        waits = len(batch.thens)
        for promises in batch.promises.values():
            waits += sum([len(opaques) for _, opaques, _ in promises])
        self._waiting += waits

        def settled(failure: StoreError | None) -> None:
            self._waiting -= waits
            batch.failure = failure
            batch.kept_end = batch.end if failure is None else self._store.visible_end
            self._settled.append(batch)
            if not is_within_event:
                self.when_settled()

        self._store.on_visible(batch.end, settled)
        is_within_event = False

    def _let_go(self, batch: _Batch, now: "Now") -> None:
        core = self._core
        for connection, promises in batch.promises.items():
            if batch.failure is None:
                core.send(connection, b"".join([frames for _, _, frames in promises]))
            else:
                self._let_some_go(connection, promises, batch)
        for end, run in batch.thens:
            run(None if end <= batch.kept_end else batch.failure, now)
        for grown in batch.grown:
            core.queue_grew(grown.topic, grown.queue_id, now)

    def _let_some_go(self, connection: int, promises: list[_Promise], batch: _Batch) -> None:
        core = self._core
        failed = Answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark=str(batch.failure))
        for end, opaques, frames in promises:
            if end <= batch.kept_end:
                core.send(connection, frames)
                continue
            core.stats.put_failures += len(opaques)
            for opaque in opaques:
                core.reply(connection, opaque, failed)
