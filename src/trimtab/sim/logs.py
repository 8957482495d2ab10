"""Messages as counters: how many a queue has had at any moment, from its rate. No event for each of them."""

from math import ceil


class QueueLog:
    """One queue's messages: offsets from 0 on."""

    __slots__ = ("_base", "_per_s", "_since_ms")

    def __init__(self, now_ms: int, per_s: float = 0.0, waiting: int = 0) -> None:
        self._base = waiting
        self._per_s = per_s
        self._since_ms = now_ms

    @property
    def per_s(self) -> float:
        """What comes in."""
        return self._per_s

    def end(self, now_ms: int) -> int:
        """The offset of the next message."""
        return self._base + int((now_ms - self._since_ms) * self._per_s / 1000)

    def arrives_ms(self, offset: int) -> int | None:
        """When the message with this offset comes, or came at the latest; None for never, as things are."""
        if offset < self._base:
            return self._since_ms
        if not self._per_s:
            return None
        at_ms = self._since_ms + ceil((offset + 1 - self._base) * 1000 / self._per_s)
        while self.end(at_ms) <= offset:
            at_ms += 1
        return at_ms

    def set_rate(self, now_ms: int, per_s: float) -> None:
        """From now on so many come in a second."""
        self._base = self.end(now_ms)
        self._since_ms = now_ms
        self._per_s = per_s

    def put(self, now_ms: int, count: int) -> None:
        """So many come at once."""
        self.set_rate(now_ms, self._per_s)
        self._base += count
