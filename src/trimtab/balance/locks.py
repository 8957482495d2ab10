"""Leases: which client of a group may consume which queue, as a broker keeps them.

Apache's rule: a queue is granted if nobody holds it, if the asker holds it already, or if the holder has not renewed for
60 s; each grant renews. Ours adds two things that no stock client notices. A lease whose connection is closed ends after a
short grace, unless the same client id comes back and renews first, so that a restart is not a change; a client that goes on by
itself without a connection, as Java's does for 30 s, is waited for as long. And every new holder gets a higher epoch, by which
the commit of a former holder can be told from that of the present one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trimtab.model import MessageQueue

LEASE_MS = 60_000
CLOSED_GRACE_MS = 3_000
UNSEEN_CLOSE_GRACE_MS = 10_000
REMEMBERED_MAX = 100_000
"""Of how many queues it is known who held them last, once nobody does."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds a queue, since when, and until when if nothing is heard."""

    client_id: str
    connection: int
    epoch: int
    since_ms: int
    renewed_ms: int
    ends_ms: int
    trusted_ms: int = 0
    """So long after each renewal its client goes on by itself, even if its connection is gone."""


class LeaseTable:
    """All leases of one broker."""

    def __init__(
        self, *, lease_ms: int = LEASE_MS, closed_grace_ms: int = CLOSED_GRACE_MS, epoch: int = 0
    ) -> None:
        self._lease_ms = lease_ms
        self._closed_grace_ms = closed_grace_ms
        self._groups: dict[str, dict[MessageQueue, Lease]] = {}
        self._held: dict[int, set[tuple[str, MessageQueue]]] = {}
        """What is leased through a connection, so that its end costs no look at all other leases."""
        self._count = 0
        self._newest: dict[tuple[str, MessageQueue], Lease] = {}
        """The last lease of each queue, also after its end; the oldest are forgotten first."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._count

    def lock(
        self,
        group: str,
        client_id: str,
        connection: int,
        queues: Iterable[MessageQueue],
        now_ms: int,
        *,
        trusted_ms: int = 0,
    ) -> list[MessageQueue]:
        """The queues that the client holds after this, of those it asked for."""
        leases = self._groups.get(group, {})
        granted = []
        for queue in queues:
            held = leases.get(queue)
            if held is not None and held.client_id != client_id and now_ms <= held.ends_ms:
                continue
            if held is None or now_ms > held.ends_ms:
                held = self._new_lease(group, queue, client_id, connection, now_ms)
            lease = replace(
                held,
                connection=connection,
                renewed_ms=now_ms,
                ends_ms=now_ms + self._lease_ms,
                trusted_ms=trusted_ms,
            )
            self._remove(group, queue)
            leases = self._put(group, queue, lease)
            granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Gives up what the client holds of these; what others hold stays theirs."""
        leases = self._groups.get(group, {})
        for queue in queues:
            held = leases.get(queue)
            if held is not None and held.client_id == client_id:
                self._remove(group, queue)

    def holder(self, group: str, queue: MessageQueue, now_ms: int) -> Lease | None:
        """The lease on a queue, if one is in force."""
        held = self._groups.get(group, {}).get(queue)
        return held if held is not None and now_ms <= held.ends_ms else None

    def held(self, group: str, now_ms: int) -> dict[MessageQueue, str]:
        """Who has which lease of a group."""
        leases = self._groups.get(group, {})
        return {queue: held.client_id for queue, held in leases.items() if now_ms <= held.ends_ms}

    def close(self, connection: int, now_ms: int, *, is_known_to_peer: bool = True) -> None:
        """A connection is gone: what was leased through it ends after the grace, and not before its client must have stopped.

        If this side closed it the peer may not know for a while; then its leases last as long as a client of ours trusts them.
        """
        grace_ends_ms = now_ms + (self._closed_grace_ms if is_known_to_peer else UNSEEN_CLOSE_GRACE_MS)
        for group, queue in self._held.get(connection, ()):
            held = self._groups[group][queue]
            ends_ms = max(grace_ends_ms, held.renewed_ms + held.trusted_ms)
            self._groups[group][queue] = replace(held, ends_ms=min(held.ends_ms, ends_ms))

    def drop_group(self, group: str) -> None:
        """The group was deleted."""
        for queue in list(self._groups.get(group, ())):
            self._remove(group, queue)

    def expire(self, now_ms: int) -> None:
        """Forgets leases that ended, so that the table does not grow with groups that are gone."""
        for group, leases in list(self._groups.items()):
            for queue in [queue for queue, held in leases.items() if now_ms > held.ends_ms]:
                self._remove(group, queue)

    def epochs(self, group: str, queues: Iterable[MessageQueue]) -> tuple[int, ...]:
        """The epochs of leases just granted, in the same order."""
        leases = self._groups.get(group, {})
        return tuple([leases[queue].epoch for queue in queues])

    def newer_than(self, group: str, queue: MessageQueue, epoch: int) -> Lease | None:
        """The last lease on a queue, in force or not, if it was granted after the one with this epoch."""
        newest = self._newest.get((group, queue))
        return newest if newest is not None and newest.epoch > epoch else None

    def _put(self, group: str, queue: MessageQueue, lease: Lease) -> dict[MessageQueue, Lease]:
        leases = self._groups.setdefault(group, {})
        leases[queue] = lease
        self._held.setdefault(lease.connection, set()).add((group, queue))
        self._count += 1
        return leases

    def _remove(self, group: str, queue: MessageQueue) -> None:
        leases = self._groups.get(group, {})
        held = leases.pop(queue, None)
        if held is None:
            return
        self._count -= 1
        if not leases:
            del self._groups[group]
        through = self._held[held.connection]
        through.discard((group, queue))
        if not through:
            del self._held[held.connection]

    def _new_lease(
        self, group: str, queue: MessageQueue, client_id: str, connection: int, now_ms: int
    ) -> Lease:
        self._epoch += 1
        lease = Lease(client_id, connection, self._epoch, now_ms, now_ms, now_ms + self._lease_ms)
        self._newest.pop((group, queue), None)
        self._newest[group, queue] = lease
        if len(self._newest) > REMEMBERED_MAX:
            del self._newest[next(iter(self._newest))]
        return lease
