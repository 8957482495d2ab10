"""Questions to brokers that are not answered yet: one of a kind to each broker at a time, some not more often than at their pace. PURE."""

from collections.abc import Mapping
from typing import Final, TypeAlias, TypeVar

from trimtab.balance.leased_effects import Acquire, Evict, LookAtMembers, Renew
from trimtab.balance.takeover import LOOK_EVERY_MS
from trimtab.balance.trust import RENEW_EVERY_MS

ToBroker: TypeAlias = Acquire | Renew | LookAtMembers | Evict
Q = TypeVar("Q", Acquire, Renew, LookAtMembers, Evict)

PACE_MS: Final[Mapping[type[ToBroker], int]] = {Renew: RENEW_EVERY_MS, LookAtMembers: LOOK_EVERY_MS}
_NEVER_MS: Final = 2**62


class Questions:
    """See the module's own words."""

    def __init__(self) -> None:
        self._open: dict[tuple[type[ToBroker], str], ToBroker] = {}
        self._asked_ms: dict[tuple[type[ToBroker], str], int] = {}

    def ask(self, question: Q, now_ms: int) -> Q:
        """The question is asked now."""
        key = type(question), question.broker_name
        self._open[key] = question
        self._asked_ms[key] = now_ms
        return question

    def on_answered(self, question: ToBroker) -> None:
        """It is answered, or never will be."""
        key = type(question), question.broker_name
        if self._open.get(key) is question:
            del self._open[key]

    def is_open(self, kind: type[ToBroker], broker_name: str) -> bool:
        """Whether the broker has one of this kind to answer."""
        return (kind, broker_name) in self._open

    def due_ms(self, kind: type[ToBroker], broker_name: str, now_ms: int) -> int:
        """When the broker may be asked; far off while it has one to answer."""
        key = kind, broker_name
        if key in self._open:
            return _NEVER_MS
        asked_ms = self._asked_ms.get(key)
        return now_ms if asked_ms is None else asked_ms + PACE_MS.get(kind, 0)

    def soon(self, kind: type[ToBroker], broker_name: str) -> None:
        """The next one need not wait for its time."""
        self._asked_ms.pop((kind, broker_name), None)
