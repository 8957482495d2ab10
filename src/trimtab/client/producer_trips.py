"""A load of a lane on its way, from when it is to leave until its answer came or nobody waits for it any more.

A try that another broker could follow is given up early only if its broker is silent. One that answers others is alive, and trying elsewhere
would send the message twice and make busy servers, or a busy process of ours, busier: the try has half of the time that is left, again.
"""

from typing import TYPE_CHECKING

from trimtab.client.lanes import Lane, Parcel, extend, overdue
from trimtab.client.producer_watch import LOOKS_APART_S_MIN
from trimtab.errors import ClosedError, NotSentError, RequestTimeoutError, ServerUnreachableError

if TYPE_CHECKING:
    import asyncio

    from trimtab.client.producer_lanes import Lanes
    from trimtab.io.connection import PeerConnection
    from trimtab.wire.commands import Command

SECOND_LOOK_S = 0.01


class Trip:
    """Gets the answer, or the ends of the times of those on board and of those that wait behind."""

    __slots__ = (
        "_connection", "_dialling", "_is_doubtful", "_lanes", "_looked_at", "_opaque", "began_ms", "is_over", "lane", "load", "wakes_at",
    )  # fmt: skip

    def __init__(self, lanes: "Lanes", lane: Lane, load: list[Parcel], began_ms: int) -> None:
        self.lane = lane
        self.load = load
        self.began_ms = began_ms
        self.is_over = False
        self.wakes_at = 0.0
        self._lanes = lanes
        self._connection: PeerConnection | None = None
        self._opaque = 0
        self._looked_at = 0.0
        self._is_doubtful = False
        self._dialling: asyncio.Task[None] | None = None

    def left_by(self, connection: "PeerConnection", opaque: int) -> None:
        """The load is on the wire."""
        self._connection = connection
        self._opaque = opaque
        self._looked_at = self._lanes.loop.time()
        self._set_out()

    def waits_for(self, dialling: "asyncio.Task[None]") -> None:
        """The load waits for a connection."""
        self._dialling = dialling
        self._set_out()

    def __call__(self, answer: "Command | None", failure: Exception | None) -> None:
        """The answer came, or never will."""
        if self.is_over:
            return
        self.end()
        if answer is not None:
            self._lanes.answered(self.lane, self.load, self.began_ms, answer)
        else:
            error = failure or ClosedError("the connection ended")
            self._lanes.failed(self.lane, self.load, self.began_ms, error)

    def end(self) -> None:
        """Nothing more happens to it."""
        self.is_over = True
        self._lanes.watch.forget(self)
        if self.lane.waker is self:
            self.lane.waker = None

    def wake_at(self, when: float) -> None:
        """Looks at the deadlines then."""
        self.wakes_at = when
        self._lanes.watch.look_at(when)

    def _set_out(self) -> None:
        lane, load = self.lane, self.load
        when = load[0].deadline if len(load) == 1 else min([parcel.deadline for parcel in load])
        if lane.is_busy:
            lane.waker = self
            if lane.waiting:
                when = min(when, lane.earliest_deadline())
        self.wakes_at = when
        self._lanes.watch.add(self)

    def wake(self, now: float) -> None:
        """Looks at the deadlines."""
        if self.is_over:
            return
        lane = self.lane
        if not self._is_doubtful and self._connection is not None:
            # Answers may lie unread, if this process was busy: they are read before the second look.
            self._is_doubtful = True
            self.wake_at(now + SECOND_LOOK_S)
            return
        self._is_doubtful = False
        if self._connection is not None and self._connection.heard_at > self._looked_at:
            extend(lane, self.load, now)
        self._looked_at = now
        if lane.waker is self:
            for parcel in overdue(lane, now):
                parcel.done(waited_in_vain(lane))
        error = self._lateness()
        for parcel in self.load:
            if parcel.deadline <= now:
                parcel.done(error)
        left = [parcel.deadline for parcel in self.load if parcel.is_waited_for]
        if not left:
            self._give_up(error)
            return
        if lane.waker is self:
            left.append(lane.earliest_deadline())
        self.wake_at(max(min(left), now + LOOKS_APART_S_MIN))

    def _give_up(self, error: Exception) -> None:
        self.end()
        if self._connection is not None:
            self._connection.expired(self._opaque)
        if self._dialling is not None:
            self._dialling.cancel()
        self._lanes.failed(self.lane, self.load, self.began_ms, error)

    def _lateness(self) -> Exception:
        lane = self.lane
        if self._connection is None:
            return ServerUnreachableError(
                f"send to {lane.queue}: no connection to {lane.address} in time; is it running there?"
            )
        return RequestTimeoutError(
            f"send to {lane.queue} at {lane.address}: no answer in time; it may have been stored"
        )


def waited_in_vain(lane: Lane) -> NotSentError:
    """What is said to a parcel that never left."""
    return NotSentError(
        f"send to {lane.queue}: {lane.address} did not answer the messages before this one in time"
    )
