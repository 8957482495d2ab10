"""Questions to brokers that are not answered yet: one of a kind to each broker at a time, some not more often than at their pace. PURE."""

from collections.abc import Mapping
from typing import Final, TypeAlias, TypeVar

from trimtab.balance.leased_effects import Acquire, Evict, LookAtMembers, Renew
from trimtab.balance.takeover import LOOK_EVERY_MS
from trimtab.balance.trust import RENEW_EVERY_MS

ToBroker: TypeAlias = Acquire | Renew | LookAtMembers | Evict
Q = TypeVar("Q", Acquire, Renew, LookAtMembers, Evict)

PACE_MS: Final[Mapping[type[ToBroker], int]] = {Renew: RENEW_EVERY_MS, LookAtMembers: LOOK_EVERY_MS}
KINDS: Final[tuple[type[ToBroker], ...]] = (Acquire, Renew, LookAtMembers, Evict)
_NEVER_MS: Final = 2**62


class Questions:
    """See the module's own words."""

    def __init__(self) -> None:
        self._open: dict[type[ToBroker], dict[str, ToBroker]] = {kind: {} for kind in KINDS}
        self._asked_ms: dict[type[ToBroker], dict[str, int]] = {kind: {} for kind in KINDS}

    def ask(self, question: Q, now_ms: int) -> Q:
        """The question is asked now."""
        self._open[type(question)][question.broker_name] = question
        self._asked_ms[type(question)][question.broker_name] = now_ms
        return question

    def on_answered(self, question: ToBroker) -> None:
        """It is answered, or never will be."""
        waiting = self._open[type(question)]
        if waiting.get(question.broker_name) is question:
            del waiting[question.broker_name]

    def is_open(self, kind: type[ToBroker], broker_name: str) -> bool:
        """Whether the broker has one of this kind to answer."""
        return broker_name in self._open[kind]

    def due_ms(self, kind: type[ToBroker], broker_name: str, now_ms: int) -> int:
        """When the broker may be asked; far off while it has one to answer."""
        if broker_name in self._open[kind]:
            return _NEVER_MS
        asked_ms = self._asked_ms[kind].get(broker_name)
        return now_ms if asked_ms is None else asked_ms + PACE_MS.get(kind, 0)

    def soon(self, kind: type[ToBroker], broker_name: str) -> None:
        """The next one need not wait for its time."""
        self._asked_ms[kind].pop(broker_name, None)
