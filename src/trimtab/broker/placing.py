"""Where a message goes: to its topic at once, or to where it waits for its time.

A message that is to be delivered later, by level or by time, is stored under a system topic with its real destination among
its properties. The schedule topic has one queue per level, so that each is in the order of delivery by itself.
"""

import re

import msgspec

from trimtab.broker import names
from trimtab.broker.delays import DelayLevels
from trimtab.broker.requests import Refused
from trimtab.model import Now
from trimtab.wire import properties as keys
from trimtab.wire.codes import ResponseCode
from trimtab.wire.hashing import tags_code
from trimtab.wire.messages import TRANSACTION_COMMIT, TRANSACTION_MASK, Storable
from trimtab.wire.properties import encode_properties

TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_WISHES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
TIMER_PRECISION_MS = 1_000
_LEVEL = re.compile(r"-?[0-9]{1,9}")


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A message before it has a place."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    born_timestamp: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class Placed(msgspec.Struct, frozen=True, gc=False):
    """What the store is given."""

    topic: str
    message: Storable
    tags_code: int
    keys: tuple[bytes, ...]


def place(incoming: Incoming, levels: DelayLevels, timer_ms_max: int, now: Now) -> Placed:
    """Decides where a message is stored now."""
    properties = incoming.properties
    if incoming.sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT):
        level = delay_level(properties)
        if level > 0:
            level = min(level, len(levels))
            deliver_ms = now.wall_ms + levels.delay_ms(level)
            if any(wish in properties for wish in TIMER_WISHES):  # the level counts
                kept = {name: value for name, value in properties.items() if name not in TIMER_WISHES}
                incoming = msgspec.structs.replace(incoming, properties=kept)
            return _waiting(incoming, names.SCHEDULE_TOPIC, level - 1, {keys.DELAY: str(level)}, deliver_ms)
        wished = properties.get(keys.DELAY)
        if wished is not None and _LEVEL.fullmatch(wished) is None:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the delay level is no number: {wished[:40]!r}")
        due_ms = timer_ms(properties, now)
        if due_ms is not None and due_ms > now.wall_ms:
            if due_ms - now.wall_ms > timer_ms_max:
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"the delivery time lies {due_ms - now.wall_ms} ms ahead, at most {timer_ms_max} ms are allowed",
                )
            out_ms = (due_ms - 1) // TIMER_PRECISION_MS * TIMER_PRECISION_MS
            marks = {TIMER_OUT_MS: str(out_ms)}
            return _waiting(incoming, names.TIMER_TOPIC, 0, marks, _timer_code(out_ms, properties))
        if due_ms is not None and TIMER_DEL_UNIQKEY in properties:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, "the time of the message that is to be taken back is over"
            )
    return stored_as(
        incoming, incoming.topic, incoming.queue_id, properties, tags_code(properties.get(keys.TAGS))
    )


def stored_as(incoming: Incoming, topic: str, queue_id: int, properties: dict[str, str], code: int) -> Placed:
    """The message under this topic and queue."""
    unique, several = properties.get(keys.UNIQ_KEY), properties.get(keys.KEYS)
    found_by = [unique.encode()] if unique else []
    if several:
        found_by += [key.encode() for key in several.split(" ") if key]
    message = Storable(
        topic.encode(),
        incoming.body,
        encode_properties(properties),
        queue_id,
        incoming.born_timestamp,
        incoming.born_host,
        incoming.flag,
        incoming.sys_flag,
        incoming.reconsume_times,
        incoming.prepared_transaction_offset,
    )
    return Placed(topic, message, code, tuple(found_by))


def _waiting(incoming: Incoming, topic: str, queue_id: int, marks: dict[str, str], deliver_ms: int) -> Placed:
    destination = {keys.REAL_TOPIC: incoming.topic, keys.REAL_QUEUE_ID: str(incoming.queue_id)}
    return stored_as(incoming, topic, queue_id, incoming.properties | destination | marks, deliver_ms)


def delay_level(properties: dict[str, str]) -> int:
    """The level that a message asks for; 0 if it does not, or not in numbers."""
    text = properties.get(keys.DELAY)
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0


def timer_ms(properties: dict[str, str], now: Now) -> int | None:
    """When a message asks to be delivered; None if it does not, or was held back once already."""
    if TIMER_OUT_MS in properties:
        return None
    for name, factor, base in (
        (TIMER_DELAY_SEC, 1_000, now.wall_ms),
        (TIMER_DELAY_MS, 1, now.wall_ms),
        (TIMER_DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is None:
            continue
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, f"the property {name} is no number of time: {text[:40]!r}"
            )
        return base + int(text) * factor
    return None


def _timer_code(out_ms: int, properties: dict[str, str]) -> int:
    """The time, which has no milliseconds of its own: one of them marks a message that takes another one back."""
    return out_ms + (TIMER_DEL_UNIQKEY in properties)


def tags_code_of(topic: str, properties: bytes, store_ms: int, levels: DelayLevels) -> int:
    """What `place` gave as the code, computed anew from a stored message: recovery needs it."""
    found = keys.decode_properties(properties)
    if topic == names.SCHEDULE_TOPIC:
        return store_ms + levels.delay_ms(min(delay_level(found), len(levels)) or 1)
    if topic == names.TIMER_TOPIC:
        return _timer_code(int(found.get(TIMER_OUT_MS, "0")), found)
    return tags_code(found.get(keys.TAGS))
