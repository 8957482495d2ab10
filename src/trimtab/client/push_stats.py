"""What a consumer did for each topic, as running info tells it: totals, and rates over the last minute."""

from collections import deque
from dataclasses import dataclass, field, replace

from trimtab.wire.bodies import ConsumeStatus

WINDOW_MS = 60_000


@dataclass(slots=True)
class Counts:
    """Since the begin."""

    pulls: int = 0
    pulled_messages: int = 0
    consumed: int = 0
    failed: int = 0
    handler_ms: int = 0
    handler_calls: int = 0


@dataclass(slots=True)
class TopicStats:
    """The counts of one topic and, for rates, what they were at times of the last minute."""

    counts: Counts = field(default_factory=Counts)
    _then: deque[tuple[int, Counts]] = field(default_factory=deque)

    def mark(self, now_ms: int) -> None:
        """Remembers how things stand; to be called every few seconds."""
        self._then.append((now_ms, replace(self.counts)))
        while now_ms - self._then[0][0] > WINDOW_MS:
            self._then.popleft()

    def status(self, now_ms: int) -> ConsumeStatus:
        """As tools read it."""
        began_ms, then = self._then[0] if self._then else (now_ms, Counts())
        seconds = max(now_ms - began_ms, 1) / 1000
        now = self.counts
        calls = now.handler_calls - then.handler_calls
        return ConsumeStatus(
            pull_tps=(now.pulled_messages - then.pulled_messages) / seconds,
            consume_rt=(now.handler_ms - then.handler_ms) / calls if calls else 0.0,
            consume_ok_tps=(now.consumed - then.consumed) / seconds,
            consume_failed_tps=(now.failed - then.failed) / seconds,
            consume_failed_msgs=now.failed,
        )
