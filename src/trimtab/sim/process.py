"""A process that runs on virtual time: it may be paused, crash, and have a clock that runs a little wrong."""

from functools import partial
from typing import TYPE_CHECKING, Final

from trimtab.sim.timeline import LocalClock, Timeline, Work

if TYPE_CHECKING:
    from trimtab.sim.network import Connection

ASK_MS: Final = 1_000
OFFSET_ASK_MS: Final = 5_000
LOOK_EVERY_MS: Final = 20_000
"""How often a member looks at the group without a notice."""


class Process:
    """What a member needs of its process. Whatever happens to it comes in through `run`."""

    def __init__(
        self, name: str, client_id: str, language: str, timeline: Timeline, clock: LocalClock
    ) -> None:
        self.name = name
        self.client_id = client_id
        self.language = language
        self.is_alive = True
        self._timeline = timeline
        self._clock = clock
        self._paused_until_ms = 0
        self._late_first: list[Work] = []
        self._late: list[Work] = []

    @property
    def now_ms(self) -> int:
        """By its own clock."""
        return self._clock.at(self._timeline.now_ms)

    @property
    def is_awake(self) -> bool:
        """Whether it runs."""
        return self.is_alive and self._timeline.now_ms >= self._paused_until_ms

    def run(self, work: Work) -> None:
        """Does something now, after the pause, or never."""
        if not self.is_alive:
            return
        if self._timeline.now_ms < self._paused_until_ms:
            self._late.append(work)
        else:
            work()

    def run_first(self, work: Work) -> None:
        """As `run`; after a pause before everything else: an event loop looks at its sockets before it looks at its timers."""
        if self.is_alive and self._timeline.now_ms < self._paused_until_ms:
            self._late_first.append(work)
        else:
            self.run(work)

    def after(self, local_ms: int, work: Work) -> None:
        """Does something so much later by its own clock."""
        self._timeline.after(self._clock.world_ms(local_ms), partial(self.run, work))

    def pause(self, ms: int) -> None:
        """Nothing of it runs for so long; its connections stay."""
        self._timeline.note(self.name, f"paused for {ms} ms")
        was_awake = self.is_awake
        self._paused_until_ms = max(self._paused_until_ms, self._timeline.now_ms + ms)
        if was_awake:
            self.on_paused()
        self._timeline.at(self._paused_until_ms, self._wake_up)

    def wake(self) -> None:
        """Ends a pause."""
        if self.is_alive and not self.is_awake:
            self._paused_until_ms = self._timeline.now_ms
            self._wake_up()

    def _wake_up(self) -> None:
        if not self.is_awake:
            return
        first, late = self._late_first, self._late
        self._late_first, self._late = [], []
        self._timeline.note(self.name, "goes on")
        for work in first:
            self.run(work)
        self.on_resumed()
        for work in late:
            self.run(work)

    def on_paused(self) -> None:
        """It stands still from now on."""

    def on_resumed(self) -> None:
        """It runs again, and has seen which connections are gone; what else was due comes next."""

    def on_notice(self) -> None:
        """A broker says that the group changed."""

    def on_lost(self, connection: "Connection") -> None:
        """A connection is gone."""
