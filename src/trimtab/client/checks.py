"""What must be right with a message before anything is sent. PURE. The rules are Java's, and Apache brokers'."""

from trimtab.errors import InvalidMessageError
from trimtab.model import Message
from trimtab.wire import properties as names
from trimtab.wire.properties import PROPERTIES_BYTES_MAX, RESERVED
from trimtab.wire.resources import GROUP_LENGTH_MAX, NAME, TOPIC_LENGTH_MAX

_FORBIDDEN_TOPICS = frozenset(
    {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}
)


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


def properties_of(message: Message, unique_id: str) -> str:
    """The properties as they travel, checked on the way."""
    pairs = [f"{names.UNIQ_KEY}\x01{unique_id}", "WAIT\x01true"]
    if message.tag is not None:
        _check_value("tag", message.tag)
        pairs.append(f"{names.TAGS}\x01{message.tag}")
    if message.keys:
        for key in message.keys:
            _check_value("key", key)
            if " " in key:
                raise InvalidMessageError(f"the key {key!r} has a space, which separates keys")
        pairs.append(f"{names.KEYS}\x01{' '.join(message.keys)}")
    if message.delay_level:
        pairs.append(f"{names.DELAY}\x01{message.delay_level}")
    if message.deliver_at_ms is not None:
        pairs.append(f"TIMER_DELIVER_MS\x01{message.deliver_at_ms}")
    for name, value in message.properties.items():
        check_property(name, value)
        pairs.append(f"{name}\x01{value}")
    text = "\x02".join(pairs)
    if len(text) * 4 > PROPERTIES_BYTES_MAX and len(text.encode()) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"the properties take {len(text.encode())} bytes, at most {PROPERTIES_BYTES_MAX} are allowed"
        )
    return text


def check_property(name: str, value: str) -> None:
    """A property of the user's own."""
    if name in RESERVED:
        raise InvalidMessageError(f"the property {name!r} is reserved; give yours another name")
    _check_value("property name", name)
    _check_value(f"property {name!r}", value)


def _check_value(what: str, text: str) -> None:
    if not text or text.isspace():
        raise InvalidMessageError(f"the {what} is blank")
    if "\x01" in text or "\x02" in text:
        raise InvalidMessageError(f"the {what} holds a control character that separates properties")


def check_body(message: Message, bytes_max: int) -> None:
    """A body that a broker takes."""
    if not message.body:
        raise InvalidMessageError(f"the message for topic {message.topic!r} has no body")
    if len(message.body) > bytes_max:
        raise InvalidMessageError(
            f"the body for topic {message.topic!r} has {len(message.body)} bytes, at most {bytes_max} are allowed"
        )
