"""The properties of messages as they travel, checked on the way. PURE.

Every message has an id of its own, and behind it the tail: that it is waited for, its tag, its keys, its delay, the user's own properties.
Messages with nothing but a tag are plain, and have the tail of their tag.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat

from trimtab.client.checks import check_number, check_property, check_value
from trimtab.errors import InvalidMessageError
from trimtab.model import Message
from trimtab.wire import properties as names
from trimtab.wire.properties import PROPERTIES_BYTES_MAX

BEGIN = f"{names.UNIQ_KEY}\x01"
"""What stands before the id."""
_WAIT = f"\x02{names.WAIT}\x01true"
_TAG_TYPES = {str, type(None)}


def _plain_tail(tag: str | None) -> str:
    if tag is None:
        return _WAIT
    check_value("tag", tag)
    return f"{_WAIT}\x02{names.TAGS}\x01{tag}"


def properties_of(message: Message, unique_id: str, extra: str = "") -> bytes:
    """The properties of one message; `extra` is put behind them, its separator in front."""
    tail = _plain_tail(message.tag)
    if message.keys:
        tail += f"\x02{names.KEYS}\x01{_joined_keys(message.keys)}"
    if message.delay_level or message.deliver_at_ms is not None:
        tail += _delay(message)
    if message.properties:
        tail += _own(message.properties)
    return _encoded(f"{BEGIN}{unique_id}{tail}{extra}")


def properties_of_each(
    messages: Sequence[Message], unique_ids: Sequence[str], extra: str = ""
) -> list[bytes]:
    """The same for messages of one batch, which are not delayed; the tails of plain ones are laid out once for each tag."""
    tags = [message.tag for message in messages]
    is_plain = not [message for message in messages if message.keys or message.properties]
    if not is_plain or not _TAG_TYPES.issuperset(map(type, tags)):
        return list(map(properties_of, messages, unique_ids, repeat(extra)))
    tails = {tag: _plain_tail(tag) + extra for tag in set(tags)}
    for tail in tails.values():
        _encoded(f"{BEGIN}{unique_ids[0]}{tail}")
    return [
        f"{BEGIN}{unique_id}{tails[tag]}".encode() for unique_id, tag in zip(unique_ids, tags, strict=True)
    ]


def _encoded(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidMessageError(f"a tag, key or property cannot be UTF-8: {exc}") from exc
    if len(data) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"the properties take {len(data)} bytes, at most {PROPERTIES_BYTES_MAX} are allowed; move something into the body"
        )
    return data


def _own(properties: Mapping[str, str]) -> str:
    if not isinstance(properties, Mapping):
        raise InvalidMessageError(f"the properties are a {type(properties).__name__}; give a dict")
    text = ""
    for name, value in properties.items():
        check_property(name, value)
        text += f"\x02{name}\x01{value}"
    return text


def _joined_keys(keys: Collection[str]) -> str:
    if isinstance(keys, str):
        raise InvalidMessageError(f"keys={keys!r} is one text; give a list of keys")
    if not isinstance(keys, Collection):
        raise InvalidMessageError(f"the keys are a {type(keys).__name__}; give a list of keys")
    for key in keys:
        check_value("key", key)
        if " " in key:
            raise InvalidMessageError(f"the key {key!r} has a space, which separates keys")
    return " ".join(keys)


def _delay(message: Message) -> str:
    if message.delay_level and message.deliver_at_ms is not None:
        raise InvalidMessageError("give a delay level or a time of delivery, not both")
    if message.deliver_at_ms is not None:
        check_number("time of delivery", message.deliver_at_ms, 0, 2**63 - 1)
        return f"\x02TIMER_DELIVER_MS\x01{message.deliver_at_ms:d}"
    check_number("delay level", message.delay_level, 1, 2**31 - 1)
    return f"\x02{names.DELAY}\x01{message.delay_level:d}"
