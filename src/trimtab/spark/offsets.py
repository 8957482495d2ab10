"""How far a query has come, as the text that Spark keeps in the checkpoint. PURE.

    {"v": 1, "q": {"orders@broker-a": {"0": 5, "1": 7}}}

Spark compares these texts, so they are always written in the same order. It keeps the end of each batch, and of no batch the
beginning, so what cannot be known again later is put into the end: `init` holds where queues begin that the batch before did not
know, which in the first batch is every queue. An offset that Spark asked for before the first batch says `initial`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.model import MessageQueue

VERSION = 1

Offsets = Mapping[MessageQueue, int]


class CheckpointError(TrimtabError):
    """A checkpoint holds something that this version cannot read."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where each queue stands at a border between two batches."""

    offsets: Offsets
    begins: Offsets = field(default_factory=dict)
    """Where queues begin that the batch which ends here is the first to read."""
    is_initial: bool = False
    waiting_since: Offsets = field(default_factory=dict)
    """When the first message was stored that a batch leaves behind; for people, in what Spark reports."""

    def to_json(self) -> dict[str, Any]:
        """What Spark stores."""
        value: dict[str, Any] = {"v": VERSION, "q": _nested(self.offsets)}
        if self.begins:
            value["init"] = _nested(self.begins)
        if self.is_initial:
            value["initial"] = True
        if self.waiting_since:
            value["since"] = _nested(self.waiting_since)
        return value


def progress_from_json(value: Mapping[str, Any]) -> Progress:
    """What Spark stored."""
    version = value.get("v")
    if version != VERSION:
        raise CheckpointError(
            f"the checkpoint holds offsets of version {version!r}, and this version of trimtab reads {VERSION}:"
            " use the version that wrote it, or a new checkpoint"
        )
    return Progress(
        offsets=_flat(value.get("q", {})),
        begins=_flat(value.get("init", {})),
        is_initial=bool(value.get("initial")),
        waiting_since=_flat(value.get("since", {})),
    )


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """The messages of one queue with `start` ≤ queue offset < `end`."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.queue} [{self.start}, {self.end})"

    @property
    def queue(self) -> MessageQueue:
        """The queue that this is a part of."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.end - self.start

    @classmethod
    def of(cls, queue: MessageQueue, start: int, end: int) -> "QueueRange":
        """From a queue."""
        return cls(queue.topic, queue.broker_name, queue.queue_id, start, end)


def ranges_between(start: Progress, end: Progress) -> list[QueueRange]:
    """What a batch reads. It follows from the two texts alone, so a batch that is run again reads the same."""
    if start.offsets == end.offsets and not start.is_initial:
        return []  # a batch without data, as Spark runs for the sake of its own state
    ranges = []
    for queue, stop in end.offsets.items():
        begin = _begin(queue, start, end)
        if begin < stop:
            ranges.append(QueueRange.of(queue, begin, stop))
    return sorted(ranges)


def _begin(queue: MessageQueue, start: Progress, end: Progress) -> int:
    """An initial offset may have been found anew after a crash, so what the end says of the beginning counts more."""
    if start.is_initial and end.is_initial:
        return end.offsets[queue]
    if queue in end.begins:
        return end.begins[queue]
    return start.offsets.get(queue, end.offsets[queue])


def next_progress(start: Progress, ends: Offsets, begins: Offsets) -> Progress:
    """The end of a batch; `start` itself if there is nothing to read, which is how Spark knows.

    `ends` may lack queues whose broker does not answer: they stay where they are. `begins` says where queues begin that
    `start` does not know, or that were made anew; only those may go back.
    """
    begins = {queue: begin for queue, begin in begins.items() if queue in ends}
    moved = {
        queue: end if queue in begins else max(end, start.offsets.get(queue, end))
        for queue, end in ends.items()
    }
    offsets = {**start.offsets, **moved}
    if offsets == dict(start.offsets):
        return start
    return Progress(offsets, {**start.offsets, **begins} if start.is_initial else begins)


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for queue in sorted(offsets, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id)):
        nested.setdefault(f"{queue.topic}@{queue.broker_name}", {})[str(queue.queue_id)] = offsets[queue]
    return nested


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[MessageQueue, int]:
    flat = {}
    for place, numbers in nested.items():
        topic, at, broker_name = place.partition("@")
        if not at:
            raise CheckpointError(f"the checkpoint names {place!r}, which is not topic@broker")
        for number, offset in numbers.items():
            flat[MessageQueue(topic, broker_name, int(number))] = int(offset)
    return flat
