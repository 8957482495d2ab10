"""What must be right with a message before anything is sent. PURE. The rules are Java's, and Apache brokers'."""

from collections.abc import Sequence
from datetime import datetime

from trimtab.errors import InvalidMessageError, SettingsError
from trimtab.model import Message
from trimtab.wire.properties import RESERVED
from trimtab.wire.resources import GROUP_LENGTH_MAX, NAME, RETRY_PREFIX, TOPIC_LENGTH_MAX

I32 = -(2**31), 2**31 - 1
I64_MAX = 2**63 - 1
_FORBIDDEN_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
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


def check_message(message: Message) -> None:
    """A message at all, with a topic of the right type; its name is looked at before its route is asked for."""
    if not isinstance(message, Message):
        raise InvalidMessageError(f"{type(message).__name__} is not a Message; give a trimtab.Message")
    if not isinstance(message.topic, str):
        raise InvalidMessageError(f"the topic is a {type(message.topic).__name__}; give a str")


def check_flag(flag: int) -> None:
    """A flag travels in 32 bits."""
    check_number("flag", flag, *I32)


def check_number(what: str, number: int, at_least: int, at_most: int) -> None:
    """A whole number within its bounds."""
    if not isinstance(number, int):
        raise InvalidMessageError(f"the {what} is a {type(number).__name__}; give an int")
    if not at_least <= number <= at_most:
        raise InvalidMessageError(f"the {what} {number} is not between {at_least} and {at_most}")


def check_seconds(what: str, seconds: object) -> None:
    """A time that ends."""
    if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise InvalidMessageError(f"{what} is {seconds!r}; give a number of seconds above 0")


def check_offset(queue: object, offset: object) -> int:
    """An offset that can be stored. A negative one would be kept by Apache's brokers, and no member would ever start there."""
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise SettingsError(f"{offset!r} is no offset in {queue}: give a whole number")
    if not 0 <= offset <= I64_MAX:
        raise SettingsError(f"offset {offset} in {queue} is not between 0 and {I64_MAX}")
    return offset


def check_time(when: datetime) -> int:
    """A time that a broker can be asked for, in ms since 1970; without a time zone it is that of this machine."""
    try:
        return int(when.timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise SettingsError(f"{when} is no time that a queue can be searched for: {error}") from None


def check_batch(messages: Sequence[Message]) -> None:
    """Messages that may travel in one explicit batch, by Java's rules."""
    if not messages:
        raise InvalidMessageError("a batch needs at least one message")
    if set(map(type, messages)) != {Message}:
        for message in messages:
            check_message(message)
    check_message(messages[0])  # the others have its topic, as will be seen
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
    check_value("property name", name)
    check_value(f"property {name!r}", value)


def check_value(what: str, text: str) -> None:
    """A text that properties can hold."""
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
