"""Messages on their way into the store, and the answers that wait for them.

Within a wake-up messages are appended; at its end one write takes them all. When they are visible (durable, with the default
flush mode) their senders are answered and the pulls that wait for their queues are looked at again. A write that fails
answers all of its senders so, and nobody sees any of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from trimtab.broker.requests import Answer
from trimtab.broker.store.errors import StoreError, StoreWriteError
from trimtab.wire.codes import ResponseCode

if TYPE_CHECKING:
    from trimtab.broker.core import BrokerCore
    from trimtab.broker.store import Appended
    from trimtab.model import Now
    from trimtab.wire.messages import Storable


class _Promise(NamedTuple):
    """An answer that is right as soon as the log is visible up to `end`."""

    end: int
    connection: int
    opaque: int
    frame: bytes


Then = Callable[["StoreError | None", "Now"], None]


@dataclass(slots=True)
class _Batch:
    """What one wake-up brought."""

    promises: list[_Promise] = field(default_factory=list)
    thens: list[tuple[int, Then]] = field(default_factory=list)
    queues: dict[tuple[str, int], None] = field(default_factory=dict)
    end: int = 0
    kept_end: int = 0
    """Once it is settled: how much of it is there."""
    failure: StoreError | None = None


class Writes:
    """See the module's own words."""

    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._batch = _Batch()
        self._settled: list[_Batch] = []
        self.when_settled: Callable[[], None] = lambda: None
        """Called, from the loop, when a batch became visible outside of an event. The shell then calls `settle`."""

    def append(
        self, topic: str, message: "Storable", now: "Now", *, tags_code: int, keys: Sequence[bytes]
    ) -> "Appended":
        """Gives a message its place. It is stored by the next `finish`."""
        core = self._core
        try:
            appended = core.store.append(message, now.wall_ms, core.store_host, tags_code, keys)
        except StoreWriteError as failure:
            batch, self._batch = self._batch, _Batch()
            self._lose(batch, failure)
            raise
        self._batch.queues[topic, message.queue_id] = None
        self._batch.end = appended.end
        return appended

    def promise(self, end: int, connection: int, opaque: int, frame: bytes) -> None:
        """Sends this frame when the log is visible up to `end`; an error in its place if it never will be."""
        self._batch.promises.append(_Promise(end, connection, opaque, frame))

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
            self._core.store.write()
        except StoreError as failure:
            self._lose(batch, failure)
        else:
            self._watch(batch)

    def _lose(self, batch: _Batch, failure: StoreError) -> None:
        """A write failed: what was not written before is lost. A large batch is written in pieces, so some may have been."""
        written = self._core.store.written_end
        kept = _Batch(queues=batch.queues, end=written)
        lost = _Batch(failure=failure)
        for promise in batch.promises:
            (kept if promise.end <= written else lost).promises.append(promise)
        for end, run in batch.thens:
            (kept if end <= written else lost).thens.append((end, run))
        self._settled.append(lost)
        if kept.promises or kept.thens:
            self._watch(kept)

    def _watch(self, batch: _Batch) -> None:
        is_within_event = True

        def settled(failure: StoreError | None) -> None:
            batch.failure = failure
            batch.kept_end = batch.end if failure is None else self._core.store.visible_end
            self._settled.append(batch)
            if not is_within_event:
                self.when_settled()

        self._core.store.on_visible(batch.end, settled)
        is_within_event = False

    def _let_go(self, batch: _Batch, now: "Now") -> None:
        core = self._core
        failure, kept_end = batch.failure, batch.kept_end
        for end, connection, opaque, frame in batch.promises:
            if end <= kept_end:
                core.send(connection, frame)
            else:
                core.stats.put_failures += 1
                core.reply(
                    connection, opaque, Answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark=str(failure))
                )
        for end, run in batch.thens:
            run(None if end <= kept_end else failure, now)
        for topic, queue_id in batch.queues:
            core.queue_grew(topic, queue_id, now)
