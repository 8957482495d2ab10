"""When the leases of a member that is gone may be ended by others. PURE.

A crashed member leaves leases behind, up to 60 s on Apache's brokers. Anybody may unlock them in its name, provided that it must have stopped
acting on them by then. A member is *absent* from a broker while the broker's list of the group does not have it; what its broker does not
list cannot renew (`trust.py`, rule 2). If every look at the list for `TAKEOVER_AFTER_MS` missed it, and no two looks were
further apart than `LOOKS_APART_MS_MAX`, it has not renewed since the first look and trusts nothing any more.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trimtab.balance.trust import TRUST_MS

LOOK_EVERY_MS: Final = 500
CLOCK_MARGIN_MS: Final = 1_000
"""For clocks of different speed (a tenth is far beyond any real one) and for the way of the last answer."""
TAKEOVER_AFTER_MS: Final = TRUST_MS + CLOCK_MARGIN_MS
LOOKS_APART_MS_MAX: Final = 1_300
"""Less than a member must have been listed for before it may renew (`PROOF_GAP_MS`), by as much as clocks may differ in speed: else one whose
clock is fast could come, renew and go between two looks of one whose clock is slow."""
EVICTORS: Final = 3
"""The first members in order end the leases of one that is gone even if they need none: who does may have joined after it went, and
cannot prove its absence. Not all of them do: the broker should not hear the same from a thousand."""
ABSENT_MEMBERS_MAX: Final = 10_000


@dataclass(slots=True)
class _Absence:
    since_ms: int


@dataclass(slots=True)
class _Watch:
    """What is known of the members at one broker."""

    present: frozenset[str]
    looked_ms: int
    absent: dict[str, _Absence]
    """In the order in which they were missed."""

    def proves_nothing(self, now_ms: int) -> bool:
        """Whether another look at the same list, now, changes nothing: nearly all do not."""
        if not self.absent:
            return True
        first = next(iter(self.absent.values()))
        return now_ms - self.looked_ms <= LOOKS_APART_MS_MAX and now_ms - first.since_ms < TAKEOVER_AFTER_MS


class Absences:
    """The members that brokers no longer list, and since when that is proven."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Watch] = {}

    def on_members(self, broker_name: str, members: Iterable[str], sent_ms: int, now_ms: int) -> list[str]:
        """A look at the list, asked at `sent_ms` and answered now. Those whose leases at this broker may be ended."""
        present = frozenset(members)
        watch = self._brokers.get(broker_name)
        if watch is None:
            self._brokers[broker_name] = _Watch(present, sent_ms, {})
            return []
        if present is watch.present and watch.proves_nothing(now_ms):
            watch.looked_ms = sent_ms
            return []
        if now_ms - watch.looked_ms > LOOKS_APART_MS_MAX:
            # Somebody may have come and gone unseen since the last look: nothing is proven, every absence begins anew.
            watch.absent = {name: _Absence(now_ms) for name in watch.absent}
        for name in [name for name in watch.absent if name in present]:
            del watch.absent[name]
        for name in () if present is watch.present else sorted(watch.present - present):
            if len(watch.absent) < ABSENT_MEMBERS_MAX:
                watch.absent[name] = _Absence(now_ms)
        watch.present = present
        watch.looked_ms = sent_ms
        return sorted(
            name for name, absence in watch.absent.items() if now_ms - absence.since_ms >= TAKEOVER_AFTER_MS
        )

    def is_watching(self, broker_name: str) -> bool:
        """Whether somebody's absence there is still unproven, so that looks are worth their while."""
        watch = self._brokers.get(broker_name)
        return watch is not None and bool(watch.absent)

    def on_ended(self, broker_name: str, member: str) -> None:
        """The leases of this one were ended."""
        watch = self._brokers.get(broker_name)
        if watch is not None:
            watch.absent.pop(member, None)

    def brokers(self) -> list[str]:
        """Where somebody is absent."""
        return [name for name, watch in self._brokers.items() if watch.absent]
