"""What a leased member makes of answers that fail, come late, or speak of another lease."""

from collections.abc import Iterable
from typing import TypeVar

import pytest

from trimtab.balance.holdings import Holding, Phase
from trimtab.balance.leased import LeasedRebalance
from trimtab.balance.leased_effects import (
    Abandon,
    Acquire,
    AskAge,
    Commit,
    Drain,
    Happened,
    LeasedEffect,
    Recheck,
    Renew,
    Unlock,
)
from trimtab.balance.locks import LEASE_MS
from trimtab.balance.peers import RESTART_GRACE_MS
from trimtab.balance.rebalance_effects import ReadStart, StartPull
from trimtab.balance.recorder import Kind
from trimtab.balance.strategies.sticky import Sticky
from trimtab.balance.trust import PROOF_GAP_MS, RENEW_EVERY_MS, TRUST_MS
from trimtab.balance.unlocks import UNLOCK_AGAIN_MS
from trimtab.model import MessageQueue

BROKER = "broker-0"
QUEUE = MessageQueue("orders", BROKER, 0)
NOW_MS = 1_000_000
E = TypeVar("E", bound=LeasedEffect)


def only(kind: type[E], effects: Iterable[LeasedEffect]) -> E:
    (one,) = [effect for effect in effects if isinstance(effect, kind)]
    return one


def none_of(kind: type[LeasedEffect], effects: Iterable[LeasedEffect]) -> bool:
    return not any(isinstance(effect, kind) for effect in effects)


def asking() -> tuple[LeasedRebalance, Acquire]:
    """A member that has asked for the one queue there is."""
    machine = LeasedRebalance("billing", "a", Sticky())
    machine.on_listed(BROKER, NOW_MS - PROOF_GAP_MS)
    return machine, only(Acquire, machine.on_view({"orders": [QUEUE]}, ["a"], NOW_MS))


def holding(epoch: int | None = 7) -> LeasedRebalance:
    machine, acquire = asking()
    epochs = {} if epoch is None else {QUEUE: epoch}
    effects = machine.on_acquired(acquire, [QUEUE], NOW_MS, NOW_MS, epochs=epochs)
    only(StartPull, machine.on_start(only(ReadStart, effects), 5, NOW_MS))
    return machine


def renewing(machine: LeasedRebalance, now_ms: int) -> Renew:
    return only(Renew, machine.on_tick(now_ms))


def released(machine: LeasedRebalance, now_ms: int = NOW_MS) -> Unlock:
    drain = only(Drain, machine.on_stop(now_ms))
    commit = only(Commit, machine.on_drained(drain, now_ms))
    return only(Unlock, machine.on_committed(commit, is_written=True, now_ms=now_ms))


def test_an_unlock_that_failed_is_sent_again_until_the_broker_knows() -> None:
    machine = holding()
    unlock = released(machine)
    machine.on_failed(unlock, NOW_MS)
    assert not machine.is_idle
    assert none_of(Unlock, machine.on_tick(NOW_MS + UNLOCK_AGAIN_MS - 1))
    assert machine.next_ms(NOW_MS + 1) <= NOW_MS + UNLOCK_AGAIN_MS
    again = only(Unlock, machine.on_tick(NOW_MS + UNLOCK_AGAIN_MS))
    assert again.queues == (QUEUE,)
    machine.on_unlocked(again, NOW_MS + UNLOCK_AGAIN_MS)
    assert machine.is_idle


def test_an_unlock_is_not_sent_for_longer_than_the_lease_lasts() -> None:
    machine = holding()
    machine.on_failed(released(machine), NOW_MS)
    machine.on_failed(only(Unlock, machine.on_tick(NOW_MS + LEASE_MS - 1)), NOW_MS + LEASE_MS - 1)
    assert none_of(Unlock, machine.on_tick(NOW_MS + LEASE_MS + UNLOCK_AGAIN_MS))
    assert machine.is_idle


def test_a_queue_is_not_asked_for_while_its_unlock_is_unanswered() -> None:
    machine, acquire = asking()
    unlock = only(Unlock, machine.on_failed(acquire, NOW_MS))
    later_ms = NOW_MS + 400
    assert none_of(Acquire, machine.on_tick(later_ms))
    machine.on_unlocked(unlock, later_ms)
    assert only(Acquire, machine.on_tick(later_ms + 100)).queues == (QUEUE,)


def test_what_a_lost_answer_may_have_granted_is_given_back() -> None:
    machine, acquire = asking()
    assert only(Unlock, machine.on_failed(acquire, NOW_MS)).queues == (QUEUE,)


def test_a_request_that_never_left_needs_no_unlock() -> None:
    machine, acquire = asking()
    assert none_of(Unlock, machine.on_failed(acquire, NOW_MS, may_have_happened=False))


def test_a_queue_given_up_while_its_renewal_was_lost_is_unlocked_once_more() -> None:
    machine = holding()
    renew = renewing(machine, NOW_MS + RENEW_EVERY_MS)
    machine.on_unlocked(released(machine, NOW_MS + RENEW_EVERY_MS), NOW_MS + RENEW_EVERY_MS)
    assert only(Unlock, machine.on_failed(renew, NOW_MS + RENEW_EVERY_MS + 900)).queues == (QUEUE,)


@pytest.mark.parametrize("is_granted", [True, False], ids=["granted", "lost"])
def test_a_queue_whose_renewal_ended_beside_its_unlock_is_unlocked_once_more_before_it_is_asked_for(
    *, is_granted: bool
) -> None:
    """Found by `trimtab sim swarm --first-seed 91969`: the broker took the unlock first, and the queue was with nobody for a minute."""
    machine = holding()
    now_ms = NOW_MS + RENEW_EVERY_MS
    renew = renewing(machine, now_ms)
    unlock = released(machine, now_ms)
    ended = (
        machine.on_renewed(renew, [QUEUE], now_ms, now_ms) if is_granted else machine.on_failed(renew, now_ms)
    )
    assert none_of(Unlock, ended)
    machine.on_unlocked(unlock, now_ms + 10)
    assert not machine.is_idle
    again = only(Unlock, machine.on_tick(now_ms + 25))
    assert again.queues == (QUEUE,)
    machine.on_unlocked(again, now_ms + 35)
    assert machine.is_idle


def test_a_renewal_under_another_epoch_makes_the_member_look_at_the_offset() -> None:
    machine = holding(epoch=7)
    now_ms = NOW_MS + RENEW_EVERY_MS
    effects = machine.on_renewed(renewing(machine, now_ms), [QUEUE], now_ms, now_ms, epochs={QUEUE: 9})
    recheck = only(Recheck, effects)
    assert not machine.may_hand_out(QUEUE, now_ms)
    assert not machine.may_commit(QUEUE, now_ms)
    machine.on_rechecked(recheck, is_unchanged=True, now_ms=now_ms)
    assert machine.may_hand_out(QUEUE, now_ms)
    found = machine.holding(QUEUE)
    assert found is not None
    assert found.epoch == 9


def test_a_renewal_under_the_same_epoch_changes_nothing() -> None:
    machine = holding(epoch=7)
    now_ms = NOW_MS + RENEW_EVERY_MS
    effects = machine.on_renewed(renewing(machine, now_ms), [QUEUE], now_ms, now_ms, epochs={QUEUE: 7})
    assert none_of(Recheck, effects)
    assert machine.may_hand_out(QUEUE, now_ms + TRUST_MS - 1)


def test_whoever_keeps_the_holding_hears_of_every_end_of_its_lease() -> None:
    """Handlers' keepers do: they ask it before every message, and look up nothing."""

    def kept(machine: LeasedRebalance) -> Holding:
        found = machine.holding(QUEUE)
        assert found is not None
        assert found.may_hand_out(NOW_MS)
        return found

    lapsing = kept(holding())
    assert lapsing.may_hand_out(NOW_MS + TRUST_MS - 1)
    assert not lapsing.may_hand_out(NOW_MS + TRUST_MS)

    machine = holding()
    cut_off = kept(machine)
    machine.on_connection_lost(BROKER, NOW_MS)
    assert not cut_off.may_hand_out(NOW_MS)

    machine = holding()
    lost = kept(machine)
    machine.on_renewed(renewing(machine, NOW_MS + RENEW_EVERY_MS), [], NOW_MS, NOW_MS)
    assert not lost.may_hand_out(NOW_MS)

    machine = holding()
    leaving = kept(machine)
    machine.on_stop(NOW_MS)
    assert not leaving.may_hand_out(NOW_MS)


def test_a_holding_that_was_kept_goes_on_with_every_renewal() -> None:
    machine = holding()
    found = machine.holding(QUEUE)
    assert found is not None
    now_ms = NOW_MS + RENEW_EVERY_MS
    machine.on_renewed(renewing(machine, now_ms), [QUEUE], now_ms, now_ms)
    assert found.may_hand_out(now_ms + TRUST_MS - 1)
    assert not found.may_hand_out(now_ms + TRUST_MS)


def lapsed_while_draining() -> tuple[LeasedRebalance, Drain, int]:
    """The connection is lost while handlers end, and the lease is granted again over a new one."""
    machine = holding(epoch=None)
    drain = only(Drain, machine.on_moved(QUEUE, NOW_MS))
    machine.on_connection_lost(BROKER, NOW_MS + 10)
    machine.on_listed(BROKER, NOW_MS + 20)
    now_ms = NOW_MS + 20 + PROOF_GAP_MS
    machine.on_renewed(renewing(machine, now_ms), [QUEUE], now_ms, now_ms)
    return machine, drain, now_ms


def test_a_queue_whose_lease_lapsed_while_it_was_given_up_is_written_only_if_nobody_else_held_it() -> None:
    machine, drain, now_ms = lapsed_while_draining()
    assert not machine.may_commit(QUEUE, now_ms)
    recheck = only(Recheck, machine.on_drained(drain, now_ms))
    assert isinstance(machine.on_rechecked(recheck, is_unchanged=True, now_ms=now_ms)[0], Commit)
    assert machine.may_commit(QUEUE, now_ms)


def test_a_queue_that_somebody_else_held_while_it_was_given_up_is_not_written() -> None:
    machine, drain, now_ms = lapsed_while_draining()
    recheck = only(Recheck, machine.on_drained(drain, now_ms))
    effects = machine.on_rechecked(recheck, is_unchanged=False, now_ms=now_ms)
    assert none_of(Commit, effects)
    assert only(Abandon, effects).queue == only(Unlock, effects).queues[0] == QUEUE


def test_a_queue_given_up_before_it_is_known_whether_somebody_else_held_it_is_not_written_unasked() -> None:
    """Found by `trimtab sim swarm --first-seed 2708`: the group was taken back to an old offset."""
    machine = holding(epoch=None)
    machine.on_connection_lost(BROKER, NOW_MS + 10)
    machine.on_listed(BROKER, NOW_MS + 20)
    now_ms = NOW_MS + 20 + PROOF_GAP_MS
    first = only(Recheck, machine.on_renewed(renewing(machine, now_ms), [QUEUE], now_ms, now_ms))
    drain = only(Drain, machine.on_stop(now_ms))
    assert machine.on_rechecked(first, is_unchanged=False, now_ms=now_ms) == []
    assert not machine.may_commit(QUEUE, now_ms)
    again = only(Recheck, machine.on_drained(drain, now_ms))
    assert none_of(Commit, machine.on_rechecked(again, is_unchanged=False, now_ms=now_ms))


def test_where_to_start_is_asked_again_if_the_lease_lapsed_meanwhile() -> None:
    machine, acquire = asking()
    first = only(ReadStart, machine.on_acquired(acquire, [QUEUE], NOW_MS, NOW_MS))
    machine.on_connection_lost(BROKER, NOW_MS + 10)
    machine.on_listed(BROKER, NOW_MS + 20)
    now_ms = NOW_MS + 20 + PROOF_GAP_MS
    again = only(ReadStart, machine.on_renewed(renewing(machine, now_ms), [QUEUE], now_ms, now_ms))
    assert machine.on_start(first, 5, now_ms) == []
    assert only(StartPull, machine.on_start(again, 9, now_ms)).offset == 9


@pytest.mark.parametrize(("up_ms", "waits_ms"), [(TRUST_MS, 0), (TRUST_MS - 1, PROOF_GAP_MS)])
def test_a_newcomer_waits_at_a_broker_that_was_started_lately(up_ms: int, waits_ms: int) -> None:
    """Found by `trimtab sim swarm --first-seed 1195`: the former holder had not seen its connection end yet."""
    machine = LeasedRebalance("billing", "a", Sticky())
    ask = only(AskAge, machine.on_listed(BROKER, NOW_MS))
    assert none_of(Acquire, machine.on_view({"orders": [QUEUE]}, ["a"], NOW_MS))
    machine.on_age(ask, up_ms, NOW_MS)
    assert machine.trust.may_ask(BROKER, NOW_MS + waits_ms)
    assert not machine.trust.may_ask(BROKER, NOW_MS + waits_ms - 1)


def test_the_age_of_a_broker_does_not_matter_to_one_that_it_listed_before() -> None:
    machine = LeasedRebalance("billing", "a", Sticky())
    late = only(AskAge, machine.on_listed(BROKER, NOW_MS))
    machine.on_connection_lost(BROKER, NOW_MS + 10)
    assert none_of(AskAge, machine.on_listed(BROKER, NOW_MS + 20))
    machine.on_age(late, 10 * TRUST_MS, NOW_MS + 30)
    assert not machine.trust.may_ask(BROKER, NOW_MS + 30)


def test_an_id_that_was_used_before_waits_at_any_broker() -> None:
    machine = LeasedRebalance("billing", "a", Sticky(), has_new_id=False)
    assert none_of(AskAge, machine.on_listed(BROKER, NOW_MS))
    assert not machine.trust.may_ask(BROKER, NOW_MS)


def test_an_offset_refused_by_its_epoch_means_that_the_queue_is_lost() -> None:
    machine = holding(epoch=7)
    effects = machine.on_commit_refused(QUEUE, 7, NOW_MS)
    assert only(Abandon, effects).queue == QUEUE
    assert only(Happened, effects).kind is Kind.LOST
    assert machine.holding(QUEUE) is None


def test_a_refusal_of_an_earlier_lease_does_not_cost_the_present_one() -> None:
    machine = holding(epoch=9)
    assert machine.on_commit_refused(QUEUE, 7, NOW_MS) == []
    assert machine.may_hand_out(QUEUE, NOW_MS)


def test_a_member_whose_id_somebody_else_has_lets_go_of_everything_and_unlocks_nothing() -> None:
    machine = holding()
    renew = renewing(machine, NOW_MS + RENEW_EVERY_MS)
    effects = machine.on_rival("another process has this id")
    assert only(Abandon, effects).queue == QUEUE
    assert none_of(Unlock, effects)
    assert machine.on_renewed(renew, [QUEUE], NOW_MS, NOW_MS) == []
    assert none_of(Acquire, machine.on_tick(NOW_MS + 60_000))
    assert machine.is_idle


def test_a_member_whose_id_somebody_else_has_takes_nothing_that_it_asked_for() -> None:
    machine, acquire = asking()
    machine.on_rival("another process has this id")
    effects = machine.on_acquired(acquire, [QUEUE], NOW_MS, NOW_MS)
    assert none_of(ReadStart, effects)
    assert none_of(Unlock, effects)
    assert machine.holding(QUEUE) is None


def test_phases_in_which_an_offset_may_be_written() -> None:
    machine = holding()
    found = machine.holding(QUEUE)
    assert found is not None
    allowed = set()
    for phase in Phase:
        found.phase = phase
        if machine.may_commit(QUEUE, NOW_MS):
            allowed.add(phase)
    assert allowed == {Phase.HELD, Phase.DRAINING, Phase.COMMITTING}


# --- how long a lease is trusted: rules T1 to T3 of docs/leases.md ------------------------------------------------


def test_a_lease_is_trusted_from_when_its_renewal_was_sent_however_late_the_answer_is() -> None:
    machine, answer_ms = holding(), 900
    sent_ms = NOW_MS + RENEW_EVERY_MS
    machine.on_renewed(renewing(machine, sent_ms), [QUEUE], sent_ms, sent_ms + answer_ms)
    assert machine.may_hand_out(QUEUE, sent_ms + TRUST_MS - 1)
    assert not machine.may_hand_out(QUEUE, sent_ms + TRUST_MS)


def test_a_lease_is_trusted_from_when_it_was_asked_for_however_late_the_answer_is() -> None:
    machine, acquire = asking()
    start = only(ReadStart, machine.on_acquired(acquire, [QUEUE], NOW_MS, NOW_MS + 900))
    machine.on_start(start, 5, NOW_MS + 910)
    assert machine.may_hand_out(QUEUE, NOW_MS + TRUST_MS - 1)
    assert not machine.may_hand_out(QUEUE, NOW_MS + TRUST_MS)


def test_a_renewal_sent_over_a_connection_that_was_lost_since_does_not_count() -> None:
    machine = holding()
    sent_ms = NOW_MS + RENEW_EVERY_MS
    renew = renewing(machine, sent_ms)
    machine.on_connection_lost(BROKER, sent_ms + 10)
    machine.on_listed(BROKER, sent_ms + 20)
    machine.on_renewed(renew, [QUEUE], sent_ms, sent_ms + 20 + PROOF_GAP_MS)
    assert not machine.trust.is_trusted(QUEUE, sent_ms + 20 + PROOF_GAP_MS)


def test_a_renewal_does_not_count_when_the_last_heartbeat_was_long_ago() -> None:
    machine = holding()
    heard_ms = NOW_MS - PROOF_GAP_MS
    last_ms = heard_ms + 60_000
    machine.on_renewed(renewing(machine, last_ms), [QUEUE], last_ms, last_ms)
    assert machine.trust.is_trusted(QUEUE, last_ms)
    assert none_of(Renew, machine.on_tick(last_ms + RENEW_EVERY_MS))
    assert not machine.trust.on_granted(QUEUE, last_ms + 1)
    machine.on_listed(BROKER, last_ms + RENEW_EVERY_MS)
    assert machine.trust.on_granted(QUEUE, last_ms + RENEW_EVERY_MS)


def test_one_that_said_goodbye_renews_nothing() -> None:
    """Who is not listed may be taken over from; a renewal after that would be granted what is somebody else's soon."""
    machine = holding()
    machine.on_stop(NOW_MS)
    machine.on_farewell()
    assert none_of(Renew, machine.on_tick(NOW_MS + RENEW_EVERY_MS))


def test_a_lease_that_lapses_is_told_once() -> None:
    machine = holding()
    fenced = only(Happened, machine.on_tick(NOW_MS + TRUST_MS))
    assert (fenced.kind, fenced.queue) == (Kind.FENCED, QUEUE)
    assert none_of(Happened, machine.on_tick(NOW_MS + TRUST_MS + 1))


# --- not a queue for everybody ---------------------------------------------------------------------------------


def idle_beside(stable: tuple[str, ...]) -> LeasedRebalance:
    """Two members and one queue, which the other one has."""
    machine = LeasedRebalance("billing", "a", Sticky())
    machine.on_listed(BROKER, NOW_MS - PROOF_GAP_MS)
    acquire = only(Acquire, machine.on_view({"orders": [QUEUE]}, ["a", "b"], NOW_MS, stable=stable))
    machine.on_acquired(acquire, [], NOW_MS, NOW_MS)
    return machine


def sees(machine: LeasedRebalance, members: list[str], now_ms: int) -> list[LeasedEffect]:
    return machine.on_view({"orders": [QUEUE]}, members, now_ms, stable=set(members) & {"b"})


def asks_within(machine: LeasedRebalance, from_ms: int, until_ms: int) -> bool:
    return not all(none_of(Acquire, machine.on_tick(ms)) for ms in range(from_ms, until_ms, 25))


def test_one_without_a_queue_leaves_that_of_a_restarting_member_alone() -> None:
    machine = idle_beside(("b",))
    gone_ms, back_ms = NOW_MS + 1_000, NOW_MS + 3_000
    assert none_of(Acquire, sees(machine, ["a"], gone_ms))
    assert not asks_within(machine, gone_ms, back_ms)
    assert none_of(Acquire, sees(machine, ["a", "b"], back_ms))
    assert not asks_within(machine, back_ms, back_ms + PROOF_GAP_MS + 500)


def test_one_without_a_queue_takes_that_of_a_member_that_does_not_come_back() -> None:
    machine = idle_beside(("b",))
    sees(machine, ["a"], NOW_MS)
    assert not asks_within(machine, NOW_MS, NOW_MS + RESTART_GRACE_MS)
    assert asks_within(machine, NOW_MS + RESTART_GRACE_MS, NOW_MS + RESTART_GRACE_MS + 50)


def test_one_without_a_queue_waits_for_nobody_whose_id_is_made_anew() -> None:
    assert not none_of(Acquire, sees(idle_beside(()), ["a"], NOW_MS + 1_000))
