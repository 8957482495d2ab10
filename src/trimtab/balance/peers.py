"""The members of a group as one of them counts them. PURE.

One that keeps its id over a restart is counted on for a while after it is first missed: a restart is not a change of membership, so nobody
takes its queues and it finds them as it left them. And when a broker is gone, its list is empty for a moment after it has come back: those who were
there before are given time to say so again. A member always counts itself.
"""

from collections.abc import Iterable
from functools import lru_cache

from trimtab.balance.order import sorted_names
from trimtab.balance.trust import PROOF_GAP_MS

RESTART_GRACE_MS = 4_000
BROKER_RETURN_GRACE_MS = 10_000
BACK_MS = 2 * PROOF_GAP_MS
"""So long after it is listed again a member may still be on its way to the queues that it had: it may not ask at once."""
NEVER_MS = 2**62
_REMEMBERED_GROUPS_MAX = 64


class Peers:
    """See the module's own words."""

    def __init__(self, me: str, *, restart_grace_ms: int = RESTART_GRACE_MS) -> None:
        self._me = me
        self._restart_grace_ms = restart_grace_ms
        self.present: frozenset[str] = frozenset()
        """Those whom brokers list."""
        self._stable: set[str] = set()
        self._gone_ms: dict[str, int] = {}
        """Of the stable ones, when they were first missed."""
        self._back_ms = -NEVER_MS
        """When one of them was last seen again."""
        self._awaited_until_ms: dict[str, int] = {}
        self.counted: tuple[str, ...] = ()
        """Those among whom the queues are shared, in order."""
        self.counted_names: frozenset[str] = frozenset()
        """The same without an order."""

    def on_seen(self, members: Iterable[str], stable: Iterable[str], now_ms: int) -> str:
        """The members as the brokers list them; what changed, in words, or nothing."""
        counted_before, before = self.counted, self.counted_names
        self.present = frozenset(members)
        self._stable.update(member for member in stable if member in self.present)
        for member in self._stable:
            if member in self.present:
                is_back = self._gone_ms.pop(member, None) is not None
                self._back_ms = now_ms if is_back else self._back_ms
            else:
                self._gone_ms.setdefault(member, now_ms)
        self._count(now_ms)
        if self.counted is counted_before:
            return ""
        joined, left = self.counted_names - before, before - self.counted_names
        parts = [f"{_some(names)} {verb}" for names, verb in ((joined, "joined"), (left, "left")) if names]
        return ", ".join(parts)

    def leave_free(self, queue_count: int, now_ms: int) -> bool:
        """Whether one who has no queue takes none: there is not one for everybody, and a free one may be that of a member on its way back."""
        is_scarce = queue_count < len(self.counted)
        return is_scarce and bool(self._gone_ms or self._awaited_until_ms or now_ms - self._back_ms < BACK_MS)

    def on_broker_lost(self, now_ms: int) -> None:
        """A broker lost its connections; whoever is counted now is awaited for a while."""
        for member in self.counted:
            self._awaited_until_ms[member] = now_ms + BROKER_RETURN_GRACE_MS

    def on_tick(self, now_ms: int) -> bool:
        """Whether somebody is no longer waited for."""
        if self.counted and not self._gone_ms and not self._awaited_until_ms:
            return False
        before = self.counted
        self._count(now_ms)
        return before != self.counted

    def next_ms(self) -> int:
        """When somebody may no longer be waited for."""
        if not self._gone_ms and not self._awaited_until_ms:
            return NEVER_MS
        ends = [gone_ms + self._restart_grace_ms for gone_ms in self._gone_ms.values()]
        return min([*ends, *self._awaited_until_ms.values()], default=NEVER_MS)

    def _count(self, now_ms: int) -> None:
        awaited = set()
        for member, gone_ms in list(self._gone_ms.items()):
            if now_ms - gone_ms < self._restart_grace_ms:
                awaited.add(member)
            else:
                self._stable.discard(member)
                del self._gone_ms[member]
        for member, until_ms in list(self._awaited_until_ms.items()):
            if now_ms < until_ms:
                awaited.add(member)
            else:
                del self._awaited_until_ms[member]
        counted = self.present
        if awaited or self._me not in counted:
            counted = counted | awaited | {self._me}
        self.counted, self.counted_names = _in_order(counted)


@lru_cache(_REMEMBERED_GROUPS_MAX)
def _in_order(names: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Members are counted many times a second, and seldom change: equal ones are the same objects."""
    return sorted_names(names), names


def _some(names: frozenset[str]) -> str:
    ordered = sorted(names)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} and {len(ordered) - 1} more"
