"""What members write into their flight recorder, in both modes under the same names."""

import logging
from collections.abc import Callable

from trimtab.balance.leased_effects import Happened
from trimtab.balance.rebalance_effects import Drop, Lock, Release, StartPull, Why
from trimtab.balance.recorder import Event, Kind, Recorder
from trimtab.io.clock import Clock
from trimtab.model import MessageQueue, Now

_log = logging.getLogger(__name__)

_KINDS = {Why.SILENT: Kind.EXPIRED, Why.MOVED: Kind.OFFSET_MOVED}


class Records:
    """The recorder of one member with its clock; `in_flight` says how many messages of a queue are not finished.

    `tell` hears of every event, if somebody publishes them.
    """

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        in_flight: Callable[[MessageQueue], int],
        tell: Callable[[Event], None] | None = None,
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._in_flight = in_flight
        self._tell = tell

    def note(self, happened: Happened) -> None:
        """Keeps it, with what is in flight if it is about a queue."""
        now = Now(monotonic_ms=self._clock.monotonic_ms(), wall_ms=self._clock.wall_ms())
        queue = happened.queue
        event = self._recorder.record(
            now, happened.kind, cause=happened.cause, queue=queue, other=happened.other, offset=happened.offset,
            duration_ms=happened.duration_ms, detail=happened.detail,
            in_flight=None if queue is None else self._in_flight(queue),
        )  # fmt: skip
        if self._tell is not None:
            self._tell(event)
        _log.debug("%s", happened)

    # --- classic mode -----------------------------------------------------------------------------------------

    def dropped(self, effect: Drop) -> None:
        """A queue is let go at once."""
        self.note(Happened(_KINDS.get(effect.why, Kind.DROPPED), cause=effect.why.value, queue=effect.queue))

    def released(self, effect: Release, duration_ms: int, *, was_released: bool) -> None:
        """An ordered queue was let go, or its handler took too long and the next round tries again."""
        if was_released:
            self.note(
                Happened(Kind.RELEASED, cause=effect.why.value, queue=effect.queue, duration_ms=duration_ms)
            )
        else:
            self.note(Happened(Kind.DRAINING, cause="its handler still runs", queue=effect.queue))

    def refused(self, effect: Lock, granted: list[MessageQueue]) -> None:
        """Locks that another member has."""
        for queue in effect.queues:
            if queue not in granted:
                self.note(Happened(Kind.REFUSED, cause="another member has the lock", queue=queue))

    def began(self, effect: StartPull) -> None:
        """A queue is read from now on."""
        self.note(
            Happened(Kind.ACQUIRED, cause="it is in my share", queue=effect.queue, offset=effect.offset)
        )
