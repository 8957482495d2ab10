"""How far everything is safe: one small state, replaced as a whole.

A checkpoint says: the log is durable up to `durable`; every queue file holds, synced, what the log has up to there; the index
files what it has up to `indexed`. It is written last, after all of that was synced. Recovery looks at the log from there on
only. It also carries what cannot be found in the log: where the log begins, topics' numbers, which topics were deleted, and the
queues whose messages are all gone.
"""

from typing import NamedTuple

import msgspec

from trimtab.broker.store.index import ChunkWrite
from trimtab.broker.store.progress import StateFile
from trimtab.broker.store.queues import DIRECTORY as QUEUES
from trimtab.broker.store.queues import Flush
from trimtab.io.disk import Disk


class Topic(msgspec.Struct, frozen=True, array_like=True):
    """A topic's number, and where the log was when it came up: older messages of that name belong to a deleted one."""

    name: bytes
    number: int
    since: int


class Checkpoint(msgspec.Struct, frozen=True):
    """See above. `chain` is the check of the frame that ends at `durable`."""

    start: int = 0
    durable: int = 0
    chain: int = 0
    indexed: int = 0
    next_number: int = 1
    topics: tuple[Topic, ...] = ()
    deleted: dict[bytes, int] = {}
    queues: bytes = b""
    holes: tuple[tuple[int, int], ...] = ()
    """Ranges of the log that a rebuild passed over because they are damaged."""


def decode_checkpoint(data: bytes) -> Checkpoint:
    return msgspec.msgpack.decode(data, type=Checkpoint)


class CheckpointJob(NamedTuple):
    """The work of one checkpoint: run in any thread, it touches no state of the store."""

    disk: Disk
    state: StateFile
    checkpoint: Checkpoint
    flushes: list[Flush]
    chunk: ChunkWrite | None

    def run(self) -> None:
        for flush in self.flushes:
            for write in flush.writes:
                write.run(self.disk)
        if self.flushes:
            self.disk.sync_dir(QUEUES)
        if self.chunk is not None:
            self.chunk.run(self.disk)
        self.state.save(msgspec.msgpack.encode(self.checkpoint))
