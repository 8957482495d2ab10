"""Queues and index anew from the whole log: the way out when they are damaged, or when the checkpoint is.

Damaged frames are passed over, and holes are left in the queues in their place. What only the checkpoint knew is lost if there
is none: deleted topics come back as far as the log still has them, and queues without messages begin at 0 again. A topic that
was deleted and made again shows by offsets that go back: then what stands before that is left to its past.
"""

from collections.abc import Callable

from trimtab.broker.store.checkpoint import Checkpoint
from trimtab.broker.store.frames import Frame
from trimtab.broker.store.index import DIRECTORY as INDEX
from trimtab.broker.store.parts import Parts
from trimtab.broker.store.queues import DIRECTORY as QUEUES
from trimtab.broker.store.queues import Queue, rows
from trimtab.broker.store.recovery import Recovery, Scan, whole_frames_behind


class Rebuild:
    """One rebuild; `recovery` does what both ways of opening have in common."""

    def __init__(self, parts: Parts, recovery: Recovery) -> None:
        self._disk = parts.disk
        self._log = parts.log
        self._catalog = parts.catalog
        self._index = parts.index
        self._files = parts.files
        self._recovery = recovery
        self._seen: set[Queue] = set()

    def run(self, checkpoint: Checkpoint | None, save: Callable[[], None], save_bytes: int) -> None:
        """`save` is called now and then, to keep memory small."""
        known = checkpoint or Checkpoint()
        log, found = self._log, self._log.segments_found()
        start = max([known.start, *found[:1]])
        log.attach(start, start)
        self._start_anew(known, start)
        scan, saved = Scan(self._disk, log.bases, start, log.salt, None), start
        while True:
            for frame in scan.frames():
                self._dispatch(frame)
                if frame.end - saved > save_bytes and frame.end <= known.durable:
                    log.durable, log.durable_chain, saved = frame.end, frame.head.check, frame.end
                    save()
            after = self._whole_frame_behind(scan)
            if after is None:
                break
            self._pass_over(scan.end, after)
            scan = Scan(self._disk, log.bases, after, log.salt, None)
        if scan.torn is not None:
            log.cut(scan.end)
            self._recovery.report.append(
                f"the log ends at byte {scan.end}; what was behind it is not readable"
            )
        self._keep_offsets(known, scan.end)
        log.settle(min(known.durable, scan.end), scan.end, scan.chain or 0)

    def _whole_frame_behind(self, scan: Scan) -> int | None:
        if scan.torn is None:
            return None
        behind = whole_frames_behind(self._disk, self._log.bases, scan.end, self._log.salt)
        frame = next(behind, None)
        return None if frame is None else frame.head.offset

    def _pass_over(self, begin: int, end: int) -> None:
        self._log.holes.append((begin, end))
        self._recovery.report.append(f"bytes {begin} to {end} of the log are damaged and were passed over")

    def _keep_offsets(self, known: Checkpoint, log_end: int) -> None:
        """Offsets that were given out are not given out again, even if their messages are lost."""
        filed = {(row.number, row.queue_id): row.filed for row in rows(known.queues)}
        for queue in self._catalog.queues.values():
            given_out = filed.get((queue.number, queue.queue_id), 0)
            if queue.end < given_out:
                queue.fill(given_out, log_end - 1)

    def _start_anew(self, known: Checkpoint, start: int) -> None:
        catalog = self._catalog
        catalog.next_number = known.next_number
        catalog.topics = {topic.name: topic for topic in known.topics}
        catalog.deleted = dict(known.deleted)
        names = {topic.number: topic.name for topic in known.topics}
        for row in rows(known.queues):
            queue = Queue(self._files, names[row.number], row.number, row.queue_id)
            # Until a message is found, the queue is as if all of it had been removed.
            queue.restart(row.filed, start)
            catalog.take(queue)
            self._recovery.dirty[queue] = None
        for directory in (QUEUES, INDEX):
            for name in self._disk.names(directory):
                self._disk.remove(name)
        self._index.attach(self._disk, start, start)

    def _dispatch(self, frame: Frame) -> None:
        for message, checksum in zip(frame.messages, frame.checksums, strict=True):
            queue = self._catalog.of_record(message.topic.encode(), message.queue_id, message.physical_offset)
            if queue is None:
                continue
            offset = message.queue_offset
            if queue in self._seen and offset < queue.next_offset:
                self._begin_anew(queue)
            if queue not in self._seen:
                queue.restart(offset, message.physical_offset)
                self._seen.add(queue)
            elif offset > queue.next_offset:
                queue.fill(offset, message.physical_offset)
                self._recovery.report.append(
                    f"messages before {offset} of {message.topic}:{message.queue_id} are damaged; there is a hole"
                )
            self._recovery.push(queue, message, checksum)
            self._recovery.index_keys(queue, message, checksum)

    def _begin_anew(self, queue: Queue) -> None:
        """The queue's offsets go back: after its last message the topic was deleted, and came again."""
        since = queue.last_physical + 1
        self._catalog.begin_anew(queue.topic, since)
        self._recovery.report.append(
            f"topic {queue.topic_name} was deleted and made again: its messages before byte {since} of the log stay away"
        )
        self._seen.discard(queue)
        for other in self._catalog.queues_of(queue.topic):
            if other not in self._seen:
                continue
            other.trim(since)
            if other.min_offset == other.end:  # all of it was the old topic's
                other.restart(0, since)
                self._seen.discard(other)
