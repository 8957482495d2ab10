"""Who holds what as one member knows it, what is owed, what waits; loads out of offsets; turns."""

import pytest

from trimtab.balance.holders import FRESH_MS, GIVING_UP_MS, WAITS_AFTER_MS, Holders
from trimtab.balance.leased import LeasedRebalance
from trimtab.balance.leased_effects import Acquire, Drain, EndTurn, Measure, TakeTurn
from trimtab.balance.loads import MEASURE_EVERY_MS, Ends, Loads
from trimtab.balance.rebalance_effects import ReadStart
from trimtab.balance.strategies import Lag, Load
from trimtab.balance.trust import PROOF_GAP_MS
from trimtab.balance.turns import ROUND_MS, SETTLE_MS, Turns, turn_at
from trimtab.model import MessageQueue

QUEUES = tuple(MessageQueue("orders", "broker-0", number) for number in range(4))
Q = QUEUES[0]
BOTH = frozenset({"me", "b"})


def told(*holders: str | None) -> dict[str, dict[MessageQueue, str]]:
    held = {queue: who for queue, who in zip(QUEUES, holders, strict=False) if who is not None}
    return {"broker-0": held}


def some_holders() -> Holders:
    holders = Holders("me")
    holders.on_queues(QUEUES)
    holders.on_members(BOTH, BOTH)
    return holders


def test_nothing_is_known_before_somebody_tells() -> None:
    holders = some_holders()
    assert holders.known(0) is None
    holders.on_told(told("b"), (), 0)
    assert holders.known(0) == {Q: "b"}


def test_a_queue_of_a_member_that_restarts_is_owed_to_it_until_somebody_holds_it() -> None:
    holders = some_holders()
    holders.on_told(told("b"), (), 0)
    holders.on_told(told(None), (), 10)
    holders.on_members(frozenset({"me"}), BOTH)
    later_ms = 10 + WAITS_AFTER_MS
    assert (holders.known(later_ms) or {}).get(Q) == "b"
    assert Q not in holders.waiting(later_ms)
    holders.on_members(BOTH, BOTH)
    assert (holders.known(later_ms) or {}).get(Q) == "b", "it is back, and on its way to its queues"
    holders.on_members(frozenset({"me"}), frozenset({"me"}))
    assert Q not in (holders.known(later_ms) or {}), "it is not waited for any more"


def test_a_queue_just_given_up_is_for_a_moment_still_of_the_one_that_gave_it_up() -> None:
    holders = some_holders()
    holders.on_told(told("b"), (), 0)
    holders.on_told(told(None), (), 100)
    assert holders.known(100 + GIVING_UP_MS - 1) == {Q: "b"}
    assert holders.known(100 + GIVING_UP_MS) == {}


def test_what_i_gave_up_is_free_at_once() -> None:
    holders = some_holders()
    holders.on_told(told(), (), 0)
    holders.took(Q)
    assert holders.known(1) == {Q: "me"}
    holders.left(Q, 2)
    assert holders.known(2) == {}


def test_a_queue_waits_only_if_it_was_seen_free_again_and_again() -> None:
    holders = some_holders()
    for now_ms in range(0, WAITS_AFTER_MS + 1, 1_000):
        holders.on_told(told(None, "b", "b", "b"), (), now_ms)
    assert holders.waiting(WAITS_AFTER_MS) == {Q}
    much_later_ms = WAITS_AFTER_MS + FRESH_MS + 1
    holders.on_told(told(None, "b", "b", "b"), (), much_later_ms)
    assert holders.waiting(much_later_ms) == frozenset(), "somebody may have held it in between"


def test_a_lease_in_my_name_from_a_former_life_is_mine_and_one_i_asked_for_is_not_counted_twice() -> None:
    holders = some_holders()
    holders.on_told(told("me"), (), 0)
    assert holders.known(0) == {Q: "me"}
    holders.asked([Q])
    holders.on_told(told("me"), (), 1)
    assert holders.known(1 + GIVING_UP_MS) == {}


def test_a_broker_that_says_nothing_changes_nothing() -> None:
    holders = some_holders()
    holders.on_told(told("b"), (), 0)
    holders.on_told({"broker-1": {}}, (), 10)
    assert holders.known(10_000) == {Q: "b"}


def test_rates_follow_the_offsets_and_lag_is_what_waits() -> None:
    loads = Loads()
    assert loads.on_measured({Q: Ends(100, 40)}, 0) == {Q: Load(60, 0.0)}
    assert loads.on_measured({Q: Ends(200, 200)}, 10_000) == {Q: Load(0, 10.0)}
    assert loads.on_measured({Q: Ends(500, 200)}, 20_000) == {Q: Load(300, 20.0)}
    assert loads.on_measured({}, 30_000) == {Q: Load(300, 20.0)}, "what was not measured stays"
    loads.keep_only(frozenset())
    assert loads.on_measured({}, 40_000) == {}


def test_a_turn_is_kept_until_what_was_given_up_has_been_free_for_a_round() -> None:
    turns = Turns(5_000)
    assert [type(effect) for effect in turns.wish("broker-0", 0)] == [TakeTurn]
    assert turns.wish("broker-0", 0) == [], "it is asked for already"
    assert turns.on_answer(is_granted=True, now_ms=10)
    assert not turns.may_move(5), "measured before the turn began"
    assert turns.may_move(10)
    assert turns.used(frozenset({Q}), 20) == []
    assert turns.on_tick(frozenset({Q}), 2_000) == []
    assert turns.on_tick(frozenset(), 2_000 + ROUND_MS + SETTLE_MS - 1) == []
    end = [EndTurn("broker-0", turn_at("broker-0"))]
    assert turns.on_tick(frozenset(), 2_000 + ROUND_MS + SETTLE_MS) == end
    assert turns.end() == []


def test_a_turn_that_is_refused_is_asked_for_again_later() -> None:
    turns = Turns(5_000)
    assert len(turns.wish("broker-0", 0)) == 1
    assert not turns.on_answer(is_granted=False, now_ms=1)
    assert turns.wish("broker-0", 4_999) == []
    assert len(turns.wish("broker-0", 5_000)) == 1


@pytest.mark.parametrize("is_granted", [True, False])
def test_load_moves_queues_only_in_a_turn_and_with_what_was_measured_in_it(is_granted: bool) -> None:
    machine = LeasedRebalance("billing", "me", Lag(moves_max=1))
    machine.on_listed("broker-0", -PROOF_GAP_MS)
    effects = machine.on_view({"orders": QUEUES}, ["me", "b"], 1)
    asked = next(effect for effect in effects if isinstance(effect, Acquire))
    for effect in machine.on_acquired(asked, QUEUES[:2], 1, 2):
        if isinstance(effect, ReadStart):
            machine.on_start(effect, 0, 3)
    assert set(machine.held()) == set(QUEUES[:2])
    (measure,) = (effect for effect in machine.on_tick(20) if isinstance(effect, Measure))
    held = dict.fromkeys(QUEUES[:2], "me") | dict.fromkeys(QUEUES[2:], "b")
    lags = dict(zip(QUEUES, (6_000, 1_800, 0, 0), strict=True))
    ends = {queue: Ends(lag, 0) for queue, lag in lags.items()}
    effects = machine.on_measured(measure, ends, {"broker-0": held}, 20, 30)
    assert not any(isinstance(effect, Drain) for effect in effects)
    (turn,) = (effect for effect in effects if isinstance(effect, TakeTurn))
    effects = machine.on_turn(turn, is_granted=is_granted, now_ms=40)
    if not is_granted:
        assert effects == []
        return
    (again,) = effects
    assert isinstance(again, Measure)
    effects = machine.on_measured(again, ends, {"broker-0": held}, 40, 50)
    assert sum(isinstance(effect, Drain) for effect in effects) == 1
    effects = machine.on_tick(50 + MEASURE_EVERY_MS)
    assert not any(isinstance(effect, Drain) for effect in effects)
