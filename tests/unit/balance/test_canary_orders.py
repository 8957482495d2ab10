"""A canary for a whole group, ordered and called back by one command: its text, and what a leased member makes of it."""

import pytest

from trimtab.balance.canary_orders import TEXT_CHARS_MAX, order_text, read_order
from trimtab.balance.leased import LeasedRebalance
from trimtab.balance.leased_effects import Acquire, Drain, Happened
from trimtab.balance.rebalance_effects import ReadStart
from trimtab.balance.recorder import Kind
from trimtab.balance.strategies import CanarySetting, LeasedCanary, Sticky
from trimtab.balance.trust import PROOF_GAP_MS
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue

BROKER = "broker-0"
QUEUES = tuple(MessageQueue("orders", BROKER, number) for number in range(10))
NOW_MS = 1_000_000
TENTH = CanarySetting(frozenset({"a"}), part=0.1)
NAMED = CanarySetting(frozenset({"a", "b"}), queues=frozenset(QUEUES[3:5]))


@pytest.mark.parametrize("setting", [TENTH, NAMED])
def test_what_name_servers_keep_is_read_as_it_was_written(setting: CanarySetting) -> None:
    assert read_order(order_text(setting)) == setting


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"members": []}', "at least one member"),
        ('{"members": ["a"]}', "either a part"),
        ('{"members": ["a"], "part": 2}', "between 0 and 1"),
        ('{"members": ["a"], "queues": [{"topic": "t"}]}', "cannot be read"),
        (" " * (TEXT_CHARS_MAX + 1), "at most"),
    ],
)
def test_what_is_no_order_is_refused(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read_order(text)


def holding_all(planner: Sticky | LeasedCanary) -> LeasedRebalance:
    """Member "a" holds every queue, alone until now."""
    machine = LeasedRebalance("billing", "a", planner)
    machine.on_listed(BROKER, NOW_MS - PROOF_GAP_MS)
    effects = machine.on_view({"orders": QUEUES}, ["a"], NOW_MS)
    (acquire,) = [effect for effect in effects if isinstance(effect, Acquire)]
    for start in machine.on_acquired(acquire, QUEUES, NOW_MS, NOW_MS):
        if isinstance(start, ReadStart):
            machine.on_start(start, 0, NOW_MS)
    assert len(machine.held()) == len(QUEUES)
    return machine


def test_a_canary_that_is_ordered_gives_up_what_is_not_its_part_and_the_order_is_carried_out_once() -> None:
    machine = holding_all(Sticky())
    machine.on_view({"orders": QUEUES}, ["a", "b"], NOW_MS)
    effects = machine.on_canary(TENTH, NOW_MS)
    assert effects[0] == Happened(Kind.VIEW, cause="a canary was ordered", detail="10 queues, 2 members")
    assert machine.planner.name == "canary-sticky"
    assert len(machine.held()) == 1
    assert machine.on_canary(TENTH, NOW_MS) == []


def test_the_way_back_is_what_the_member_chose_itself() -> None:
    machine = holding_all(Sticky())
    machine.on_canary(TENTH, NOW_MS)
    (back,) = [one for one in machine.on_canary(None, NOW_MS) if isinstance(one, Happened)]
    assert (back.kind, back.cause) == (Kind.VIEW, "the canary was called back")
    assert machine.planner.name == "sticky"
    assert machine.on_canary(None, NOW_MS) == []


def test_an_order_goes_before_a_canary_of_the_members_own() -> None:
    own = LeasedCanary(Sticky(), CanarySetting(frozenset({"b"}), part=0.5))
    machine = holding_all(own)
    machine.on_canary(TENTH, NOW_MS)
    assert isinstance(machine.planner, LeasedCanary)
    assert machine.planner.setting == TENTH
    assert machine.planner.within.name == "sticky"
    machine.on_canary(None, NOW_MS)
    assert machine.planner is own


def test_an_order_that_does_not_fit_the_group_is_told_and_costs_no_queue() -> None:
    machine = holding_all(Sticky())
    effects = machine.on_canary(CanarySetting(frozenset({"stranger"}), part=0.5), NOW_MS)
    assert Kind.MISFIT in {effect.kind for effect in effects if isinstance(effect, Happened)}
    assert not [effect for effect in effects if isinstance(effect, Drain)]
    assert len(machine.held()) == len(QUEUES)
