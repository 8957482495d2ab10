"""Messages that wait for a moment of their own, of 5.x: `TIMER_DELIVER_MS` and its kin.

The timer topic has one queue, in the order of arrival. In memory there is a wheel: for each second the offsets of the messages
that are due at its end, eight bytes each, whatever a message weighs. It is filled from the queue's entries alone, because an
entry's code is the time. As in Apache's broker `TIMER_OUT_MS` is the second in which the wanted moment lies, and a second is
delivered when it is over: never early, at most a second late.

A message with `TIMER_DEL_UNIQKEY` takes another one of the same second back. It is known by its code, which is one more than
the time; all of a second are read before the second is delivered.

What is saved: the first offset that still waits, how far the queue is in the wheel, and the first second that waits. Entries
before that second are delivered, all others wait, except those that were delivered after the log was as long as the state
says: their copies are found as `copies` tells. A second that is half delivered is not saved.
"""

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from trimtab.broker import names
from trimtab.broker.copies import EarlierCopies, Savings, append_copy, copy_of, destination_of
from trimtab.broker.placing import TIMER_DEL_UNIQKEY, TIMER_PRECISION_MS
from trimtab.broker.store.errors import StoreDamagedError, StoreError, StoreWriteError
from trimtab.errors import InvalidMessageError
from trimtab.wire.bodies.base import Body
from trimtab.wire.messages import StoredMessage, decode_messages
from trimtab.wire.scalars import I64

if TYPE_CHECKING:
    from trimtab.broker.core import BrokerCore
    from trimtab.broker.store import Store
    from trimtab.model import Now

STATE = "timers"
TICK_MESSAGES_MAX = 1_000
TICK_BYTES_MAX = 2 << 20
READ_MESSAGES_MAX = 256
TICK_SCANS_MAX = 16
"""How often a tick looks for new entries; each time the store gives some thousands."""

_QUEUE = 0


class TimerCursors(Body, frozen=True, kw_only=True):
    """See the module's own words."""

    first_waiting: I64 = 0
    filled: I64 = 0
    first_second: I64 = 0
    log_place: I64 = 0


class Wheel:
    """Offsets by the second they are due in, earliest first."""

    def __init__(self) -> None:
        self._offsets: dict[int, array[int]] = {}
        self._seconds: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, second: int, offset: int) -> None:
        """Offsets of a second must come in ascending order."""
        offsets = self._offsets.get(second)
        if offsets is None:
            offsets = self._offsets[second] = array("q")
            heappush(self._seconds, second)
        offsets.append(offset)
        self._count += 1

    def first_second(self) -> int | None:
        """The earliest second that anything waits for."""
        return self._seconds[0] if self._seconds else None

    def take(self) -> tuple[int, "array[int]"]:
        """That second, and what waits for it."""
        second = heappop(self._seconds)
        offsets = self._offsets.pop(second)
        self._count -= len(offsets)
        return second, offsets

    def first_offset(self) -> int | None:
        """The lowest offset of all that wait."""
        return min((offsets[0] for offsets in self._offsets.values()), default=None)


class _Second:
    """A second that is being delivered."""

    __slots__ = ("at", "offsets", "recalled", "recalls", "settled")

    def __init__(self, offsets: "array[int]", recalls: "array[int]") -> None:
        self.offsets = offsets
        self.recalls = recalls
        """Offsets of messages that take others back and are yet to be read."""
        self.recalled: set[tuple[str, str | None]] = set()
        """Topic and unique key of what is taken back."""
        self.at = self.settled = 0


class Timers:
    """All messages with a moment of their own."""

    def __init__(self, saved: TimerCursors | None, store: "Store") -> None:
        self._saved = saved or TimerCursors()
        self._wheel = Wheel()
        self._recalls = Wheel()
        self._until = store.max_offset(names.TIMER_TOPIC, _QUEUE)
        self._filled = min(self._saved.first_waiting, self._until)
        self._earlier = EarlierCopies(store, self._saved.log_place)
        self._savings = Savings(STATE, self._saved.log_place)
        self._second: _Second | None = None
        self._in_flight = False

    def __len__(self) -> int:
        """How many messages wait."""
        second = self._second
        return len(self._wheel) + (0 if second is None else len(second.offsets) - second.settled)

    def deliver(self, core: "BrokerCore", now: "Now") -> None:
        """Delivers what is due, within the budget of one tick, and saves now and then how far it is."""
        is_whole = self._fill(core)
        if self._savings.is_due(core, now):
            self.save(core, now)
        budget = [TICK_MESSAGES_MAX, TICK_BYTES_MAX]
        while is_whole and not self._in_flight and budget[0] > 0 and budget[1] > 0:
            if core.store.refusal is not None or not self._begin_second(now):
                return
            self._deliver_some(core, budget, now)

    def first_place(self, core: "BrokerCore") -> int | None:
        """Where the oldest message that waits lies in the log."""
        second = self._second
        waiting = [self._wheel.first_offset(), self._recalls.first_offset()]
        waiting += [] if second is None else [*second.offsets[second.settled : second.settled + 1]]
        waiting += [self._filled] if self._filled < core.store.max_offset(names.TIMER_TOPIC, _QUEUE) else []
        offset = min((one for one in waiting if one is not None), default=None)
        entry = None if offset is None else core.store.entry(names.TIMER_TOPIC, _QUEUE, offset)
        return None if entry is None else entry.physical_offset

    def save(self, core: "BrokerCore", now: "Now") -> None:
        """Saves how far it is, unless it stands in the middle of a second or is late."""
        second = self._first_second()
        if self._second is not None or self._filled < self._until or self._is_over(second, now):
            return
        waiting = [
            offset for wheel in (self._wheel, self._recalls) if (offset := wheel.first_offset()) is not None
        ]
        body = TimerCursors(
            first_waiting=min(waiting, default=self._filled),
            filled=self._filled,
            first_second=0 if second is None else second,
            log_place=core.store.written_end,
        )
        self._savings.save(core, body, now)

    # --- filling the wheel

    def _fill(self, core: "BrokerCore") -> bool:
        """Takes new entries into the wheel; False if there are more than one tick can take."""
        for _ in range(TICK_SCANS_MAX):
            codes: list[int] = []

            def note(code: int, codes: list[int] = codes) -> bool:
                codes.append(code)
                return False

            offset = max(self._filled, core.store.min_offset(names.TIMER_TOPIC, _QUEUE))
            if offset >= core.store.max_offset(names.TIMER_TOPIC, _QUEUE):
                return True
            try:
                seen = core.store.read(
                    names.TIMER_TOPIC, _QUEUE, offset, messages_max=1, bytes_max=1, accept=note
                )
            except StoreDamagedError as damage:
                core.incidents.append((0, damage))
                self._filled = offset + 1
                continue
            self._filled = max(seen.next_offset, offset + 1)
            for at, code in enumerate(
                codes, self._filled - len(codes)
            ):  # the oldest may be gone, and were not noted
                self._take_entry(at, code)
            self._savings.changed()
        return False

    def _take_entry(self, offset: int, code: int) -> None:
        second, rest = divmod(code, TIMER_PRECISION_MS)
        saved = self._saved
        if offset < saved.filled and (second < saved.first_second or not saved.first_second):
            return
        (self._recalls if rest else self._wheel).add(second, offset)

    # --- delivering

    def _first_second(self) -> int | None:
        seconds = (self._wheel.first_second(), self._recalls.first_second())
        return min((second for second in seconds if second is not None), default=None)

    @staticmethod
    def _is_over(second: int | None, now: "Now") -> bool:
        return second is not None and (second + 1) * TIMER_PRECISION_MS <= now.wall_ms

    def _begin_second(self, now: "Now") -> bool:
        """Whether there is a second to deliver from."""
        if self._second is not None:
            return True
        first = self._first_second()
        if not self._is_over(first, now):
            return False
        offsets, recalls = array("q"), array("q")
        if self._wheel.first_second() == first:
            offsets = self._wheel.take()[1]
        if self._recalls.first_second() == first:
            recalls = self._recalls.take()[1]
        self._second = _Second(offsets, recalls)
        return True

    def _deliver_some(self, core: "BrokerCore", budget: list[int], now: "Now") -> None:
        second = self._second
        assert second is not None, "a second was begun"
        self._read_recalls(core, second, budget)
        end: int | None = None
        for at, message in self._messages(core, second, budget):
            try:
                if message is not None and not self._is_done(second, message):
                    end = self._deliver_message(core, message, now) or end
            except StoreWriteError:
                second.at = second.settled  # what this batch had so far is lost with it
                budget[0] = 0
                return
            except StoreError:
                budget[0] = 0
                break
            second.at = at + 1
        self._settle_at(core, second, end)

    @staticmethod
    def _read_recalls(core: "BrokerCore", second: _Second, budget: list[int]) -> None:
        while second.recalls and budget[0] > 0:
            budget[0] -= 1
            for message in _read(core, second.recalls.pop(), 1, 1):
                name = recalled_by(message)
                if name is not None:
                    second.recalled.add(name)

    @staticmethod
    def _messages(
        core: "BrokerCore", second: _Second, budget: list[int]
    ) -> Iterator[tuple[int, StoredMessage | None]]:
        """Where it stands in the second, and the message; None if it is gone. The caller moves on."""
        while not second.recalls and second.at < len(second.offsets) and budget[0] > 0 and budget[1] > 0:
            run = _run(second.offsets, second.at, min(budget[0], READ_MESSAGES_MAX))
            messages = _read(core, second.offsets[second.at], run, budget[1])
            if not messages:
                budget[0] -= 1
                yield second.at, None
            for message in messages:
                budget[0] -= 1
                budget[1] -= message.stored_size
                yield second.at, message

    def _is_done(self, second: _Second, message: StoredMessage) -> bool:
        """It was taken back, or delivered before the broker died."""
        destination = destination_of(message)
        if destination is not None and (destination[0], message.unique_id) in second.recalled:
            return True
        return message.queue_offset < self._until and self._earlier.has(message)

    @staticmethod
    def _deliver_message(core: "BrokerCore", message: StoredMessage, now: "Now") -> int | None:
        destination = destination_of(message)
        if destination is None or destination[0] in names.NO_CLIENT_SENDS_TO:
            core.incidents.append((0, InvalidMessageError(f"{message!r} does not say where it is to go")))
            return None
        if core.topics.is_deleted_since(destination[0], message.physical_offset):
            return None
        return append_copy(core, copy_of(message, *destination, source=message.physical_offset), now).end

    def _settle_at(self, core: "BrokerCore", second: _Second, end: int | None) -> None:
        upto = second.at

        def settled(failure: "StoreError | None", _now: "Now") -> None:
            self._in_flight = False
            if failure is None:
                self._settled(second, upto)
            else:
                second.at = second.settled

        if end is None:
            self._settled(second, upto)
            return
        self._in_flight = True
        core.writes.then(end, settled)

    def _settled(self, second: _Second, upto: int) -> None:
        second.settled = upto
        if upto == len(second.offsets) and not second.recalls:
            self._second = None
        self._savings.changed()


def recalled_by(message: StoredMessage) -> tuple[str, str] | None:
    """Topic and unique key of what a message takes back: only what was sent to the topic that it is sent to itself."""
    key, destination = message.properties.get(TIMER_DEL_UNIQKEY), destination_of(message)
    if not key or destination is None:
        return None
    topic, plus, unique = key.partition("+")
    if not plus:
        return destination[0], key  # as 5.0 and 5.1 have it
    return (topic, unique) if topic == destination[0] else None


def _run(offsets: "array[int]", at: int, longest: int) -> int:
    """How many offsets follow each other from there on."""
    end = at + 1
    while end < len(offsets) and end - at < longest and offsets[end] == offsets[end - 1] + 1:
        end += 1
    return end - at


def _read(core: "BrokerCore", offset: int, messages_max: int, bytes_max: int) -> list[StoredMessage]:
    """Messages from there on; none if the first is gone or damaged."""
    try:
        result = core.store.read(
            names.TIMER_TOPIC, _QUEUE, offset, messages_max=messages_max, bytes_max=bytes_max
        )
    except StoreDamagedError as damage:
        core.incidents.append((0, damage))
        return []
    messages = decode_messages(result.body)
    return messages if messages and messages[0].queue_offset == offset else []
