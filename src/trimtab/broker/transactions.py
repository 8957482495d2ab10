"""Transactions: half messages that wait for the word of their producer, and the questions to producers that are silent.

Two system topics hold all of it, as in Apache's broker: half messages in one, and in the other one small op message for each
half message that is settled, with its offset in the body. A half message is open until an op names it. Here that rule has no
exception: when a silent producer is asked, the half message is stored anew at the queue's end (so that the log may let the old
one go, and with one more check counted), and the old one gets an op too. A copy remembers the offset of the first one, which
is the transaction's name; so an end that still speaks of an earlier copy is understood, and a second end of the same transaction
does nothing. The copy and its op are one write.

In memory there is each open transaction with its newest copy and the time from which its producer may be asked. After a start
it is read from the two topics, from the offsets on that the group CID_RMQ_SYS_TRANS has committed: the first half message that
is open, and the first op that speaks of it or a later one.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trimtab.broker import names
from trimtab.broker.copies import append_copy, copy_of, destination_of
from trimtab.broker.placing import Placed
from trimtab.broker.store.errors import StoreDamagedError, StoreError
from trimtab.errors import InvalidMessageError
from trimtab.wire import properties as keys
from trimtab.wire.codes import RequestCode
from trimtab.wire.hashing import tags_code
from trimtab.wire.headers.callbacks import CheckTransactionState
from trimtab.wire.ids import offset_message_id
from trimtab.wire.messages import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Storable,
    StoredMessage,
    decode_messages,
    encode_stored,
)
from trimtab.wire.properties import encode_properties

if TYPE_CHECKING:
    from trimtab.broker.core import BrokerCore
    from trimtab.model import Now

GROUP = "CID_RMQ_SYS_TRANS"
QUEUE = 0
REMOVE_TAG = "d"
CHECK_MAX_QUEUES = 1

TICK_CHECKS_MAX = 200
LEFT_BEHIND_MAX = 100_000
"""An open half message with this many behind it is stored anew, so that a start need not read them all."""
CURSORS_EVERY_MS = 3_000
_READ_MESSAGES = 256
_READ_BYTES = 1 << 20


class Open(NamedTuple):
    """A transaction without an end: its newest copy, and the wall time from which its producer may be asked."""

    offset: int
    ask_ms: int


@dataclass(frozen=True, slots=True)
class Half:
    """A half message of an open transaction."""

    name: int
    message: StoredMessage


class Transactions:
    """All open transactions of one broker."""

    def __init__(self) -> None:
        self._open: dict[int, Open] = {}
        """By name, in the order of the newest copies."""
        self._ops: deque[tuple[int, int]] = deque()
        """(op offset, half offset) of ops that may still be needed after a start."""
        self._halves_read: int | None = None
        self._ops_read = 0
        self._to_check: deque[int] = deque()
        self._checked_ms: int | None = None
        self._cursors_ms = 0
        self._asked = 0

    def __len__(self) -> int:
        return len(self._open)

    # --- knowing what is open

    def catch_up(self, core: "BrokerCore") -> None:
        """Reads what is new in both topics; the first time, from the committed offsets on."""
        if self._halves_read is None:
            self._halves_read = core.offsets.get(GROUP, names.HALF_TOPIC, QUEUE) or 0
            self._ops_read = core.offsets.get(GROUP, names.OP_HALF_TOPIC, QUEUE) or 0
            ended = self._read_ops(core)
        else:
            ended = set()
            self._ops_read = core.store.max_offset(names.OP_HALF_TOPIC, QUEUE)
        while self._halves_read < core.store.max_offset(names.HALF_TOPIC, QUEUE):
            messages, self._halves_read = _read(core, names.HALF_TOPIC, self._halves_read)
            for message in messages:
                if message.queue_offset not in ended:
                    name = name_of(message)
                    self._open.pop(name, None)  # it goes to the end of the order
                    self._open[name] = Open(message.queue_offset, _ask_ms(core, message))

    def _read_ops(self, core: "BrokerCore") -> set[int]:
        ended = set()
        while self._ops_read < core.store.max_offset(names.OP_HALF_TOPIC, QUEUE):
            messages, self._ops_read = _read(core, names.OP_HALF_TOPIC, self._ops_read)
            for message in messages:
                for offset in _offsets_in(message):
                    ended.add(offset)
                    self._ops.append((message.queue_offset, offset))
        return ended

    def first_place(self, core: "BrokerCore") -> int | None:
        """Where the oldest half message that is open lies in the log: neither it nor the ops behind it may go."""
        self.catch_up(core)
        for each in self._open.values():
            entry = core.store.entry(names.HALF_TOPIC, QUEUE, each.offset)
            if entry is not None:
                return entry.physical_offset
        return None

    # --- ending

    def find(self, core: "BrokerCore", message: StoredMessage) -> Half | None:
        """The newest copy of the transaction that a half message belongs to; None if that has ended."""
        self.catch_up(core)
        name = name_of(message)
        found = self._open.get(name)
        if found is None:
            return None
        newest = message if found.offset == message.queue_offset else _half_at(core, found.offset)
        return None if newest is None else Half(name, newest)

    def commit(self, core: "BrokerCore", half: Half, now: "Now") -> int:
        """Stores the message where it was sent to, and the end of its transaction. All three say where the log ends then."""
        destination = destination_of(half.message)
        if destination is None or destination[0] in names.NO_CLIENT_SENDS_TO:
            raise InvalidMessageError(f"{half.message!r} does not say where it is to go")
        if core.topics.is_deleted_since(destination[0], half.message.physical_offset):
            return self._end(core, half, now)  # the message went with its topic
        properties = dict(half.message.properties)
        properties.pop(keys.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
        copy = copy_of(
            half.message,
            *destination,
            properties=encode_properties(properties),
            sys_flag=half.message.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
            source=half.message.physical_offset,
        )
        append_copy(core, copy, now)
        return self._end(core, half, now)

    def roll_back(self, core: "BrokerCore", half: Half, now: "Now") -> int:
        """Stores the end of the transaction; the message is never seen."""
        return self._end(core, half, now)

    def resume(self, core: "BrokerCore", half: Half, now: "Now") -> int:
        """Stores the half message anew, as one that nobody was asked about."""
        append_copy(core, _half_copy(half, 0), now)
        return self._end(core, half, now)

    def _end(self, core: "BrokerCore", half: Half, now: "Now") -> int:
        """Stores the op of a half message, after what comes in its place, in the same write."""
        op = append_copy(core, _op(core, half.message.queue_offset, now), now)
        was = self._open.pop(half.name)

        def settled(failure: StoreError | None, _now: "Now") -> None:
            if failure is None:
                self._ops.append((op.queue_offset, was.offset))
            else:
                self._open = dict(
                    sorted({half.name: was, **self._open}.items(), key=lambda item: item[1].offset)
                )

        core.writes.then(op.end, settled)
        return op.end

    # --- asking

    def check(self, core: "BrokerCore", now: "Now") -> None:
        """Asks for the end of transactions whose producers are silent, some in each tick."""
        self.catch_up(core)
        self._commit_cursors(core, now)
        if self._checked_ms is None:
            self._checked_ms = core.started.monotonic_ms
        interval_ms = core.settings.transaction_check_interval_ms
        if not self._to_check and now.monotonic_ms - self._checked_ms >= interval_ms:
            self._checked_ms = now.monotonic_ms
            end = self._halves_read or 0
            self._to_check.extend(
                name
                for name, each in self._open.items()
                if each.ask_ms <= now.wall_ms or end - each.offset > LEFT_BEHIND_MAX
            )
        for _ in range(min(TICK_CHECKS_MAX, len(self._to_check))):
            if core.store.refusal is not None:
                return
            name = self._to_check.popleft()
            try:
                self._check_one(core, name, now)
            except StoreError:
                self._to_check.clear()
                return

    def _check_one(self, core: "BrokerCore", name: int, now: "Now") -> None:
        found = self._open.get(name)
        if found is None:
            return
        message = _half_at(core, found.offset)
        if message is None:  # the log let it go, or it is damaged, which was reported
            del self._open[name]
            return
        half = Half(name, message)
        if found.ask_ms <= now.wall_ms and self._is_hopeless(core, message, now):
            self._give_up(core, half, now)
            return
        try:
            if found.ask_ms > now.wall_ms:
                append_copy(core, _half_copy(half, check_times(message)), now)
                self._end(core, half, now)
            else:
                self._ask(core, half, now)
        except InvalidMessageError as error:  # its properties have no room for ours
            core.incidents.append((0, error))
            self._give_up(core, half, now)

    def _give_up(self, core: "BrokerCore", half: Half, now: "Now") -> None:
        core.ensure_topic(names.CHECK_MAX_TOPIC, CHECK_MAX_QUEUES, now)
        append_copy(core, copy_of(half.message, names.CHECK_MAX_TOPIC, 0), now)
        self._end(core, half, now)

    @staticmethod
    def _is_hopeless(core: "BrokerCore", message: StoredMessage, now: "Now") -> bool:
        age_ms = now.wall_ms - message.born_timestamp
        is_asked_enough = check_times(message) >= core.settings.transaction_checks_max
        return is_asked_enough or age_ms > core.settings.transaction_ms_max

    def _ask(self, core: "BrokerCore", half: Half, now: "Now") -> None:
        copy = _half_copy(half, check_times(half.message) + 1)
        appended = append_copy(core, copy, now)
        end = self._end(core, half, now)
        group = half.message.properties.get(keys.PRODUCER_GROUP, "")
        members = core.producers.members(group)
        destination = destination_of(half.message)
        if not members or destination is None:
            return
        self._asked += 1
        connection = members[self._asked % len(members)].connection
        unique = half.message.unique_id
        header = CheckTransactionState(
            tran_state_table_offset=appended.queue_offset,
            commit_log_offset=appended.physical_offset,
            msg_id=unique,
            transaction_id=unique,
            offset_msg_id=offset_message_id(core.store_host, appended.physical_offset),
        )
        shown = copy_of(half.message, *destination, properties=copy.message.properties).message
        body = encode_stored(
            shown,
            appended.queue_offset,
            appended.physical_offset,
            half.message.store_timestamp,
            core.store_host,
        )

        def settled(failure: StoreError | None, _now: "Now") -> None:
            if failure is None:
                core.tell(connection, RequestCode.CHECK_TRANSACTION_STATE, header, body)

        core.writes.then(end, settled)

    def _commit_cursors(self, core: "BrokerCore", now: "Now") -> None:
        """Says, under the group's name, from where a start would have to read. Only what is on disk counts."""
        if now.monotonic_ms - self._cursors_ms < CURSORS_EVERY_MS:
            return
        self._cursors_ms = now.monotonic_ms
        half = next((each.offset for each in self._open.values()), self._halves_read or 0)
        while self._ops and self._ops[0][1] < half:
            self._ops.popleft()
        op = self._ops[0][0] if self._ops else self._ops_read

        def durable(failure: StoreError | None) -> None:
            for topic, offset in ((names.HALF_TOPIC, half), (names.OP_HALF_TOPIC, op)):
                if failure is None and core.offsets.get(GROUP, topic, QUEUE) != offset and offset:
                    core.offsets.commit(GROUP, topic, QUEUE, offset)

        core.store.on_durable(core.store.written_end, durable)


def name_of(message: StoredMessage) -> int:
    """The offset of the transaction's first half message."""
    first = _number(message.properties.get(keys.TRANSACTION_PREPARED_QUEUE_OFFSET))
    return message.queue_offset if first is None else first


def _ask_ms(core: "BrokerCore", message: StoredMessage) -> int:
    seconds = _number(message.properties.get(keys.CHECK_IMMUNITY_SECONDS))
    immune_ms = core.settings.transaction_timeout_ms if seconds is None else seconds * 1_000
    # Neither a producer whose clock is ahead nor one that asks for years may keep us waiting: the log is kept that long.
    immune_ms = min(immune_ms, core.settings.transaction_ms_max)
    return min(message.born_timestamp, message.store_timestamp) + immune_ms


def check_times(message: StoredMessage) -> int:
    """How often its producer was asked."""
    return _number(message.properties.get(keys.TRANSACTION_CHECK_TIMES)) or 0


def half_anew(message: StoredMessage) -> Placed:
    """A half message, never asked about, out of one that was given up."""
    properties = dict(message.properties)
    properties.pop(keys.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    properties[keys.TRANSACTION_CHECK_TIMES] = "0"
    return copy_of(message, names.HALF_TOPIC, QUEUE, properties=encode_properties(properties))


def _half_copy(half: Half, times: int) -> Placed:
    marks = {
        keys.TRANSACTION_PREPARED_QUEUE_OFFSET: str(half.name),
        keys.TRANSACTION_CHECK_TIMES: str(times),
    }
    return copy_of(
        half.message, names.HALF_TOPIC, QUEUE, properties=encode_properties(half.message.properties | marks)
    )


def _op(core: "BrokerCore", half_offset: int, now: "Now") -> Placed:
    message = Storable(
        names.OP_HALF_TOPIC.encode(),
        str(half_offset).encode(),
        encode_properties({keys.TAGS: REMOVE_TAG}),
        QUEUE,
        now.wall_ms,
        core.store_host,
    )
    return Placed(names.OP_HALF_TOPIC, message, tags_code(REMOVE_TAG), ())


def _offsets_in(op: StoredMessage) -> list[int]:
    """Several, if a 5.x broker wrote it."""
    if op.tag != REMOVE_TAG:
        return []
    numbers = (_number(part) for part in op.body.decode(errors="replace").split(","))
    return [number for number in numbers if number is not None]


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None


def _half_at(core: "BrokerCore", offset: int) -> StoredMessage | None:
    messages, _ = _read(core, names.HALF_TOPIC, offset, messages_max=1)
    return messages[0] if messages and messages[0].queue_offset == offset else None


def _read(
    core: "BrokerCore", topic: str, offset: int, messages_max: int = _READ_MESSAGES
) -> tuple[list[StoredMessage], int]:
    """Messages from there on, and where to go on."""
    offset = max(offset, core.store.min_offset(topic, QUEUE))
    try:
        result = core.store.read(topic, QUEUE, offset, messages_max=messages_max, bytes_max=_READ_BYTES)
    except StoreDamagedError as damage:
        core.incidents.append((0, damage))
        return [], offset + 1
    return decode_messages(result.body), max(result.next_offset, offset + 1)
