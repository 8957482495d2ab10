"""Questions that the broker asks its clients, and who waits for the answers."""

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.wire.commands import Command

WhenAnswered = Callable[[Command | None], None]
"""Called once: with the client's answer, or with None when it did not come in time."""


@dataclass(frozen=True, slots=True)
class _Question:
    connection: int
    deadline_ms: int
    when_answered: WhenAnswered


class Conversations:
    """Open questions by opaque. The numbers are ours: a client may use the same ones for its own requests."""

    def __init__(self, questions_max: int) -> None:
        self._questions_max = questions_max
        self._questions: dict[int, _Question] = {}
        self._opaque = 0

    def next_opaque(self) -> int:
        """A number for a request of ours."""
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def is_full(self) -> bool:
        """Whether no further question can be kept."""
        return len(self._questions) >= self._questions_max

    def wait_for(self, opaque: int, connection: int, deadline_ms: int, when_answered: WhenAnswered) -> None:
        """Keeps who waits for the answer to a request just sent."""
        self._questions[opaque] = _Question(connection, deadline_ms, when_answered)

    def answered(self, connection: int, answer: Command) -> None:
        """An answer came; one that nobody waits for, or from another connection, is dropped."""
        question = self._questions.get(answer.opaque)
        if question is not None and question.connection == connection:
            del self._questions[answer.opaque]
            question.when_answered(answer)

    def close(self, connection: int) -> None:
        """Whoever waits for this connection waits in vain."""
        self._give_up([opaque for opaque, asked in self._questions.items() if asked.connection == connection])

    def expire(self, now_ms: int) -> None:
        """Ends the waiting for answers that are overdue."""
        self._give_up([opaque for opaque, asked in self._questions.items() if now_ms >= asked.deadline_ms])

    def _give_up(self, opaques: list[int]) -> None:
        for opaque in opaques:
            self._questions.pop(opaque).when_answered(None)
