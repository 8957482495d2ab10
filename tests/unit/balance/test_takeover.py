"""When a member counts as gone for long enough that others may end its leases."""

from itertools import count

import pytest

from trimtab.balance.takeover import LOOK_EVERY_MS, TAKEOVER_AFTER_MS, Absences
from trimtab.balance.trust import TRUST_MS, Trust
from trimtab.model import MessageQueue

BROKER = "broker-0"
FAST, SLOW = 1.055, 0.945
"""Clocks as far apart in speed as docs/leases.md allows."""


def missed_since(now_ms: int) -> Absences:
    """Both members were listed, and from now on one is not."""
    absences = Absences()
    absences.on_members(BROKER, ["gone", "me"], now_ms - LOOK_EVERY_MS, now_ms)
    assert absences.on_members(BROKER, ["me"], now_ms, now_ms) == []
    return absences


def looked(absences: Absences, from_ms: int, until_ms: int) -> list[str]:
    """Looks at the usual pace, none of which finds it; who may be taken over from after the last."""
    found: list[str] = []
    for now_ms in range(from_ms, until_ms + 1, LOOK_EVERY_MS):
        found = absences.on_members(BROKER, ["me"], now_ms, now_ms)
    return found


def test_one_that_every_look_misses_is_taken_over_from_when_its_time_is_over() -> None:
    absences = missed_since(0)
    assert looked(absences, LOOK_EVERY_MS, TAKEOVER_AFTER_MS - LOOK_EVERY_MS) == []
    assert looked(absences, TAKEOVER_AFTER_MS, TAKEOVER_AFTER_MS) == ["gone"]


def test_one_that_is_seen_again_is_missed_anew() -> None:
    absences = missed_since(0)
    looked(absences, LOOK_EVERY_MS, 8_000)
    assert absences.on_members(BROKER, ["gone", "me"], 8_500, 8_500) == []
    assert looked(absences, 9_000, 9_000 + TAKEOVER_AFTER_MS - LOOK_EVERY_MS) == []
    assert looked(absences, 9_000 + TAKEOVER_AFTER_MS, 9_000 + TAKEOVER_AFTER_MS) == ["gone"]


def shortest_stay_ms() -> int:
    """How soon after it is listed again a member with a fast clock may renew, in true time."""
    trust = Trust(has_new_id=False)
    trust.on_listed(BROKER, 0)
    return next(ms for ms in count() if trust.may_ask(BROKER, int(ms * FAST)))


def test_nobody_comes_renews_and_goes_between_two_looks_of_a_proof_though_clocks_differ() -> None:
    """It was listed just after one look and gone just before the next; what it renewed it trusts for eight seconds more."""
    absences = missed_since(0)
    looked(absences, LOOK_EVERY_MS, 8_000)
    back_ms = 8_000 + int(shortest_stay_ms() * SLOW)
    assert looked(absences, back_ms, back_ms + TRUST_MS) == []


@pytest.mark.parametrize("renewed_ms", [0, 400])
def test_a_proof_is_over_after_the_trust_of_the_slowest_clock(renewed_ms: int) -> None:
    """In true time: the one that is gone counts with a slow clock, the one that proves it with a fast one."""
    trust = Trust(has_new_id=False)
    queue = MessageQueue("orders", BROKER, 0)
    trust.on_listed(BROKER, -30_000)
    assert trust.on_granted(queue, int(renewed_ms * SLOW))
    absences = missed_since(int(renewed_ms * FAST))
    taken_ms = next(
        ms
        for ms in range(renewed_ms, 60_000, 100)
        if absences.on_members(BROKER, ["me"], int(ms * FAST), int(ms * FAST))
    )
    assert not trust.is_trusted(queue, int(taken_ms * SLOW))
