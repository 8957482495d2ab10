"""What must be right with a message before anything is sent. PURE. The rules are Java's, and Apache brokers'."""

from collections.abc import Sequence
from functools import lru_cache

from trimtab.errors import InvalidMessageError
from trimtab.model import Message
from trimtab.wire import properties as names
from trimtab.wire.properties import PROPERTIES_BYTES_MAX, RESERVED
from trimtab.wire.resources import GROUP_LENGTH_MAX, NAME, RETRY_PREFIX, TOPIC_LENGTH_MAX

_FORBIDDEN_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)


_UNIQUE_ID = f"{names.UNIQ_KEY}\x01"
_WAIT = f"\x02{names.WAIT}\x01true"
_TAGS_REMEMBERED_MAX = 1_000
_TAG_REMEMBERED_CHARACTERS_MAX = 100


def check_topic(topic: str) -> None:
    """A topic that messages can be sent to."""
    _check_name("topic", topic, TOPIC_LENGTH_MAX)
    if topic in _FORBIDDEN_TOPICS:
        raise InvalidMessageError(f"topic {topic!r} belongs to the broker: nobody sends to it")


def check_group(group: str) -> None:
    """A group of producers or consumers."""
    _check_name("group", group, GROUP_LENGTH_MAX)
    if group == "DEFAULT_PRODUCER" or group == "DEFAULT_CONSUMER":  # noqa: PLR1714 - as Java names them
        raise InvalidMessageError(f"group {group!r} is reserved; give your group a name of its own")


def _check_name(what: str, name: str, length_max: int) -> None:
    if not name:
        raise InvalidMessageError(f"the {what} has no name")
    if len(name) > length_max:
        raise InvalidMessageError(
            f"the {what} {name[:40]!r}… has {len(name)} characters, at most {length_max} are allowed"
        )
    if not NAME.fullmatch(name):
        raise InvalidMessageError(f"the {what} {name!r} may only have letters, digits and % | _ -")


def properties_of(message: Message, unique_id: str, extra: str = "") -> bytes:
    """The properties as they travel, checked on the way; `extra` is put behind them, its separator in front."""
    tag = message.tag
    if tag is None:
        text = f"{_UNIQUE_ID}{unique_id}{_WAIT}"
    elif type(tag) is str and len(tag) <= _TAG_REMEMBERED_CHARACTERS_MAX:
        text = f"{_UNIQUE_ID}{unique_id}{_remembered_tag(tag)}"
    else:
        text = f"{_UNIQUE_ID}{unique_id}{_wait_and_tag(tag)}"
    if message.keys:
        text += f"\x02{names.KEYS}\x01{_joined_keys(message.keys)}"
    if message.delay_level or message.deliver_at_ms is not None:
        text += _delay(message)
    if message.properties:
        for name, value in message.properties.items():
            check_property(name, value)
            text += f"\x02{name}\x01{value}"
    if extra:
        text += extra
    try:
        data = text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidMessageError(f"a tag, key or property cannot be UTF-8: {exc}") from exc
    if len(data) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"the properties take {len(data)} bytes, at most {PROPERTIES_BYTES_MAX} are allowed; move something into the body"
        )
    return data


def _wait_and_tag(tag: str) -> str:
    _check_value("tag", tag)
    return f"{_WAIT}\x02{names.TAGS}\x01{tag}"


_remembered_tag = lru_cache(_TAGS_REMEMBERED_MAX)(_wait_and_tag)
"""Tags are few and short, and used again and again."""


def _joined_keys(keys: Sequence[str]) -> str:
    if isinstance(keys, str):
        raise InvalidMessageError(f"keys={keys!r} is one text; give a list of keys")
    for key in keys:
        _check_value("key", key)
        if " " in key:
            raise InvalidMessageError(f"the key {key!r} has a space, which separates keys")
    return " ".join(keys)


def _delay(message: Message) -> str:
    if message.delay_level and message.deliver_at_ms is not None:
        raise InvalidMessageError("give a delay level or a time of delivery, not both")
    if message.deliver_at_ms is not None:
        return f"\x02TIMER_DELIVER_MS\x01{message.deliver_at_ms:d}"
    if message.delay_level < 0:
        raise InvalidMessageError(f"delay level {message.delay_level} is below 0; 1 is the first")
    return f"\x02{names.DELAY}\x01{message.delay_level:d}"


def check_batch(messages: Sequence[Message]) -> None:
    """Messages that may travel in one explicit batch, by Java's rules."""
    if not messages:
        raise InvalidMessageError("a batch needs at least one message")
    topic = messages[0].topic
    if topic.startswith(RETRY_PREFIX):
        raise InvalidMessageError(f"messages for the retry topic {topic!r} cannot be sent in a batch")
    for message in messages:
        if message.topic != topic:
            raise InvalidMessageError(
                f"a batch has one topic, this one has {topic!r} and {message.topic!r}; send a batch for each"
            )
        if message.delay_level or message.deliver_at_ms is not None:
            raise InvalidMessageError("a delayed message cannot be sent in a batch; send it alone")


def check_property(name: str, value: str) -> None:
    """A property of the user's own."""
    if name in RESERVED:
        raise InvalidMessageError(f"the property {name!r} is reserved; give yours another name")
    _check_value("property name", name)
    _check_value(f"property {name!r}", value)


def _check_value(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidMessageError(f"the {what} is a {type(text).__name__}; give a str")
    if not text or text.isspace():
        raise InvalidMessageError(f"the {what} is blank")
    if "\x01" in text or "\x02" in text:
        raise InvalidMessageError(f"the {what} holds a control character that separates properties")


def check_body(message: Message, bytes_max: int) -> None:
    """A body that a broker takes."""
    body = message.body
    if not isinstance(body, bytes):
        raise InvalidMessageError(
            f"the body for topic {message.topic!r} is a {type(body).__name__}; give bytes"
        )
    if not body:
        raise InvalidMessageError(f"the message for topic {message.topic!r} has no body")
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"the body for topic {message.topic!r} has {len(body)} bytes, at most {bytes_max} are allowed"
        )
