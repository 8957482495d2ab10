"""Reading single options: each has a kind, and a value that does not fit is refused with its name. PURE."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from trimtab.spark.positions import span_ms
from trimtab.spark.problems import OptionError, one_of
from trimtab.wire.resources import NAME

T = TypeVar("T")

_SIZE = re.compile(r"(\d+)\s*(b|k|kb|kib|m|mb|mib|g|gb|gib)?", re.IGNORECASE)
SPAN_MS_MAX = 366 * 86_400_000
"""Clocks and timers count no further than some centuries, and nobody waits that long."""
_SIZE_SHIFTS = {"b": 0, "k": 10, "m": 20, "g": 30}


class OptionReader:
    """The options of one source or sink, by names in any case; it knows afterwards which names mean nothing."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        self._given = {name.lower(): value for name, value in options.items()}
        self._known = tuple(known)
        self._refuse_unknown()

    def _refuse_unknown(self) -> None:
        for given, value in self._given.items():
            if given.startswith(_OF_A_TABLE):
                raise OptionError(given, shown(given, value), _NO_TABLE)
        names = {name.lower(): name for name in self._known}
        for given in self._given:
            if given in names or given in _SPARKS_OWN or self._is_kafkas(given):
                continue
            near = difflib.get_close_matches(given, names, n=1)
            meant = f"; did you mean {names[near[0]]!r}?" if near else ""
            raise OptionError(
                given, shown(given, self._given[given]), f"{one_of(sorted(self._known))}{meant}"
            )

    def _is_kafkas(self, given: str) -> bool:
        """What a notebook for Kafka says to Kafka's own client, which is not there."""
        return given.startswith("kafka.") and "kafka.bootstrap.servers" in self._given and "sasl" not in given

    def text(self, *names: str) -> str | None:
        """The value of an option that may have several names; blank is the same as absent."""
        found = [(name, self._given[name.lower()]) for name in names if name.lower() in self._given]
        if len({value for _, value in found}) > 1:
            first, second = found[0], found[1]
            raise OptionError(
                second[0], second[1], f"the same as {first[0]}, which means the same, or one of both"
            )
        return (found[0][1].strip() or None) if found else None

    def choice(self, name: str, default: str, choices: Mapping[str, T]) -> T:
        """One of some words."""
        text = self.text(name) or default
        if text.lower() not in choices:
            raise OptionError(name, text, one_of(choices))
        return choices[text.lower()]

    def flag(self, name: str, *, default: bool) -> bool:
        """`true` or `false`."""
        return self.choice(name, str(default).lower(), {"true": True, "false": False})

    def count(self, *names: str, least: int = 1) -> int | None:
        """A whole number."""
        return self._parsed(names, lambda text: _whole(names[0], text, least))

    def size(self, name: str, least: int = 1, most: int = 1 << 62) -> int | None:
        """A number of bytes: `1048576`, `64m`, `1g`."""
        size = self._parsed((name,), lambda text: _size(name, text))
        if size is not None and not least <= size <= most:
            raise OptionError(name, self.text(name) or "", f"a number of bytes from {least} to {most}")
        return size

    def name(self, *names: str, what: str, length_max: int) -> str | None:
        """The name of a topic or of a group."""
        text = self.text(*names)
        if text is not None:
            refuse_name(names[0], text, what, length_max)
        return text

    def span_ms(self, name: str, default_ms: int, *others: str) -> int:
        """A length of time."""
        span = self._parsed((name, *others), lambda text: span_ms(name, text))
        if span is not None and span < 1:
            raise OptionError(name, self.text(name, *others) or "", "a length of time of 1 ms or more")
        if span is not None and span > SPAN_MS_MAX:
            raise OptionError(
                name,
                self.text(name, *others) or "",
                f"a length of time up to {SPAN_MS_MAX} ms, which is a year",
            )
        return default_ms if span is None else span

    def names(self, *names: str) -> tuple[str, ...]:
        """A list with commas."""
        text = self.text(*names)
        return tuple(filter(None, (part.strip() for part in text.split(",")))) if text else ()

    def _parsed(self, names: tuple[str, ...], parse: Callable[[str], T]) -> T | None:
        text = self.text(*names)
        return None if text is None else parse(text)


_SPARKS_OWN = frozenset(
    {"path", "paths", "header", "mode", "checkpointlocation", "queryname", "provider", "streamname", "owner"}
)
"""What Spark itself may put beside ours."""
_OF_A_TABLE = "option."
"""So begin the options of CREATE TABLE when it asks for the columns; who reads the table later gets none of them."""
_NO_TABLE = "a view in place of a table, of which Spark forgets the options: CREATE TEMPORARY VIEW name USING rocketmq OPTIONS (…)"


def refuse_name(option: str, text: str, what: str, length_max: int) -> None:
    """Names that no broker takes."""
    if len(text) > length_max or not NAME.fullmatch(text):
        raise OptionError(
            option, text, f"the name of a {what}: up to {length_max} of the characters a-z A-Z 0-9 _ - % |"
        )


def shown(name: str, value: str) -> str:
    """A value as errors may show it."""
    return "***" if re.search(r"secret|password|token|access.?key|sasl", name, re.IGNORECASE) else value


def _whole(name: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise OptionError(name, text, f"a whole number of {least} or more")
    return int(text)


def _size(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or not int(match[1]):
        raise OptionError(name, text, "a number of bytes, such as 1048576, 64m or 1g")
    return int(match[1]) << _SIZE_SHIFTS[(match[2] or "b")[0].lower()]
