"""Queues whose lease a member asks for, and whose broker has not answered yet. PURE.

A sweep asks for hundreds at a time and most are refused, so a question is kept as one: the state of each queue begins with its grant.
"""

from collections.abc import Iterator
from typing import NamedTuple

from trimtab.balance.leased_effects import Acquire
from trimtab.model import MessageQueue


class Asked(NamedTuple):
    """Since when, and why."""

    since_ms: int
    cause: str


class Asking:
    """See the module's own words."""

    def __init__(self) -> None:
        self._open: dict[Acquire, Asked] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many queues are asked for."""
        return self._count

    def __iter__(self) -> Iterator[MessageQueue]:
        return (queue for question in self._open for queue in question.queues)

    def __contains__(self, queue: MessageQueue) -> bool:
        return any(
            queue.broker_name == question.broker_name and queue in question.queues for question in self._open
        )

    def ask(self, question: Acquire, now_ms: int, cause: str) -> None:
        """All queues of the question are asked for from now on."""
        self._open[question] = Asked(now_ms, cause)
        self._count += len(question.queues)

    def answered(self, question: Acquire) -> Asked | None:
        """The queues of this question are asked for no more; None if they were not."""
        asked = self._open.pop(question, None)
        if asked is not None:
            self._count -= len(question.queues)
        return asked

    def clear(self) -> None:
        """Nothing is asked for any more."""
        self._open.clear()
        self._count = 0
