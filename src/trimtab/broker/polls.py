"""Pulls that are held until there is something to answer, their time is over, or the broker stops."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from trimtab.broker.requests import Peer
from trimtab.wire.headers.consume import PullMessage

Queue = tuple[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class HeldPull:
    """One pull that waits. It is answered once, by whoever takes it out."""

    peer: Peer
    opaque: int
    header: PullMessage
    deadline_ms: int

    @property
    def queue(self) -> Queue:
        return self.header.topic, self.header.queue_id


class HeldPulls:
    """All held pulls by queue, and by when they end."""

    def __init__(self, pulls_max: int) -> None:
        self._pulls_max = pulls_max
        self._queues: dict[Queue, dict[int, HeldPull]] = {}
        self._connections: dict[int, dict[int, HeldPull]] = {}
        self._deadlines: list[tuple[int, int, HeldPull]] = []
        self._serial = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def is_full(self) -> bool:
        """Whether no further pull can be held; it is then answered at once."""
        return self._count >= self._pulls_max

    def hold(self, pull: HeldPull) -> None:
        """Keeps a pull."""
        self._serial += 1
        self._queues.setdefault(pull.queue, {})[id(pull)] = pull
        self._connections.setdefault(pull.peer.connection, {})[id(pull)] = pull
        heappush(self._deadlines, (pull.deadline_ms, self._serial, pull))
        self._count += 1
        if len(self._deadlines) > 2 * self._count + 1_024:
            self._forget_taken()

    def on_queue(self, queue: Queue) -> list[HeldPull]:
        """Those that wait for this queue, in the order they came."""
        return list(self._queues.get(queue, {}).values())

    def take(self, pull: HeldPull) -> bool:
        """Takes a pull out; False if it is gone already."""
        waiting = self._queues.get(pull.queue, {})
        if waiting.pop(id(pull), None) is None:
            return False
        if not waiting:
            del self._queues[pull.queue]
        asked = self._connections[pull.peer.connection]
        del asked[id(pull)]
        if not asked:
            del self._connections[pull.peer.connection]
        self._count -= 1
        return True

    def overdue(self, now_ms: int) -> Iterator[HeldPull]:
        """Takes out, one by one, those whose time is over."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            pull = heappop(self._deadlines)[2]
            if self.take(pull):
                yield pull

    def close(self, connection: int) -> None:
        """Drops the pulls of a connection that is gone."""
        for pull in list(self._connections.get(connection, {}).values()):
            self.take(pull)

    def all(self) -> list[HeldPull]:
        """Everything that is held."""
        return [pull for pulls in self._queues.values() for pull in pulls.values()]

    def _forget_taken(self) -> None:
        held = {id(pull) for pull in self.all()}
        self._deadlines = [entry for entry in self._deadlines if id(entry[2]) in held]
        self._deadlines.sort()
