"""Whether a member may still act on a lease: the rules that make a leased handover safe on unmodified brokers. PURE.

A broker's lease ends 60 s after it was last renewed, or when somebody unlocks it in the holder's name. Members do that to one that
is gone (`takeover.py`), so a holder must stop by itself before they may. Three rules, and `docs/leases.md` says why they suffice:

1. A lease is trusted for `TRUST_MS` from the moment its last good renewal was *sent*.
2. A renewal counts only over a connection on which the member was listed with the broker for `PROOF_GAP_MS` before, by a heartbeat not older than
   `REGISTRATION_MS_MAX`. A member with an id that nobody had before need not wait, because nobody can have missed it, unless the broker was
   started lately: it has forgotten the leases of before, and a holder may not have seen its connection end yet.
3. When the connection to a broker is lost, no lease of that broker is trusted until it is renewed by rule 2.
"""

from dataclasses import dataclass

from trimtab.model import MessageQueue

RENEW_EVERY_MS = 2_000
TRUST_MS = 8_000
PROOF_GAP_MS = 1_500
REGISTRATION_MS_MAX = 60_000
NEVER_MS = 2**62


@dataclass(slots=True)
class _Broker:
    """How this member stands with one broker."""

    listed_since_ms: int | None = None
    heard_ms: int = 0
    lost_ms: int = -1
    was_listed: bool = False
    may_not_wait: bool = False
    """Whether it is listed for the first time, under an id that nobody had before."""

    def is_heard(self, now_ms: int) -> bool:
        """Whether it took a heartbeat lately."""
        return now_ms - self.heard_ms <= REGISTRATION_MS_MAX


@dataclass(slots=True)
class Grant:
    """One lease. Whoever keeps it need not look it up again: it is trusted no more once it is forgotten here."""

    renewed_ms: int = -NEVER_MS
    until_ms: int = 0
    """Trusted before this time."""


class Trust:
    """The leases of one member, and how far each may be relied on."""

    def __init__(self, *, has_new_id: bool) -> None:
        self._has_new_id = has_new_id
        self._brokers: dict[str, _Broker] = {}
        self._grants: dict[MessageQueue, Grant] = {}

    def on_listed(self, broker_name: str, now_ms: int) -> bool:
        """The broker acknowledged a heartbeat; whether it matters for how long it has been up."""
        broker = self._brokers.setdefault(broker_name, _Broker())
        broker.heard_ms = now_ms
        if broker.listed_since_ms is not None:
            return False
        broker.listed_since_ms = now_ms
        broker.may_not_wait = self._has_new_id and not broker.was_listed
        broker.was_listed = True
        return broker.may_not_wait

    def on_age(self, broker_name: str, up_ms: int) -> None:
        """For how long the broker had been up when it was asked: nobody trusts a lease any more that it forgot when it started."""
        broker = self._brokers[broker_name]
        if broker.may_not_wait and broker.listed_since_ms is not None and up_ms >= TRUST_MS:
            broker.listed_since_ms -= PROOF_GAP_MS
            broker.may_not_wait = False

    def on_lost(self, broker_name: str, now_ms: int) -> None:
        """The connection to the broker is gone."""
        broker = self._brokers.setdefault(broker_name, _Broker())
        broker.listed_since_ms = None
        broker.may_not_wait = False
        broker.lost_ms = now_ms
        for queue, grant in self._grants.items():
            if queue.broker_name == broker_name:
                grant.until_ms = 0

    def may_ask(self, broker_name: str, now_ms: int) -> bool:
        """Whether a lease asked for now would count."""
        broker = self._brokers.get(broker_name)
        return (
            broker is not None
            and broker.listed_since_ms is not None
            and now_ms - broker.listed_since_ms >= PROOF_GAP_MS
            and broker.is_heard(now_ms)
        )

    def needs_heartbeat(self, broker_name: str, now_ms: int) -> bool:
        """Whether the broker lists this member, but must take another heartbeat before a lease that it grants counts."""
        broker = self._brokers.get(broker_name)
        return broker is not None and broker.listed_since_ms is not None and not broker.is_heard(now_ms)

    def may_be_asked(self, now_ms: int) -> list[str]:
        """The brokers of which a lease asked for now would count."""
        return [name for name in self._brokers if self.may_ask(name, now_ms)]

    def may_ask_ms(self, broker_name: str) -> int:
        """From when on a lease asked for may count, if nothing happens meanwhile; far off while the broker does not list this member."""
        broker = self._brokers.get(broker_name)
        if broker is None or broker.listed_since_ms is None:
            return NEVER_MS
        return broker.listed_since_ms + PROOF_GAP_MS

    def on_granted(self, queue: MessageQueue, sent_ms: int) -> bool:
        """The broker granted what was asked for at this time; whether it counts."""
        broker = self._brokers.get(queue.broker_name)
        if broker is None or sent_ms <= broker.lost_ms or not self.may_ask(queue.broker_name, sent_ms):
            return False
        grant = self._grants.setdefault(queue, Grant())
        grant.renewed_ms = max(sent_ms, grant.renewed_ms)
        grant.until_ms = grant.renewed_ms + TRUST_MS
        return True

    def is_trusted(self, queue: MessageQueue, now_ms: int) -> bool:
        """Whether a message of the queue may be handed out now."""
        grant = self._grants.get(queue)
        return grant is not None and now_ms < grant.until_ms

    def grant(self, queue: MessageQueue) -> Grant:
        """The lease itself; one that is never trusted where there is none."""
        return self._grants.get(queue) or Grant()

    def age_ms(self, queue: MessageQueue, now_ms: int) -> int | None:
        """How long ago the lease was renewed."""
        grant = self._grants.get(queue)
        return None if grant is None else now_ms - grant.renewed_ms

    def forget(self, queue: MessageQueue) -> None:
        """The lease was given up or lost."""
        grant = self._grants.pop(queue, None)
        if grant is not None:
            grant.until_ms = 0
