"""Where a member starts to read a queue that it was given: point C10. PURE.

A stored offset wins. Where nothing is stored the group's choice decides, and what it needs to know may have to be asked first.
An offset that could not be read is no reason to guess: the queue is not started, and the next round tries again.
"""

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

NOT_STORED: Final = -1
"""The broker said that the group has no offset for the queue."""
UNKNOWN: Final = -2
"""Nobody could be asked, or nobody answered."""
RETRY_PREFIX: Final = "%RETRY%"


class From(enum.Enum):
    """Which message of a queue is a new group's first."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class StartRule:
    """The choice of a group; `at_ms` is wall time and counts for `TIMESTAMP` alone."""

    where: From = From.LAST
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class At:
    """Start here."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Start at the queue's max offset: ask for it."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """Start at the first message of this time: search for it."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class NotNow:
    """Do not start in this round."""


Start: TypeAlias = At | AtEnd | AtTime | NotNow


def where_to_start(rule: StartRule, topic: str, stored: int) -> Start:
    """What follows from an offset as it was read: `stored`, `NOT_STORED`, or anything lower for a failure."""
    if stored >= 0:
        return At(stored)
    if stored != NOT_STORED:
        return NotNow()
    is_retry = topic.startswith(RETRY_PREFIX)
    if rule.where is From.FIRST:
        return At(0)
    if rule.where is From.LAST:
        return At(0) if is_retry else AtEnd()
    return AtEnd() if is_retry else AtTime(rule.at_ms)


def stored_for_pull(remembered: int | None, stored: int) -> int:
    """Lite pull looks into its own memory first; push always asks where offsets are kept."""
    return stored if remembered is None else remembered
