"""That brokers show a member of a leased group as one.

Members know by the version in each other's heartbeats who keeps leases. Apache's brokers keep the version of the first heartbeat for a group on a connection: if a goodbye was lost, what a
pull consumer or a member in classic mode said over the same connection stands for the leased member that came after it, and the whole group would share without leases for as long as it lives. A member that
sees itself listed so says goodbye there and comes again.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from trimtab.client.push_members import Seen
from trimtab.client.session import Session

_log = logging.getLogger(__name__)

MARK_AGAIN_MS: Final = 60_000
"""A broker that shows the old mark all the same is not left and joined again all the time: each time the whole group looks anew."""


class Marks:
    """See the module's own words."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._tried_ms: dict[str, int] = {}

    def due(self, seen: Seen) -> tuple[str, ...]:
        """The brokers at which this member is to come again now; asked once, they are not named again for a while."""
        now_ms = self._session.clock.monotonic_ms()
        due = tuple(
            sorted(
                broker_name
                for broker_name in seen.mismarked
                if now_ms - self._tried_ms.get(broker_name, now_ms - MARK_AGAIN_MS) >= MARK_AGAIN_MS
            )
        )
        # Those that show the mark are forgotten: if it is lost again, that is a new accident.
        self._tried_ms = {
            name: at_ms for name, at_ms in self._tried_ms.items() if name in seen.mismarked
        } | dict.fromkeys(due, now_ms)
        return due

    async def come_again(self, broker_names: Iterable[str]) -> None:
        """Back when the brokers were told, or could not be reached."""
        names = frozenset(broker_names)
        _log.info("%s is shown without leases by %s: it comes again", self._group, ", ".join(sorted(names)))
        addresses = [address for address, name in self._session.masters().items() if name in names]
        await asyncio.gather(*(self._session.introduce_anew(address, self._group) for address in addresses))
