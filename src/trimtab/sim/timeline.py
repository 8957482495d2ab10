"""Virtual time: one heap of events, one source of chance, and a trace of all that happened.

One seed is one run: nothing here or in what runs on it asks the machine for time or chance, and nothing depends on the order of a set. So a
trace has the same digest on every machine and under every hash seed.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from typing import Final, NamedTuple

from trimtab.io.chance import seeded_chance

Work = Callable[[], object]

REMEMBERED_EVENTS_MAX: Final = 4_000
BEGIN_MS: Final = 1_000_000
"""Time does not begin at 0: what counts from "never" must not work by accident."""


class Noted(NamedTuple):
    """One thing that happened, for whoever reads the trace."""

    at_ms: int
    who: str
    what: str

    def __str__(self) -> str:
        return f"{(self.at_ms - BEGIN_MS) / 1000:10.3f} s  {self.who}: {self.what}"


class Timeline:
    """See the module's own words."""

    def __init__(self, seed: int) -> None:
        self.now_ms = BEGIN_MS
        self.chance = seeded_chance(seed)
        self.events = 0
        self._times: list[int] = []
        """A heap of all moments at which something is due, each once: there are far fewer than things to do."""
        self._due: dict[int, deque[Work]] = {}
        self._digest = blake2b(digest_size=8)
        self._noted: deque[Noted] = deque(maxlen=REMEMBERED_EVENTS_MAX)

    def at(self, ms: int, work: Work) -> None:
        """Does something then; what is due at the same moment is done in the order in which it was asked for."""
        works = self._due.get(ms)
        if works is None:
            works = self._due[ms] = deque()
            heapq.heappush(self._times, ms)
        works.append(work)

    def after(self, ms: int, work: Work) -> None:
        """Does something so much later."""
        self.at(self.now_ms + ms, work)

    def run_until(self, ms: int) -> None:
        """Lets everything happen up to that moment."""
        times, due = self._times, self._due
        while times and times[0] <= ms:
            at_ms = self.now_ms = times[0]
            works = due[at_ms]
            work = works.popleft()
            if not works:
                heapq.heappop(times)
                del due[at_ms]
            self.events += 1
            work()
        self.now_ms = max(self.now_ms, ms)

    def note(self, who: str, what: str) -> None:
        """Puts a line into the trace."""
        self._noted.append(Noted(self.now_ms, who, what))
        self._digest.update(f"{self.now_ms} {who} {what}\n".encode())

    def last_of(self, words: tuple[str, ...], count: int) -> list[Noted]:
        """The newest lines that have to do with any of these."""
        found = [
            line
            for line in self._noted
            if any(word in (line.who, line.what) or word in line.what for word in words)
        ]
        return found[-count:]

    @property
    def digest(self) -> str:
        """Equal for equal traces."""
        return self._digest.hexdigest()

    @property
    def passed_ms(self) -> int:
        """Since the beginning."""
        return self.now_ms - BEGIN_MS


@dataclass(frozen=True, slots=True)
class LocalClock:
    """The clock of one process: it runs a little fast or slow, and began anywhere."""

    rate: float = 1.0
    offset_ms: int = 0

    def at(self, world_ms: int) -> int:
        """What it shows then."""
        return self.offset_ms + int(world_ms * self.rate)

    def world_ms(self, local_ms: int) -> int:
        """How long so much local time takes."""
        return ceil(local_ms / self.rate)
