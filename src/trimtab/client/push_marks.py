"""That brokers show a member of a leased group as one.

Members know by the version in each other's heartbeats who keeps leases. Apache's brokers keep the version of the first heartbeat for a group on a connection: if a goodbye was lost, what a
pull consumer or a member in classic mode said over the same connection stands for the leased member that came after it, and the whole group would share without leases for as long as it lives. A member that
sees itself listed so says goodbye there and comes again.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trimtab.client.push_members import Seen
from trimtab.client.session import Session

_log = logging.getLogger(__name__)

MARK_AGAIN_MS: Final = 60_000
"""A broker that shows the old mark all the same is not left and joined again all the time: each time the whole group looks anew."""


@dataclass(frozen=True, slots=True)
class _Return:
    """One goodbye to a broker and what followed."""

    left_ms: int
    is_back_ms: int | None = None

    def is_later_than(self, asked_ms: int) -> bool:
        """Whether a list that was asked for then may be from before the member was back."""
        return self.is_back_ms is None or asked_ms <= self.is_back_ms


class Marks:
    """At which brokers a member comes again, and which lists were asked for too early to tell whether that has helped. PURE."""

    def __init__(self) -> None:
        self._returns: dict[str, _Return] = {}

    def due(self, seen: Seen, now_ms: int) -> tuple[str, ...]:
        """The brokers at which this member is to come again now; asked once, they are not named again for a while."""
        due = tuple(sorted(name for name in seen.mismarked if self._may_leave(name, now_ms)))
        # Those that show the mark are forgotten: if it is lost again, that is a new accident.
        self._returns = {
            name: known for name, known in self._returns.items() if name in seen.mismarked
        } | dict.fromkeys(due, _Return(now_ms))
        return due

    def came(self, broker_names: Iterable[str], now_ms: int) -> None:
        """The brokers were told, or could not be reached."""
        for name in broker_names:
            if name in self._returns:
                self._returns[name] = _Return(self._returns[name].left_ms, now_ms)

    def is_coming(self, seen: Seen) -> bool:
        """Whether a list that shows the old mark may be from before the member was back."""
        returns = ((look, self._returns.get(look.broker_name)) for look in seen.lists)
        return any(
            look.broker_name in seen.mismarked and known is not None and known.is_later_than(look.sent_ms)
            for look, known in returns
        )

    def _may_leave(self, broker_name: str, now_ms: int) -> bool:
        known = self._returns.get(broker_name)
        return known is None or (known.is_back_ms is not None and now_ms - known.left_ms >= MARK_AGAIN_MS)


async def come_again(session: Session, group: str, broker_names: Iterable[str]) -> None:
    """Back when the brokers were told, or could not be reached."""
    names = frozenset(broker_names)
    _log.info("%s is shown without leases by %s: it comes again", group, ", ".join(sorted(names)))
    addresses = [address for address, name in session.masters().items() if name in names]
    await asyncio.gather(*(session.introduce_anew(address, group) for address in addresses))
