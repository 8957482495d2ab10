"""Where reading begins and ends, as users say it. PURE.

`earliest`, `latest`, `group`, a time, or numbers for single queues: {"orders": {"broker-a": {"0": 23, "1": -2}}}, where -2 means
earliest and -1 latest.

Kafka's notebooks name no broker: {"orders": {"0": 23}}. Such a queue has `ANY_BROKER` until the brokers are known; see `decisions.placed`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from trimtab.model import MessageQueue
from trimtab.spark.offsets import Offsets
from trimtab.spark.problems import OptionError

ANY_BROKER = ""
EARLIEST = -2
LATEST = -1

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN = re.compile(r"(\d{1,18})\s*(ms|s|m|h|d|w)")
_LONG_SPAN = re.compile(
    r"(\d{1,18})\s*(milliseconds?|millis|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?)"
)
TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_TIME_ALLOWED = "milliseconds since 1970 (1767225600000), ISO 8601 (2026-01-01T00:00:00Z), or a span before now (-2h, -30m, -7d)"
_QUEUES_ALLOWED = '{"topic": {"broker": {"queue id": offset}}} with -2 for earliest and -1 for latest'


@dataclass(frozen=True, slots=True)
class Position:
    """A place in every queue."""

    kind: Literal["earliest", "latest", "group", "time", "offsets", "times"]
    at_ms: int = 0
    """The time, for `time`."""
    queues: Offsets | None = None
    """Offsets for `offsets`, milliseconds (or EARLIEST, LATEST) for `times`; the queues that are not named take `others`."""
    others: int = LATEST


Words = Literal["earliest", "latest", "group"]


def position_of(
    option: str, text: str, words: tuple[Words, ...], others: int, *, names_brokers: bool = True
) -> Position:
    """The meaning of `startingOffsets` or `endingOffsets`."""
    word = text.strip().lower()
    for known in words:
        if word == known:
            return Position(known, others=others)
    if not text.strip().startswith("{"):
        raise OptionError(option, text, f"{', '.join(words)}, or JSON such as {_QUEUES_ALLOWED}")
    queues = queue_numbers(option, text, names_brokers=names_brokers)
    if any(number < EARLIEST for number in queues.values()):
        raise OptionError(option, text, _QUEUES_ALLOWED)
    return Position("offsets", queues=queues, others=others)


_WORDS_AS_NUMBERS = (str(EARLIEST), str(LATEST))


def times_of(option: str, text: str, now_ms: int, others: int, *, names_brokers: bool = True) -> Position:
    """The meaning of `startingOffsetsByTimestamp`: a time for each queue."""

    def at_ms(value: object) -> int:
        text = str(value).strip()
        return int(text) if text in _WORDS_AS_NUMBERS else time_ms(option, text, now_ms)

    queues = _queues(option, text, at_ms, names_brokers=names_brokers)
    return Position("times", queues=queues, others=others)


def time_ms(option: str, text: str, now_ms: int) -> int:
    """A moment as milliseconds since 1970; what lies before that is 1970, so that no time is taken for EARLIEST or LATEST."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        if len(text) > len(str(TIME_MS_MAX)) or int(text) > TIME_MS_MAX:
            raise OptionError(option, text, f"milliseconds since 1970 up to {TIME_MS_MAX}, the year 9999")
        return int(text)
    if text.startswith("-"):
        ago = text[1:].strip()
        if ago.isdecimal():
            raise OptionError(
                option,
                text,
                f"a span with its unit: -{ago}ms, -{ago}s, -{ago}m, -{ago}h; latest and earliest are no times",
            )
        span = _span_ms(ago)
        if span is not None:
            return max(now_ms - span, 0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(option, text, _TIME_ALLOWED) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(int(moment.timestamp() * 1000), 0)


def span_ms(option: str, text: str) -> int:
    """A length of time: `15m`, `15 minutes`, `90s`, or a number of milliseconds."""
    span = _span_ms(text)
    if span is None:
        raise OptionError(option, text, "a length of time such as 500ms, 90s, 15m, 2h or 15 minutes")
    return span


def _span_ms(text: str) -> int | None:
    text = text.strip().lower()
    if re.fullmatch("[0-9]{1,18}", text):
        return int(text)
    match = _SPAN.fullmatch(text)
    if match:
        return int(match[1]) * _UNITS_MS[match[2]]
    match = _LONG_SPAN.fullmatch(text)
    if match:
        return int(match[1]) * _UNITS_MS["ms" if match[2].startswith("milli") else match[2][0]]
    return None


def queue_numbers(option: str, text: str, *, names_brokers: bool = True) -> dict[MessageQueue, int]:
    """Numbers for queues, from JSON by topic, broker and queue id."""
    return _queues(option, text, _whole_number, names_brokers=names_brokers)


def partition_list(option: str, text: str) -> frozenset[MessageQueue]:
    """Queues as Kafka's `assign` names them: {"orders": [0, 1]}."""
    allowed = '{"topic": [partition, …]}'
    found = set()
    for topic, numbers in _object(option, text, allowed).items():
        if not isinstance(numbers, list) or not all(_is_queue_id(number) for number in numbers):
            raise OptionError(option, text, allowed)
        found |= {MessageQueue(topic, ANY_BROKER, number) for number in numbers}
    if not found:
        raise OptionError(option, text, allowed)
    return frozenset(found)


def queue_list(option: str, text: str) -> frozenset[MessageQueue]:
    """Queues, from JSON such as {"orders": {"broker-a": [0, 1]}}."""
    allowed = '{"topic": {"broker": [queue id, …]}}'
    found = set()
    for topic, brokers in _object(option, text, allowed).items():
        if not isinstance(brokers, dict):
            raise OptionError(option, text, allowed)
        for broker_name, numbers in brokers.items():
            if not isinstance(numbers, list) or not all(_is_queue_id(number) for number in numbers):
                raise OptionError(option, text, allowed)
            found |= {MessageQueue(topic, broker_name, number) for number in numbers}
    if not found:
        raise OptionError(option, text, allowed)
    return frozenset(found)


def _queues(
    option: str, text: str, number_of: Callable[[object], int], *, names_brokers: bool
) -> dict[MessageQueue, int]:
    found = {}
    for topic, brokers in _object(option, text, _QUEUES_ALLOWED).items():
        if not isinstance(brokers, dict):
            raise OptionError(option, text, _QUEUES_ALLOWED)
        if not names_brokers and not any(isinstance(numbers, dict) for numbers in brokers.values()):
            brokers = {ANY_BROKER: brokers}  # noqa: PLW2901 - as Kafka has it
        for broker_name, numbers in brokers.items():
            if not isinstance(numbers, dict):
                raise OptionError(
                    option, text, f"{_QUEUES_ALLOWED}; the broker's name stands between topic and queue"
                )
            for queue_id, number in numbers.items():
                if not queue_id.isdecimal():
                    raise OptionError(option, text, _QUEUES_ALLOWED)
                try:
                    found[MessageQueue(topic, broker_name, int(queue_id))] = number_of(number)
                except (TypeError, ValueError):
                    raise OptionError(option, text, _QUEUES_ALLOWED) from None
    return found


def _object(option: str, text: str, allowed: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(option, text, f"JSON, {allowed}; this is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise OptionError(option, text, allowed)
    return value


def _whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _is_queue_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
