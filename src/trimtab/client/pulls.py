"""Pulls of one queue: pipelined while there is a backlog, one long poll at the end of the queue, retried for ever.

How a consumer uses it:

    pulls = QueuePulls(session, owner, group, queue, offset, wanted, pulling=…, room=…)
    pulls.start()                   # answers come as owner.on_pulled(pulled), in the order of the queue, on the loop
    pulls.stop(); pulls.go()        # flow control: no further pulls; what is on its way still comes
    pulls.seek(offset)              # goes on elsewhere; what is on its way is thrown away
    pulls.drop()                    # the end; what comes later is thrown away

`owner` is a `PullOwner`: four plain functions, called on the loop, which must not block. A `Pulled` is one answer. Nothing in it
is decoded before `messages` is asked for (a list of `Received`, tags checked exactly); `body` is the bytes for `wire.columns`. An answer
without messages is handed on too, when the filter of the broker passed over something: `next_offset` then is the news. Who
raises a `TrimtabError` in `on_pulled` says that the answer is damaged: it is asked for again, and nothing behind it comes first.

`room` bounds the bytes that all queues of a consumer hold together: whoever has done with a `Pulled` says `pulled.release()`.

Which offsets are asked is decided by `balance/pipeline.py`. Commits ride on pulls only where the owner says so (`riding`).
"""

import asyncio
import logging

import msgspec

from trimtab.balance.pipeline import Answer, Found, Handed, Pipeline, Pull, Shape, Tally
from trimtab.client.pulls_asking import Asking
from trimtab.client.pulls_values import ALL, SQL92, TAG, OffsetMoved, Pulled, PullOwner, Riding, Room, Wanted
from trimtab.client.session import Session
from trimtab.errors import (
    ConnectionLostError,
    FilterDataNotFoundError,
    FilterDataNotLatestError,
    FlowControlError,
    ProtocolError,
    RequestTimeoutError,
    SubscriptionNotFoundError,
    SubscriptionNotLatestError,
    TrimtabError,
    error_from_response,
)
from trimtab.io.connection import PeerConnection
from trimtab.model import MessageQueue
from trimtab.settings import Pulling
from trimtab.wire.codes import ResponseCode
from trimtab.wire.commands import Command
from trimtab.wire.headers.base import decode_ext
from trimtab.wire.headers.consume import PullMessageResponse

__all__ = [
    "ALL",
    "SQL92",
    "TAG",
    "OffsetMoved",
    "PullOwner",
    "Pulled",
    "QueuePulls",
    "Riding",
    "Room",
    "Wanted",
]

_log = logging.getLogger(__name__)

FLOW_CONTROL_S = 0.02
UNHELD_PAUSE_S = 0.05
_UNHEARD = (
    SubscriptionNotFoundError,
    SubscriptionNotLatestError,
    FilterDataNotFoundError,
    FilterDataNotLatestError,
)
"""The broker does not know our subscription as it is now: a heartbeat mends that."""

_FOUND = {
    int(ResponseCode.SUCCESS): Found.MESSAGES,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): Found.NONE_MATCHED,
    int(ResponseCode.PULL_NOT_FOUND): Found.NONE_YET,
    int(ResponseCode.PULL_OFFSET_MOVED): Found.MOVED,
}


class _OnWay(msgspec.Struct, frozen=True):
    pull: Pull
    connection: PeerConnection
    opaque: int
    deadline: float
    reserved_bytes: int


class QueuePulls:
    """See the module's own words."""

    def __init__(
        self,
        session: Session,
        owner: PullOwner,
        group: str,
        queue: MessageQueue,
        offset: int,
        wanted: Wanted,
        *,
        pulling: Pulling,
        room: Room | None = None,
        stop: int | None = None,
    ) -> None:
        self.queue = queue
        self.group = group
        self._session = session
        self._owner = owner
        self._asking = Asking(session, group, queue, wanted, pulling)
        self._pulling = pulling
        self._room = room
        shape = Shape(pulling.depth_max, pulling.pull_messages_max)
        self._pipeline = Pipeline(offset, shape, stop=stop, is_filtered=wanted.is_filtered)
        self._on_way: dict[int, _OnWay] = {}
        self._answers: dict[int, tuple[PullMessageResponse, bytes]] = {}
        self._is_stopped = False
        self._is_dropped = False
        self._waits_for_room = False
        self._mending: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._retry_s = pulling.retry_s_min
        self._loop: asyncio.AbstractEventLoop
        self.last_pull_ms = session.clock.monotonic_ms()
        """When it was last tried to pull, whatever came of that: Java gives up queues of which nothing of the kind is heard."""

    def __repr__(self) -> str:
        state = "dropped" if self._is_dropped else "stopped" if self._is_stopped else "on"
        return f"<QueuePulls {self.queue} {state} {self._pipeline}>"

    @property
    def position(self) -> int:
        """The offset that comes next."""
        return self._pipeline.position

    @property
    def end(self) -> int | None:
        """The queue's end as the last answer told it."""
        return self._pipeline.end

    @property
    def is_held_back(self) -> bool:
        """It is not pulled because we want it so: flow control, or what was pulled leaves no room."""
        return self._is_stopped or self._waits_for_room

    @property
    def is_over(self) -> bool:
        """Nothing more will come."""
        return self._is_dropped or self._pipeline.is_over

    @property
    def tally(self) -> Tally:
        """Pulls sent, and pulls wasted."""
        return self._pipeline.tally

    def start(self) -> None:
        """Begins to pull."""
        self._loop = asyncio.get_running_loop()
        self._pump()

    def stop(self) -> None:
        """No further pulls until `go`."""
        self._is_stopped = True

    def go(self) -> None:
        """Pulls again."""
        if self._is_stopped:
            self._is_stopped = False
            self._pump()

    def seek(self, offset: int) -> None:
        """Goes on from another offset."""
        self._forget_all()
        self._pipeline.seek(offset)
        self._pump()

    def again(self, offset: int, error: TrimtabError) -> None:
        """What came from here on is damaged: after a pause it is asked for once more."""
        if not self._is_dropped:
            self._forget_all()
            self._pipeline.seek(offset)
            self._mend(error)

    def want(self, wanted: Wanted, offset: int | None = None) -> None:
        """Pulls with a changed subscription, from here or another offset on; what is on its way is asked for anew."""
        self._forget_all()
        self._asking.want(wanted)
        position = self.position if offset is None else offset
        self._pipeline.seek(position, is_filtered=wanted.is_filtered)
        self._pump()

    def drop(self) -> None:
        """Ends it."""
        self._is_dropped = True
        self._forget_all()
        if self._mending is not None:
            self._mending.cancel()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # --- sending ----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Sends what there is to send."""
        if self._is_dropped or self._mending is not None or self._pipeline.is_over:
            return
        self.last_pull_ms = self._session.clock.monotonic_ms()
        if self._is_stopped or self._waits_for_room:
            return
        connection = self._asking.connection_now()
        if connection is None:
            self._mend(None)
            return
        room = self._room
        pulls = self._pipeline.pulls(1 << 62 if room is None else room.free_bytes)
        for pull in pulls:
            self._send(connection, pull)
        if room is not None and not pulls and not self._on_way:
            self._waits_for_room = True
            room.wait(self._room_came)

    def _room_came(self) -> None:
        self._waits_for_room = False
        self._pump()

    def _send(self, connection: PeerConnection, pull: Pull) -> None:
        reserved_bytes = 0 if pull.may_wait or self._room is None else self._pipeline.expected_bytes
        riding = self._owner.riding(self.queue)
        opaque = connection.next_opaque()
        frame = self._asking.frame(pull, opaque, riding)
        try:
            connection.request(
                opaque, frame, lambda answer, failure: self._came(pull.number, answer, failure)
            )
        except TrimtabError as error:
            self._pipeline.failed(pull.number)
            self._mend(error)
            return
        if self._room is not None:
            self._room.take(reserved_bytes)
        deadline = self._loop.time() + self._pulling.timeout_s
        self._on_way[pull.number] = _OnWay(pull, connection, opaque, deadline, reserved_bytes)
        if self._watch is None:
            self._watch = self._loop.call_later(self._pulling.timeout_s, self._check_overdue)

    # --- answers ----------------------------------------------------------------------------------------------

    def _came(self, number: int, command: Command | None, failure: Exception | None) -> None:
        on_way = self._on_way.pop(number, None)
        if on_way is None:
            return  # forgotten meanwhile
        try:
            if command is None:
                raise failure or ConnectionLostError(f"no answer to a pull of {self.queue}")
            answer = self._keep(number, command)
        except TrimtabError as error:
            self._unreserve(on_way)
            self._pipeline.failed(number)
            self._mend(error)
            return
        self._unreserve(on_way)
        try:
            self._hand_on_all(number, answer)
        except Exception as error:  # noqa: BLE001 - the connection, which calls this, is not to blame for its users
            text = f"the owner of {self!r} failed with what it was handed"
            self._loop.call_exception_handler({"message": text, "exception": error})
        if self._was_refused_to_wait(on_way, answer):
            self._loop.call_later(UNHELD_PAUSE_S, self._pump)
        else:
            self._pump()

    def _keep(self, number: int, command: Command) -> Answer:
        """Takes an answer in; what is none is raised."""
        found = _FOUND.get(command.code)
        if found is None:
            asked = f"pull of {self.queue} for group {self.group!r}"
            remark = command.remark or ""
            raise error_from_response(command.code, asked=asked, peer=self.queue.broker_name, remark=remark)
        header = decode_ext(PullMessageResponse, command.ext)
        if found is Found.NONE_MATCHED and header.next_begin_offset <= self.position:
            raise ProtocolError(
                f"{self.queue} at {self.position}: nothing found, and not told where to go on"
            )
        self._asking.broker_id = header.suggest_which_broker_id
        if found is not Found.MESSAGES:
            self._retry_s = self._pulling.retry_s_min
        self._answers[number] = header, command.body
        if self._room is not None:
            self._room.take(len(command.body))
        return Answer(found, header.next_begin_offset, header.max_offset, len(command.body))

    def _hand_on_all(self, number: int, answer: Answer) -> None:
        for handed in self._pipeline.answered(number, answer):
            entry = self._answers.pop(handed.number, None)
            if entry is None:
                break  # the owner let go, or went elsewhere, while it was handed something
            if handed.found is Found.MOVED:
                self._moved(handed, *entry)
            else:
                self._hand_on(handed, *entry)
        for useless in [number for number in self._answers if not self._pipeline.knows(number)]:
            self._throw_away(useless)

    def _hand_on(self, handed: Handed, header: PullMessageResponse, body: bytes) -> None:
        tags = self._asking.wanted.tags
        pulled = Pulled(self.queue, body, handed, header, tags=tags, room=self._room)
        try:
            self._owner.on_pulled(pulled)
        except TrimtabError as error:
            # What came is damaged: it is asked for again, and nothing behind it is handed on before.
            pulled.release()
            self.again(handed.offset, error)
        else:
            self._retry_s = self._pulling.retry_s_min

    def _moved(self, handed: Handed, header: PullMessageResponse, body: bytes) -> None:
        if self._room is not None:
            self._room.give(len(body))
        moved = OffsetMoved(
            self.queue, handed.offset, handed.next_offset, header.min_offset, header.max_offset
        )
        _log.warning(
            "group %s: offset %d of %s is not there, the broker has %d to %d; reading goes on at %d",
            self.group, moved.asked, moved.queue, moved.min_offset, moved.max_offset, moved.offset,
        )  # fmt: skip
        offset = self._owner.on_moved(moved)
        if offset is None:
            self.drop()
        elif offset == moved.asked:
            self.again(offset, ProtocolError(f"{self.queue} at {offset}: moved, and not told where to"))
        elif not self._is_dropped:
            self._forget_all()
            self._pipeline.seek(offset)

    def _was_refused_to_wait(self, on_way: _OnWay, answer: Answer) -> bool:
        """A broker that holds no further pulls answers at once; asking it again at once would keep both busy for nothing."""
        if not on_way.pull.may_wait:
            return False
        sent_at = on_way.deadline - self._pulling.timeout_s
        is_early = self._loop.time() - sent_at < min(UNHELD_PAUSE_S, self._pulling.suspend_ms / 1000)
        return is_early and answer.found is Found.NONE_YET and answer.next_offset <= on_way.pull.offset

    def _unreserve(self, on_way: _OnWay) -> None:
        if self._room is not None and on_way.reserved_bytes:
            self._room.give(on_way.reserved_bytes)

    def _throw_away(self, number: int) -> None:
        _, body = self._answers.pop(number)
        if self._room is not None:
            self._room.give(len(body))

    def _forget_all(self) -> None:
        """Whatever is on its way or waits for its turn is not wanted any more."""
        forgotten, self._on_way = self._on_way, {}
        for on_way in forgotten.values():
            self._unreserve(on_way)
        for number in list(self._answers):
            self._throw_away(number)

    # --- when something goes wrong ----------------------------------------------------------------------------

    def _check_overdue(self) -> None:
        """Pulls that were not answered in time count as failed."""
        self._watch = None
        if self._is_dropped:
            return
        now = self._loop.time()
        overdue = [number for number, on_way in self._on_way.items() if on_way.deadline <= now]
        for number in overdue:
            on_way = self._on_way.pop(number)
            on_way.connection.expired(on_way.opaque)
            self._unreserve(on_way)
            self._pipeline.failed(number)
        if self._on_way:
            next_at = min(on_way.deadline for on_way in self._on_way.values())
            self._watch = self._loop.call_at(next_at, self._check_overdue)
        if overdue:
            self._mend(RequestTimeoutError(
                f"pull of {self.queue} for group {self.group!r}: no answer within {self._pulling.timeout_s:g} s"
            ))  # fmt: skip

    def _mend(self, error: TrimtabError | None) -> None:
        """Waits a little, makes sure of route, connection and subscription, and pulls again."""
        if self._mending is None and not self._is_dropped:
            self._mending = self._loop.create_task(self._mended(error))

    async def _mended(self, error: TrimtabError | None) -> None:
        while True:
            self.last_pull_ms = self._session.clock.monotonic_ms()
            try:
                if error is not None:
                    self._owner.on_trouble(self.queue, error)
                    await asyncio.sleep(self._pause_s(error))
                    if isinstance(error, _UNHEARD):
                        await self._session.send_heartbeats()
                await self._asking.connect(anew=error is not None)
            except TrimtabError as another:
                error = another
            else:
                break
        self._mending = None
        self._pump()

    def _pause_s(self, error: TrimtabError) -> float:
        if isinstance(error, FlowControlError):
            return FLOW_CONTROL_S
        pause_s = self._retry_s
        self._retry_s = min(2 * self._retry_s, self._pulling.retry_s_max)
        return pause_s
