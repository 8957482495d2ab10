"""How long a query waits for servers that do not answer. PURE.

A query that never got anything from the cluster fails at once: most likely an address is wrong. One that has come somewhere, in this process or
in one before it, as its checkpoint shows, takes no answer for a restart until that has lasted too long.
"""

from dataclasses import dataclass
from typing import Literal

ASKED_AGAIN_MS_MAX = 5_000

Verdict = Literal["refused", "outage", "again"]


@dataclass(frozen=True, slots=True)
class Patience:
    """What a query is told to bear."""

    outage_ms: int
    retry_ms: int

    def verdict(self, *, is_retriable: bool, is_acquainted: bool, waited_ms: int) -> Verdict:
        """What comes of an error: it is what the cluster says, it has lasted too long, or there is still hope."""
        if not (is_retriable and is_acquainted):
            return "refused"
        return "outage" if waited_ms >= self.outage_ms else "again"

    def pause_ms(self, tries: int, waited_ms: int) -> int:
        """Until the next try: twice as long each time, and the last try comes when the time is over, not before."""
        pause_ms = min(self.retry_ms << min(tries, 32), ASKED_AGAIN_MS_MAX)
        return max(min(pause_ms, self.outage_ms - waited_ms), 1)
