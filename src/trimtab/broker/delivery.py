"""Messages that wait for a level's time to pass: `1s 5s 10s … 2h`.

The schedule topic has one queue per level, and within it every message waits equally long, so each is in the order of delivery
and one cursor per level is all there is to remember. A tick looks at the first message of each level and delivers what is due,
up to a budget. While a batch is on its way to the disk its level pauses; if the write fails, the level goes back.

Exactly once, also over a crash: see `copies`. The time is the wall's, as in Apache's broker, because a message may wait longer
than a broker lives; one that seems to wait longer than its level, because the clock was set back, is delivered at once.
"""

from typing import TYPE_CHECKING

from trimtab.broker import names
from trimtab.broker.copies import EarlierCopies, Savings, append_copy, copy_of, destination_of
from trimtab.broker.store.errors import StoreDamagedError, StoreError, StoreWriteError
from trimtab.broker.store.queues import first_where
from trimtab.errors import InvalidMessageError
from trimtab.wire.bodies import DelayOffsets
from trimtab.wire.messages import StoredMessage, decode_messages
from trimtab.wire.scalars import I64

if TYPE_CHECKING:
    from trimtab.broker.core import BrokerCore
    from trimtab.broker.delays import DelayLevels
    from trimtab.broker.store import Store
    from trimtab.model import Now

STATE = "delays"
TICK_MESSAGES_MAX = 1_000
TICK_BYTES_MAX = 2 << 20
READ_MESSAGES_MAX = 256


class DelayCursors(DelayOffsets, frozen=True, kw_only=True):
    """Apache's delayOffset.json, and how long the log was."""

    log_place: I64 = 0


class _Level:
    """One level: the next message to deliver, and whether some are on their way to the disk."""

    __slots__ = ("delay_ms", "deliver_ms", "delivered", "in_flight", "next", "queue_id")

    def __init__(self, queue_id: int, delay_ms: int, offset: int) -> None:
        self.queue_id = queue_id
        self.delay_ms = delay_ms
        self.next = self.delivered = offset
        self.in_flight = False
        self.deliver_ms: int | None = None
        """When the next message is due, once somebody has looked."""

    def is_due(self, deliver_ms: int, now_ms: int) -> bool:
        return deliver_ms <= now_ms or deliver_ms > now_ms + self.delay_ms

    def go_to(self, offset: int) -> None:
        self.next, self.deliver_ms = offset, None


class DelayedDelivery:
    """All levels of one broker."""

    def __init__(self, saved: DelayCursors | None, levels: "DelayLevels", store: "Store") -> None:
        saved = saved or DelayCursors()
        self._until = [store.max_offset(names.SCHEDULE_TOPIC, queue_id) for queue_id in range(len(levels))]
        self._levels = [
            _Level(
                queue_id, levels.delay_ms(queue_id + 1), min(saved.offset_table.get(queue_id + 1, 0), until)
            )
            for queue_id, until in enumerate(self._until)
        ]
        self._earlier = EarlierCopies(store, saved.log_place)
        self._savings = Savings(STATE, saved.log_place)
        self._first = 0

    def offsets(self) -> dict[int, int]:
        """The next offset of each level, counted from 1, that anything was ever sent to."""
        return {level.queue_id + 1: level.delivered for level in self._levels if level.delivered}

    def deliver(self, core: "BrokerCore", now: "Now") -> None:
        """Delivers what is due, within the budget of one tick, and saves the cursors now and then."""
        if self._savings.is_due(core, now):
            self.save(core, now)
        budget = [TICK_MESSAGES_MAX, TICK_BYTES_MAX]
        self._first = (self._first + 1) % len(self._levels)  # so that no level starves the others
        for level in self._levels[self._first :] + self._levels[: self._first]:
            if budget[0] <= 0 or budget[1] <= 0 or core.store.refusal is not None:
                return
            if not level.in_flight and self._is_something_due(core, level, now):
                self._deliver_level(core, level, budget, now)

    def first_place(self, core: "BrokerCore") -> int | None:
        """Where the oldest message that waits lies in the log."""
        entries = [
            core.store.entry(names.SCHEDULE_TOPIC, level.queue_id, level.delivered) for level in self._levels
        ]
        return min((entry.physical_offset for entry in entries if entry is not None), default=None)

    def save(self, core: "BrokerCore", now: "Now") -> None:
        """Saves the cursors, unless some are about to move."""
        if not any(level.in_flight for level in self._levels):
            body = DelayCursors(offset_table=self.offsets(), log_place=core.store.written_end)
            self._savings.save(core, body, now)

    @staticmethod
    def _is_something_due(core: "BrokerCore", level: _Level, now: "Now") -> bool:
        if level.deliver_ms is None:
            level.next = max(level.next, core.store.min_offset(names.SCHEDULE_TOPIC, level.queue_id))
            level.deliver_ms = _deliver_ms(core, level, level.next)
        return level.deliver_ms is not None and level.is_due(level.deliver_ms, now.wall_ms)

    def _deliver_level(self, core: "BrokerCore", level: _Level, budget: list[int], now: "Now") -> None:
        end: int | None = None
        for message in self._due_messages(core, level, budget, now):
            try:
                end = self._deliver_message(core, level, message, now) or end
            except StoreWriteError:
                level.go_to(level.delivered)  # what this batch had so far is lost with it
                return
            except StoreError:
                break  # it takes nothing now; the next tick tries again
            level.go_to(message.queue_offset + 1)
            budget[0] -= 1
            budget[1] -= message.stored_size
            if budget[0] <= 0 or budget[1] <= 0:
                break
        self._settle_at(core, level, end)

    def _settle_at(self, core: "BrokerCore", level: _Level, end: int | None) -> None:
        upto = level.next
        if end is None:
            level.delivered = upto
            self._savings.changed()
            return
        level.in_flight = True

        def settled(failure: "StoreError | None", _now: "Now") -> None:
            level.in_flight = False
            if failure is not None:
                level.go_to(level.delivered)
                return
            level.delivered = upto
            self._savings.changed()

        core.writes.then(end, settled)

    @staticmethod
    def _due_messages(
        core: "BrokerCore", level: _Level, budget: list[int], now: "Now"
    ) -> list[StoredMessage]:
        """From the first due one on, as many as are due and not too many at once."""

        def is_due_at(offset: int) -> bool:
            deliver_ms = _deliver_ms(core, level, offset)
            return deliver_ms is not None and level.is_due(deliver_ms, now.wall_ms)

        first, many = level.next, min(READ_MESSAGES_MAX, budget[0])
        due = max(1, first_where(first, first + many, lambda offset: not is_due_at(offset)) - first)
        try:
            result = core.store.read(
                names.SCHEDULE_TOPIC, level.queue_id, first, messages_max=due, bytes_max=budget[1]
            )
        except StoreDamagedError as damage:
            core.incidents.append((0, damage))
            level.go_to(first + 1)
            return []
        if not result.count:
            level.go_to(max(first, result.next_offset))
        messages = decode_messages(result.body)
        # Where the clock was set back the search above can be wrong; the order of the queue counts.
        waits = (
            not level.is_due(message.store_timestamp + level.delay_ms, now.wall_ms) for message in messages
        )
        return messages[: next((at for at, must_wait in enumerate(waits) if must_wait), len(messages))]

    def _deliver_message(
        self, core: "BrokerCore", level: _Level, message: StoredMessage, now: "Now"
    ) -> int | None:
        """Where the copy ends in the log; None if there is nothing to copy."""
        if self._was_delivered_before(level, message):
            return None
        destination = destination_of(message)
        if destination is None or destination[0] in names.NO_CLIENT_SENDS_TO:
            core.incidents.append((0, InvalidMessageError(f"{message!r} does not say where it is to go")))
            return None
        if core.topics.is_deleted_since(destination[0], message.physical_offset):
            return None
        return append_copy(core, copy_of(message, *destination, source=message.physical_offset), now).end

    def _was_delivered_before(self, level: _Level, message: StoredMessage) -> bool:
        return message.queue_offset < self._until[level.queue_id] and self._earlier.has(message)


def _deliver_ms(core: "BrokerCore", level: _Level, offset: int) -> int | None:
    try:
        entry = core.store.entry(names.SCHEDULE_TOPIC, level.queue_id, offset)
    except StoreDamagedError as damage:
        core.incidents.append((0, damage))
        return None
    return None if entry is None else entry.tags_code
