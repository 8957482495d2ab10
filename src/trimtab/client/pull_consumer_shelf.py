"""What was pulled and not yet asked for, queue by queue; and how far each queue has been handed out and done with.

*Handed* is everything that the user got. *Done* is what the user got before coming back for more: a message that is being worked on
is not done. Queues take turns, an answer each; a paused queue keeps what it has, the rest of an answer too that was being handed out.
"""

from collections import deque
from collections.abc import Iterator

from trimtab.client.pulls import Pulled, QueuePulls
from trimtab.client.received import Received
from trimtab.errors import ProtocolError
from trimtab.model import MessageQueue


class Shelved:
    """One queue."""

    __slots__ = (
        "answers",
        "committed",
        "done",
        "handed",
        "is_paused",
        "pulls",
        "queue",
        "rest",
        "shelved_bytes",
        "since_wall_ms",
    )

    def __init__(self, queue: MessageQueue, offset: int, since_wall_ms: int = 0) -> None:
        self.queue = queue
        self.since_wall_ms = since_wall_ms
        self.pulls: QueuePulls | None = None
        self.rest: tuple[Iterator[Received], int] | None = None
        """What is left of the answer that was being handed out when the queue was paused, and where that answer ends."""
        self.answers: deque[Pulled] = deque()
        self.shelved_bytes = 0
        self.handed = offset
        self.done = offset
        self.committed: int | None = None
        """What was committed last."""
        self.is_paused = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits here."""
        return self.rest is None and not self.answers

    def clear(self) -> None:
        """Lets go of what waits here."""
        self.rest = None
        for pulled in self.answers:
            pulled.release()
        self.answers.clear()
        self.shelved_bytes = 0


class Shelf:
    """See the module's own words."""

    def __init__(self, queue_bytes_max: int) -> None:
        self.queues: dict[MessageQueue, Shelved] = {}
        self._queue_bytes_max = queue_bytes_max
        self._turns: deque[Shelved] = deque()
        self._touched: set[Shelved] = set()
        self._messages: Iterator[Received] = iter(())
        self._open: Shelved | None = None
        """The queue whose answer is being handed out message by message."""
        self._open_end = 0

    def put(self, shelved: Shelved, pulled: Pulled) -> None:
        """An answer came. A queue that has much waiting is not pulled further."""
        if shelved.is_empty:
            self._turns.append(shelved)
        shelved.answers.append(pulled)
        shelved.shelved_bytes += len(pulled.body)
        if shelved.shelved_bytes > self._queue_bytes_max and shelved.pulls is not None:
            shelved.pulls.stop()

    def next(self) -> Received | None:
        """One message, if there is one now; everything handed out before is done."""
        self.settle()
        while True:
            message = next(self._messages, None)
            shelved = self._open
            if message is not None and shelved is not None:
                shelved.done = shelved.handed
                shelved.handed = message.stored.queue_offset + 1
                return message
            if shelved is not None:
                shelved.done = shelved.handed = self._open_end
                self._open = None
            if not self._open_next():
                return None

    def take(self, messages_max: int | None) -> list[Received]:
        """What is there now, up to so many; without a number, one answer of a broker. Everything handed out before is done."""
        first = self.next()
        if first is None:
            return []
        batch = [first]
        shelved = self._open
        assert shelved is not None, "a message comes from a queue"
        if messages_max is None:
            batch += self._messages
        else:
            for message in self._messages:
                if len(batch) >= messages_max:
                    self._messages = _with_first(message, self._messages)
                    break
                batch.append(message)
            else:
                messages_max = None
        # The end of an answer may lie behind its last message, where a filter passed over some.
        is_whole = messages_max is None
        shelved.handed = self._open_end if is_whole else batch[-1].queue_offset + 1
        self._touched.add(shelved)
        if is_whole:
            self._open = None
        return batch

    def settle(self) -> None:
        """The user came back: what was handed out is done."""
        for shelved in self._touched:
            shelved.done = shelved.handed
        self._touched.clear()

    def forget(self, shelved: Shelved) -> None:
        """Nothing of what waits of this queue is handed out, it is let go; there is room again, so the queue is pulled on."""
        shelved.clear()
        if shelved in self._turns:
            self._turns.remove(shelved)
        if self._open is shelved:
            self._open = None
            self._messages = iter(())
        self._wake(shelved)

    def pause(self, shelved: Shelved) -> None:
        """A queue is not pulled, and nothing of it is handed out; what is left of its open answer is kept for later."""
        shelved.is_paused = True
        if shelved.pulls is not None:
            shelved.pulls.stop()
        if self._open is shelved:
            if not shelved.answers:
                self._turns.append(shelved)
            shelved.rest = self._messages, self._open_end
            self._open, self._messages = None, iter(())
            self._touched.add(shelved)  # what was handed out of it is done when the user comes back

    def resume(self, shelved: Shelved) -> None:
        """A paused queue goes on."""
        shelved.is_paused = False
        self._wake(shelved)

    def _open_next(self) -> bool:
        for _ in range(len(self._turns)):
            shelved = self._turns.popleft()
            if shelved.is_paused:
                self._turns.append(shelved)
                continue
            if shelved.rest is None:
                self._unshelve(shelved)
            else:
                self._go_on_with(shelved, *shelved.rest)
            return True
        return False

    def _go_on_with(self, shelved: Shelved, messages: Iterator[Received], end: int) -> None:
        shelved.rest = None
        if shelved.answers:
            self._turns.append(shelved)
        self._open, self._messages, self._open_end = shelved, messages, end

    def _unshelve(self, shelved: Shelved) -> None:
        pulled = shelved.answers.popleft()
        shelved.shelved_bytes -= len(pulled.body)
        if shelved.answers:
            self._turns.append(shelved)
        try:
            self._messages = iter(pulled.messages)
        except ProtocolError as error:
            # Told where to go on before it is woken.
            if shelved.pulls is not None:
                shelved.pulls.again(pulled.offset, error)
            self.forget(shelved)
            return
        finally:
            pulled.release()
        self._open, self._open_end = shelved, pulled.next_offset
        self._wake(shelved)

    def _wake(self, shelved: Shelved) -> None:
        has_room = shelved.shelved_bytes <= self._queue_bytes_max
        if has_room and not shelved.is_paused and shelved.pulls is not None:
            shelved.pulls.go()


def _with_first(first: Received, rest: Iterator[Received]) -> Iterator[Received]:
    yield first
    yield from rest
