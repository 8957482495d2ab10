"""Message trace: what happened to a message, told in the trace topic in the form of Java's client, which mqadmin and the dashboard read.

A record is fields with 0x01 between them, ended by 0x02. Records gather for a moment and leave together, keyed by the ids and keys of the
messages they tell of. Telling is never waited for: when too many records wait, the newest are dropped and counted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from trimtab.model import Message, Receipt
from trimtab.wire import properties as names

if TYPE_CHECKING:
    from trimtab.client.lanes import Lane, Parcel
    from trimtab.io.clock import Clock
    from trimtab.wire.commands import Command

_log = logging.getLogger(__name__)

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
DEFAULT_REGION = "DefaultRegion"
RECORDS_MAX = 2_048
RECORDS_TOGETHER_MAX = 100
MESSAGE_BYTES_MAX = 128_000
KEYS_BYTES_MAX = 30_000
"""They are a property, and all properties of a message have 32,767 bytes."""
GATHERING_S = 0.05
CLOSE_S_MAX = 3.0

NORMAL, HALF, COMMIT, DELAY = range(4)

_STATES = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE", "UNKNOWN": "UNKNOW"}


class Record(NamedTuple):
    """One thing that happened, and what it is found by."""

    text: str
    keys: tuple[str, ...]


def pub(
    *, now_ms: int, region: str, group: str, message: Message, receipt: Receipt, address: str, cost_ms: int, kind: int
) -> Record:  # fmt: skip
    """A message was sent. PURE."""
    return _record(
        (
            "Pub",
            now_ms,
            region,
            group,
            message.topic,
            receipt.message_id,
            message.tag,
            _keys(message),
            address,
            len(message.body),
            cost_ms,
            kind,
            receipt.offset_message_id,
            receipt.status == "SEND_OK",
        ),
        (receipt.message_id, *(message.keys or ())),
    )


def end_transaction(
    *, now_ms: int, region: str, group: str, message: Message, message_id: str, address: str, resolution: str, from_check: bool
) -> Record:  # fmt: skip
    """A transaction ended. PURE."""
    return _record(
        (
            "EndTransaction",
            now_ms,
            region,
            group,
            message.topic,
            message_id,
            message.tag,
            _keys(message),
            address,
            COMMIT,
            message_id,
            _STATES[resolution],
            from_check,
        ),
        (message_id, *(message.keys or ())),
    )


def sub_before(
    *, now_ms: int, region: str, group: str, request_id: str, message_id: str, retry_times: int, keys: tuple[str, ...]
) -> Record:  # fmt: skip
    """A consumer begins with a message. PURE."""
    return _record(
        ("SubBefore", now_ms, region, group, request_id, message_id, retry_times, " ".join(keys) or None),
        (message_id, *keys),
    )


def sub_after(
    *, now_ms: int, group: str, request_id: str, message_id: str, cost_ms: int, is_success: bool, keys: tuple[str, ...], context_code: int
) -> Record:  # fmt: skip
    """A consumer is done with a message. PURE."""
    return _record(
        (
            "SubAfter",
            request_id,
            message_id,
            cost_ms,
            is_success,
            " ".join(keys) or None,
            context_code,
            now_ms,
            group,
        ),
        (message_id, *keys),
    )


def _record(fields: tuple[object, ...], keys: tuple[str, ...]) -> Record:
    return Record("\x01".join(map(_text, fields)) + "\x02", keys)


def _text(value: object) -> str:
    """As Java's StringBuilder writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _keys(message: Message) -> str | None:
    return " ".join(message.keys or ()) or None


class Tracer:
    """Gathers records and sends them by `send`, which must not be traced itself."""

    def __init__(
        self, send: Callable[[Message], Awaitable[None]], clock: "Clock", group: str, client_id: str
    ) -> None:
        self._send = send
        self._clock = clock
        self._group = group
        self._client_id = client_id
        self._records: list[Record] = []
        self._telling: asyncio.Task[None] | None = None
        self._is_closed = False
        self.dropped = 0
        """How many records found no room."""

    def stored(
        self,
        parcel: "Parcel",
        outcome: list[Receipt] | Receipt,
        lane: "Lane",
        cost_ms: int,
        answer: "Command",
    ) -> None:
        """A producer's message is stored; brokers say whether they want to hear of it."""
        if answer.ext.get(names.TRACE_SWITCH) == "false" or parcel.message.topic == TRACE_TOPIC:
            return
        receipts = outcome if isinstance(outcome, list) else [outcome]
        for message, receipt in zip(parcel.batch or (parcel.message,), receipts, strict=True):
            self.tell(
                pub(
                    now_ms=self._clock.wall_ms() - cost_ms,
                    region=answer.ext.get(names.REGION, DEFAULT_REGION),
                    group=self._group,
                    message=message,
                    receipt=receipt,
                    address=lane.address,
                    cost_ms=cost_ms,
                    kind=_kind(parcel),
                )
            )

    def ended(
        self, message: Message, message_id: str, address: str, resolution: str, *, from_check: bool
    ) -> None:
        """A transaction ended."""
        self.tell(
            end_transaction(
                now_ms=self._clock.wall_ms(),
                region=DEFAULT_REGION,
                group=self._group,
                message=message,
                message_id=message_id,
                address=address,
                resolution=resolution,
                from_check=from_check,
            )
        )

    def tell(self, record: Record) -> None:
        """Takes a record; it leaves soon, with others."""
        if len(self._records) >= RECORDS_MAX or self._is_closed:
            self.dropped += 1
            return
        self._records.append(record)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_soon())

    async def close(self) -> None:
        """Sends what is left, within a short time; takes no more."""
        self._is_closed = True
        if self._telling is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await asyncio.shield(self._telling)
        except TimeoutError:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        if self.dropped:
            _log.warning("%d trace records were dropped", self.dropped)

    async def _tell_soon(self) -> None:
        while self._records:
            await asyncio.sleep(GATHERING_S)
            records, self._records = self._records, []
            for message in messages_of(records):
                try:
                    await self._send(message)
                except Exception as error:  # noqa: BLE001 - telling must never be in the way of what is told of
                    _log.warning("trace records were not sent: %s", error)


def messages_of(records: Iterable[Record]) -> list[Message]:
    """Messages for the trace topic, each with a bounded number of records and bytes. PURE."""
    messages: list[Message] = []
    texts: list[str] = []
    keys: dict[str, None] = {}
    size = keys_bytes = 0

    def cut() -> None:
        nonlocal size, keys_bytes
        if texts:
            messages.append(Message(TRACE_TOPIC, "".join(texts).encode(), keys=tuple(keys)))
        texts.clear()
        keys.clear()
        size = keys_bytes = 0

    for record in records:
        own, own_bytes = _fitting(record.keys)
        if (
            len(texts) >= RECORDS_TOGETHER_MAX
            or size + len(record.text) > MESSAGE_BYTES_MAX
            or keys_bytes + own_bytes > KEYS_BYTES_MAX
        ):
            cut()
        texts.append(record.text)
        keys.update(dict.fromkeys(own))
        size += len(record.text)
        keys_bytes += own_bytes
    cut()
    return messages


def _fitting(keys: tuple[str, ...]) -> tuple[list[str], int]:
    """As many of them as one message may have, the id of what they tell of first, and how long they are. PURE."""
    own: list[str] = []
    own_bytes = 0
    for key in keys:
        key_bytes = len(key.encode()) + 1
        if own_bytes + key_bytes <= KEYS_BYTES_MAX:
            own.append(key)
            own_bytes += key_bytes
    return own, own_bytes


def _kind(parcel: "Parcel") -> int:
    if parcel.message.delay_level or parcel.message.deliver_at_ms is not None:
        return DELAY
    return HALF if parcel.sys_flag & 0x4 else NORMAL
