"""What the leased machine offers to whoever drives it on virtual time."""

import pytest

from trimtab.balance.leased import LeasedRebalance
from trimtab.balance.leased_effects import Acquire
from trimtab.balance.strategies import Plan, Sticky, View
from trimtab.balance.sweeping import ACQUIRE_QUEUES_MAX
from trimtab.balance.trust import PROOF_GAP_MS
from trimtab.model import MessageQueue
from trimtab.sim import run

QUEUES = tuple(MessageQueue("orders", "broker-0", number) for number in range(4))


class Remembering:
    """Plans as sticky does, and keeps the views."""

    name = "remembering"

    def __init__(self) -> None:
        self.views: list[View] = []

    def plan(self, view: View) -> Plan:
        self.views.append(view)
        return Sticky().plan(view)


def test_a_machine_that_is_ticked_when_it_asks_for_it_does_as_one_that_is_ticked_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seldom = run("crash", seed=3)
    monkeypatch.setattr(LeasedRebalance, "next_ms", lambda _, now_ms: now_ms)
    often = run("crash", seed=3)
    assert (often.violations, seldom.violations) == ((), ())
    assert often.moved == seldom.moved
    assert often.events > seldom.events


def test_a_queue_that_nobody_held_for_a_while_waits() -> None:
    planner = Remembering()
    machine = LeasedRebalance("billing", "a", planner)
    held_by_b = dict.fromkeys(QUEUES[1:], "b")
    for now_ms in (1, 2_000, 3_001):
        machine.on_view({"orders": QUEUES}, ["a", "b"], now_ms, holders={"broker-0": held_by_b})
    assert [view.waiting for view in planner.views] == [frozenset(), frozenset(), frozenset(QUEUES[:1])]


def test_one_request_asks_for_a_bounded_number_of_queues() -> None:
    machine = LeasedRebalance("billing", "a", Sticky())
    many = [MessageQueue("orders", "broker-0", number) for number in range(3 * ACQUIRE_QUEUES_MAX)]
    machine.on_listed("broker-0", -PROOF_GAP_MS)
    effects = machine.on_view({"orders": many}, ["a"], 1)
    asked = [effect for effect in effects if isinstance(effect, Acquire)]
    assert [len(effect.queues) for effect in asked] == [ACQUIRE_QUEUES_MAX]
