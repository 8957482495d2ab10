"""What may be wrong with leases, as members of ours tell it: modes, renewals, what their recorders saw lately. PURE."""

from collections.abc import Callable, Iterator

from trimtab.balance.recorder import Event, Flight, Kind
from trimtab.balance.trust import TRUST_MS
from trimtab.client.admin.diagnosis_facts import Facts, Finding, is_broadcast, some
from trimtab.client.admin.flights import flight_of, mode_of
from trimtab.client.admin.rows import HeldQueue, MemberState

RECENT_MS = 600_000
"""What was recorded longer ago is history."""


def _fell_back(facts: Facts) -> Iterator[Finding]:
    causes: dict[str, list[str]] = {}
    for state in facts.after.states.members:
        flight = flight_of(state)
        last = _last_switch(flight) if flight is not None else None
        if mode_of(state) == "classic" and last is not None and last.kind == Kind.FELL_BACK:
            causes.setdefault(last.cause, []).append(state.client_id)
    for cause, members in sorted(causes.items()):
        yield Finding(
            cause="fallen-back",
            severity="warning",
            evidence=f"{some(members)} gave up leases for classic mode: {cause}",
            advice="queues are double-held while members come and go, so some messages come twice: stop the members named,"
            " or move them to trimtab in leased mode; leases come back by themselves",
        )


def _last_switch(flight: Flight) -> Event | None:
    switches = [event for event in flight.events if event.kind in (Kind.FELL_BACK, Kind.JOINED)]
    return switches[-1] if switches else None


def _mixed_modes(facts: Facts) -> Iterator[Finding]:
    if is_broadcast(facts):
        return
    leased = [state.client_id for state in facts.after.states.members if mode_of(state) == "leased"]
    others = [state.client_id for state in facts.after.states.members if mode_of(state) != "leased"]
    were = {state.client_id for state in facts.before.states.members if mode_of(state) == "leased"}
    if leased and others and were.intersection(leased):
        yield Finding(
            cause="mixed-modes",
            severity="broken",
            evidence=f"{some(leased)} share by leases, {some(others)} by classic rules",
            advice="those with leases fall back within a minute; if this stays, look into their logs, and give all members one mode",
        )


def _expired_leases(facts: Facts) -> Iterator[Finding]:
    before = {state.client_id: _old_leases(state) for state in facts.before.states.members}
    for state in facts.after.states.members:
        were_old = {row.queue for row in before.get(state.client_id, ())}
        old = [row for row in _old_leases(state) if not row.dropped and row.queue in were_old]
        if old:
            oldest = max(row.lease_age_ms or 0 for row in old)
            yield Finding(
                cause="expired-leases",
                severity="broken",
                evidence=f"{state.client_id} has not renewed its lease of {some(str(row.queue) for row in old)} for {oldest / 1000:.0f} s",
                advice="it hands out nothing of them until it can: check that it reaches their brokers, and that its event loop is not"
                " blocked by a handler",
            )


def _old_leases(state: MemberState) -> list[HeldQueue]:
    return [row for row in state.queues if (row.lease_age_ms or 0) > TRUST_MS]


def _lost_lately(facts: Facts) -> Iterator[Finding]:
    since_ms = facts.after.now_ms - RECENT_MS
    for state in facts.after.states.members:
        flight = flight_of(state)
        for kind, words in ((Kind.LOST, "lost"), (Kind.FENCED, "stopped by itself on")):
            events = (
                []
                if flight is None
                else [one for one in flight.events if one.kind == kind and one.at_ms >= since_ms]
            )
            if events:
                queues = dict.fromkeys(str(one.queue) for one in events if one.queue is not None)
                yield Finding(
                    cause=f"{kind.value}-leases",
                    severity="warning",
                    evidence=f"{state.client_id} {words} {some(queues)} within {RECENT_MS // 60_000} minutes: {events[-1].cause}",
                    advice="messages of that moment came twice: look for pauses of the process, a slow network or a broker that was away;"
                    " `trimtab group history` shows when",
                )  # fmt: skip


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _fell_back,
    _mixed_modes,
    _expired_leases,
    _lost_lately,
)
