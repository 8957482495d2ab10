"""Which pulls of one queue are on their way: how many, at which offsets, and in which order their answers are handed on. PURE.

A broker gives only so many messages for one pull (Apache's: 32). Waiting for each answer before the next pull leaves broker and
client idle in turn, so the next pulls leave at offsets that are guessed from what came before: `offset + stride * k`. Each asks for
no more than one stride, so answers do not overlap. Guesses stay below the queue's end as the last answer told it, so that
they find something. Answers come in any order and are handed on in the order of their offsets.

    pipeline = Pipeline(offset)
    for pull in pipeline.pulls(room_bytes): ...            send it
    for handed in pipeline.answered(pull.number, answer): ... hand it on, in this order

An answer shorter than its pull leaves a gap, which is asked for; that teaches the stride. Where nothing is left, one
pull alone waits at the broker. A filter makes the offsets that an answer covers unknowable, so nothing is guessed with one.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

STRIDE_PROBE_AFTER = 16
"""So many full answers in a row, and a larger stride is tried; twice as many after each try that failed, until answers get shorter."""
STRIDE_PROBE_AFTER_MAX = 4_096
FIRST_GUESS_BYTES = 64 << 10
"""What an answer is taken to have before the first one came."""


class Found(Enum):
    """What a broker says to a pull."""

    MESSAGES = "messages"
    NONE_MATCHED = "none matched"
    NONE_YET = "none yet"
    MOVED = "moved"


class Pull(msgspec.Struct, frozen=True, gc=False):
    """A pull to be sent. `may_wait`: the broker shall hold it until there is something."""

    number: int
    offset: int
    messages_max: int
    may_wait: bool


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What came back, without the messages: they are the shell's."""

    found: Found
    next_offset: int
    max_offset: int
    body_bytes: int = 0


class Handed(msgspec.Struct, frozen=True, gc=False):
    """The answer to pull `number` is next in order; what of it lies below `offset` was handed on before."""

    number: int
    offset: int
    next_offset: int
    found: Found


class Shape(NamedTuple):
    """How far a pipeline may go."""

    depth_max: int = 4
    count_max: int = 4_096
    """Messages of one pull, where the broker gives that many."""


class _Slot(msgspec.Struct, eq=False):
    """A stretch of the queue that is asked for: not sent (0), sent, or answered."""

    offset: int
    count: int
    may_wait: bool = False
    number: int = 0
    answer: Answer | None = None

    @property
    def end(self) -> int:
        return self.offset + self.count


@dataclass(slots=True)
class Tally:
    """How many pulls were sent, and how many of their answers nobody needed."""

    sent: int = 0
    wasted: int = 0


class Pipeline:
    """See the module's own words. `stop`: where a reader of a range ends."""

    __slots__ = (
        "_answer_bytes", "_depth", "_end", "_full_in_a_row", "_guesses", "_head", "_is_over", "_number", "_probe_after",
        "_shape", "_slots", "_stop", "_stride", "_tried", "tally",
    )  # fmt: skip

    def __init__(
        self, offset: int, shape: Shape | None = None, *, stop: int | None = None, is_filtered: bool = False
    ) -> None:
        self._shape = shape or Shape()
        self._stop = stop
        self._guesses = not is_filtered
        self._stride = self._shape.count_max
        self._answer_bytes = FIRST_GUESS_BYTES
        self._probe_after = STRIDE_PROBE_AFTER
        self._tried = 0  # a larger stride of which it is not known whether brokers give that much
        self._full_in_a_row = 0
        self._number = 0
        self.tally = Tally()
        self.seek(offset)

    def __repr__(self) -> str:
        return (
            f"<Pipeline at={self._head} end={self._end} depth={self._depth} stride={self._stride} slots={len(self._slots)}"
            f" sent={self.tally.sent} wasted={self.tally.wasted}>"
        )

    @property
    def position(self) -> int:
        """The offset that is handed on next."""
        return self._head

    @property
    def end(self) -> int | None:
        """The queue's end, as the last answer told it."""
        return self._end

    @property
    def expected_bytes(self) -> int:
        """What the next answer is taken to have."""
        return self._answer_bytes

    @property
    def is_over(self) -> bool:
        """Nothing more is asked: the range is read, or the offset moved and nobody said where to go on."""
        return self._is_over

    def knows(self, number: int) -> bool:
        """Whether the answer to this pull is or may be needed."""
        return self._index(number) is not None

    def seek(self, offset: int, *, is_filtered: bool | None = None) -> None:
        """Goes on from here; what is on its way is forgotten."""
        if is_filtered is not None:
            self._guesses = not is_filtered
        self._slots: list[_Slot] = []
        self._head = offset
        self._end: int | None = None
        self._depth = 1
        self._is_over = self._stop is not None and offset >= self._stop

    # --- what to send -----------------------------------------------------------------------------------------

    def pulls(self, room_bytes: int) -> list[Pull]:
        """What shall be sent now, with room for so many bytes of answers."""
        if self._is_over or room_bytes <= 0:
            return []
        self._plan(room_bytes)
        return [self._send(slot) for slot in self._slots if not slot.number]

    def _plan(self, room_bytes: int) -> None:
        """Adds stretches at the far end while depth, room and the queue allow."""
        slots = self._slots
        on_way = 0
        for slot in slots:
            if slot.answer is None:
                on_way += 1
            if not slot.number:
                room_bytes -= self._answer_bytes
        frontier = slots[-1].end if slots else self._head
        known_end = frontier if self._end is None else self._end
        if self._stop is not None:
            known_end = min(known_end, self._stop)
        while on_way < self._depth and frontier < known_end and (room_bytes > 0 or not slots):
            count = min(self._stride, known_end - frontier) if self._guesses else self._stride
            slots.append(_Slot(frontier, count))
            frontier += count
            on_way += 1
            room_bytes -= self._answer_bytes
        if not slots:
            slots.append(_Slot(frontier, self._until_stop(frontier), may_wait=True))

    def _until_stop(self, offset: int) -> int:
        return self._stride if self._stop is None else min(self._stride, self._stop - offset)

    def _send(self, slot: _Slot) -> Pull:
        self._number += 1
        slot.number = self._number
        self.tally.sent += 1
        return Pull(slot.number, slot.offset, slot.count, slot.may_wait)

    # --- what came back ---------------------------------------------------------------------------------------

    def failed(self, number: int) -> None:
        """No answer will come: the stretch is asked for again, and nothing is guessed for a while."""
        at = self._index(number)
        if at is not None:
            self._depth = 1
            self._slots[at].number = 0

    def answered(self, number: int, answer: Answer) -> list[Handed]:
        """What can be handed on now. An answer to a pull that was forgotten gives nothing."""
        at = self._index(number)
        if at is None:
            return []
        if answer.found is Found.MOVED:
            return self._moved(at, answer)
        slot = self._slots[at]
        if answer.next_offset <= slot.offset:
            self._end = slot.offset  # whatever it says of the end: the next pull there waits
            self._nothing_there(at)
            return self._handed()
        self._end = max(self._end or 0, answer.max_offset)
        self._learn(slot, answer)
        slot.answer = answer
        if answer.next_offset < slot.end and at + 1 < len(self._slots):
            self._slots.insert(at + 1, _Slot(answer.next_offset, slot.end - answer.next_offset))
        slot.count = answer.next_offset - slot.offset
        return self._handed()

    def _index(self, number: int) -> int | None:
        for at, slot in enumerate(self._slots):
            if slot.number == number:
                return at
        return None

    def _moved(self, at: int, answer: Answer) -> list[Handed]:
        """Of the first pull that is news; of a guess it only says that the guess was wrong."""
        if at == 0:
            head = self._slots[0]
            self._slots = []
            self._is_over = True
            return [Handed(head.number, head.offset, answer.next_offset, Found.MOVED)]
        self._waste(at)
        return []

    def _nothing_there(self, at: int) -> None:
        """The queue ends before this stretch. A pull that waited in vain was not wasted, it is how waiting works."""
        if at == 0 and len(self._slots) == 1:
            self._slots = []
        else:
            self._waste(at)

    def _waste(self, at: int) -> None:
        """Forgets this stretch and all behind it."""
        self.tally.wasted += sum(slot.number > 0 for slot in self._slots[at:])
        del self._slots[at:]
        self._depth = max(1, self._depth // 2)

    def _learn(self, slot: _Slot, answer: Answer) -> None:
        """The stride follows what brokers give; the depth grows while answers are full."""
        if answer.body_bytes:
            self._answer_bytes += (answer.body_bytes - self._answer_bytes) // 4
        if not self._guesses:
            return
        given = answer.next_offset - slot.offset
        if given >= slot.count:
            self._depth = min(self._depth + 1, self._shape.depth_max)
            self._full(given)
        elif answer.max_offset - answer.next_offset >= given:  # else it may have been the end a moment ago
            self._short(slot.count, given)

    def _full(self, given: int) -> None:
        self._full_in_a_row += given >= self._stride
        if given >= self._tried:
            self._tried = 0
        if self._full_in_a_row >= self._probe_after and self._stride < self._shape.count_max:
            self._full_in_a_row = 0
            self._stride = self._tried = min(2 * self._stride, self._shape.count_max)

    def _short(self, asked: int, given: int) -> None:
        """Of a try it says that brokers do not give that much. Else something changed, maybe for this one answer: what was learned of tries is old."""
        if asked != self._tried:
            self._probe_after = STRIDE_PROBE_AFTER
        elif self._stride == asked:
            self._probe_after = min(2 * self._probe_after, STRIDE_PROBE_AFTER_MAX)
        self._full_in_a_row = 0
        self._stride = min(self._stride, max(given, 1))

    def _handed(self) -> list[Handed]:
        """The answered stretches at the head, in order."""
        handed = []
        while self._slots and (answer := self._slots[0].answer) is not None:
            slot = self._slots.pop(0)
            if answer.next_offset <= self._head:
                self.tally.wasted += 1
                continue
            handed.append(Handed(slot.number, self._head, answer.next_offset, answer.found))
            self._head = answer.next_offset
            self._drop_covered()
        if self._stop is not None and self._head >= self._stop:
            self._is_over = True
            self._slots = []
        return handed

    def _drop_covered(self) -> None:
        """An answer that reached farther than asked makes what lies under it needless."""
        while self._slots and self._slots[0].end <= self._head:
            self.tally.wasted += self._slots.pop(0).number > 0
        if self._slots and not self._slots[0].number and self._slots[0].offset < self._head:
            slot = self._slots[0]
            slot.count, slot.offset = slot.end - self._head, self._head
