"""The rebalance machine, event by event: points C6 to C9."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.balance.rebalance import SILENT_PULL_MS_MAX, Phase, Rebalance
from trimtab.balance.rebalance_effects import (
    Changed,
    Drop,
    Effect,
    Lock,
    ReadStart,
    Release,
    ShareFailed,
    StartPull,
    Unlock,
    UnlockLater,
    Why,
)
from trimtab.balance.strategies import Averagely
from trimtab.model import MessageQueue

TOPIC = "orders"


def queues(count: int, topic: str = TOPIC) -> list[MessageQueue]:
    return [MessageQueue(topic, "broker-a", number) for number in range(count)]


def machine(me: str = "c1", *, ordered: bool = False, broadcast: bool = False) -> Rebalance:
    return Rebalance("g", me, Averagely(), is_ordered=ordered, is_broadcast=broadcast)


class Answers:
    """Answers every question at once; remembers everything that was wanted."""

    def __init__(self, machine: Rebalance) -> None:
        self.machine = machine
        self.offset = 0
        self.refused: set[MessageQueue] = set()
        self.busy: set[MessageQueue] = set()
        self.has_messages = False
        self.done: list[Effect] = []

    def view(
        self, count: int, members: Sequence[str] | None, now_ms: int = 0, topic: str = TOPIC
    ) -> list[Effect]:
        return self.do(self.machine.on_view(topic, queues(count, topic), members, now_ms), now_ms)

    def do(self, effects: list[Effect], now_ms: int = 0) -> list[Effect]:
        seen = []
        waiting = list(effects)
        while waiting:
            effect = waiting.pop(0)
            seen.append(effect)
            if isinstance(effect, Lock):
                granted = [queue for queue in effect.queues if queue not in self.refused]
                waiting += self.machine.on_locked(effect, granted, now_ms)
            elif isinstance(effect, ReadStart):
                waiting += self.machine.on_start(effect, self.offset, now_ms)
            elif isinstance(effect, Release):
                waiting += self.machine.on_released(
                    effect,
                    was_released=effect.queue not in self.busy,
                    has_messages=self.has_messages,
                    now_ms=now_ms,
                )
        self.done += seen
        return seen


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_c8_a_new_queue_is_started_once_and_the_change_is_told_once() -> None:
    answers = Answers(machine())
    answers.offset = 42
    effects = answers.view(2, ["c1"])
    assert [effect for effect in effects if isinstance(effect, StartPull)] == [
        StartPull(q, 42) for q in queues(2)
    ]
    assert kinds(effects).count("Changed") == 1
    assert answers.machine.held() == tuple(queues(2))


def test_c9_the_line_names_strategy_group_topic_client_and_numbers() -> None:
    answers = Answers(machine("c2"))
    effects = answers.view(8, ["c3", "c1", "c2"])
    (change,) = [effect for effect in effects if isinstance(effect, Changed)]
    assert (change.queue_count, change.member_count, change.mine) == (8, 3, tuple(queues(8)[3:6]))
    assert str(change) == (
        "rebalanced: strategy=AVG group=g topic=orders clientId=c2 queues=8 members=3 mine=3"
        " [broker-a:3, broker-a:4, broker-a:5]"
    )


def test_c9_nothing_changed_means_no_work_and_no_line() -> None:
    answers = Answers(machine())
    answers.view(4, ["c1"])
    assert answers.view(4, ["c1"]) == []


def test_c7_a_queue_that_is_no_longer_mine_is_dropped() -> None:
    answers = Answers(machine("c1"))
    answers.view(4, ["c1"])
    effects = answers.view(4, ["c1", "c2"])
    assert effects[:2] == [Drop(queue, Why.NOT_MINE) for queue in queues(4)[2:]]
    assert kinds(effects[2:]) == ["Changed"]
    assert answers.machine.held() == tuple(queues(4)[:2])


def test_c7_a_queue_without_a_pull_for_120_s_is_dropped_and_taken_anew() -> None:
    answers = Answers(machine())
    answers.view(2, ["c1"], now_ms=0)
    answers.machine.on_pull(queues(2)[0], SILENT_PULL_MS_MAX)
    assert answers.view(2, ["c1"], now_ms=SILENT_PULL_MS_MAX) == []
    effects = answers.view(2, ["c1"], now_ms=SILENT_PULL_MS_MAX + 1)
    assert kinds(effects) == ["Drop", "ReadStart", "StartPull", "Changed"]
    assert effects[0] == Drop(queues(2)[1], Why.SILENT)


def test_c7_lite_pull_keeps_a_silent_queue() -> None:
    answers = Answers(Rebalance("g", "c1", Averagely(), is_push=False))
    answers.view(1, ["c1"], now_ms=0)
    assert answers.view(1, ["c1"], now_ms=10 * SILENT_PULL_MS_MAX) == []


def test_c8_an_ordered_queue_is_locked_before_it_is_started_and_skipped_when_refused() -> None:
    answers = Answers(machine(ordered=True))
    answers.refused = {queues(3)[1]}
    effects = answers.view(3, ["c1"])
    assert kinds(effects)[:1] == ["Lock"]
    assert answers.machine.held() == (queues(3)[0], queues(3)[2])
    assert kinds(effects).count("Changed") == 1
    answers.refused = set()
    assert kinds(answers.view(3, ["c1"])) == ["Lock", "ReadStart", "StartPull", "Changed"]
    assert set(answers.machine.held()) == set(queues(3))


def test_c8_all_refused_is_no_change() -> None:
    answers = Answers(machine(ordered=True))
    answers.refused = set(queues(2))
    assert kinds(answers.view(2, ["c1"])) == ["Lock"]
    assert answers.machine.held() == ()


def test_c8_a_negative_start_is_skipped_until_the_next_round() -> None:
    answers = Answers(machine())
    answers.offset = -1
    assert kinds(answers.view(1, ["c1"])) == ["ReadStart"]
    assert answers.machine.held() == ()
    answers.offset = 0
    assert kinds(answers.view(1, ["c1"])) == ["ReadStart", "StartPull", "Changed"]


def test_c7_an_ordered_queue_is_unlocked_only_after_its_handler_let_go() -> None:
    answers = Answers(machine("c2", ordered=True))
    answers.view(1, ["c2"])
    answers.busy = set(queues(1))
    assert kinds(answers.view(1, ["c1", "c2"])) == ["Release"]
    assert answers.machine.held() == ()
    holding = answers.machine.holding(queues(1)[0])
    assert holding is not None
    assert holding.phase is Phase.LEAVING
    answers.busy = set()
    assert kinds(answers.view(1, ["c1", "c2"])) == ["Release", "Unlock", "Changed"]
    assert answers.machine.holding(queues(1)[0]) is None


def test_c7_with_messages_in_hand_the_unlock_comes_20_s_later_unless_the_queue_is_back() -> None:
    answers = Answers(machine("c2", ordered=True))
    answers.view(1, ["c2"])
    answers.has_messages = True
    effects = answers.view(1, ["c1", "c2"])
    assert UnlockLater(queues(1)[0], 20_000) in effects
    assert answers.machine.on_unlock_due(queues(1)[0]) == [Unlock(queues(1)[0])]
    answers.view(1, ["c2"])
    assert answers.machine.on_unlock_due(queues(1)[0]) == []


def test_a_stuck_ordered_queue_that_is_mine_again_is_taken_anew() -> None:
    answers = Answers(machine("c2", ordered=True))
    answers.view(1, ["c2"])
    answers.busy = set(queues(1))
    answers.view(1, ["c1", "c2"])
    answers.busy = set()
    assert kinds(answers.view(1, ["c2"])) == ["Release", "Lock", "ReadStart", "StartPull", "Changed"]
    assert answers.machine.held() == tuple(queues(1))


def test_c6_broadcasting_takes_all_queues_without_members_or_locks() -> None:
    answers = Answers(machine(broadcast=True, ordered=True))
    effects = answers.view(3, None)
    assert kinds(effects).count("StartPull") == 3
    assert "Lock" not in kinds(effects)
    assert answers.machine.held() == tuple(queues(3))


def test_c6_queues_of_topics_no_longer_subscribed_are_dropped() -> None:
    answers = Answers(machine())
    answers.view(2, ["c1"], topic="orders")
    answers.view(1, ["c1"], topic="%RETRY%g")
    effects = answers.do(answers.machine.on_subscriptions(["%RETRY%g"], 0))
    assert effects == [Drop(queue, Why.UNSUBSCRIBED) for queue in queues(2, "orders")]
    assert answers.machine.held() == tuple(queues(1, "%RETRY%g"))


@pytest.mark.parametrize("view", [(None, ["c1"]), (queues(2), None), (None, None)])
def test_what_cannot_be_seen_changes_nothing(
    view: tuple[list[MessageQueue] | None, list[str] | None],
) -> None:
    answers = Answers(machine())
    answers.view(2, ["c1"])
    assert answers.machine.on_view(TOPIC, view[0], view[1], 0) == []
    assert answers.machine.held() == tuple(queues(2))


def test_a_strategy_that_raises_costs_no_queue() -> None:
    class Broken:
        name = "BROKEN"

        def allocate(
            self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
        ) -> tuple[MessageQueue, ...]:
            raise ZeroDivisionError("no")

    answers = Answers(machine())
    answers.view(2, ["c1"])
    answers.machine.strategy = Broken()
    assert answers.view(2, ["c1"]) == [ShareFailed(TOPIC, "BROKEN", "ZeroDivisionError: no")]
    assert answers.machine.held() == tuple(queues(2))


def test_c2_no_queues_or_no_members_keep_what_is_held() -> None:
    answers = Answers(machine())
    answers.view(2, ["c1"])
    assert kinds(answers.view(0, ["c1"])) == ["ShareFailed"]
    assert kinds(answers.view(2, [])) == ["ShareFailed"]
    assert answers.machine.held() == tuple(queues(2))


def test_a_late_answer_to_an_old_question_is_dropped() -> None:
    one = machine("c2")
    (question,) = one.on_view(TOPIC, queues(1), ["c2"], 0)
    assert isinstance(question, ReadStart)
    assert one.on_view(TOPIC, queues(1), ["c1", "c2"], 0) == []  # it is c1's by now, and was never begun
    assert one.on_start(question, 5, 0) == []
    assert one.held() == ()
    (again,) = one.on_view(TOPIC, queues(1), ["c2"], 0)
    assert one.on_start(question, 5, 0) == []
    assert isinstance(again, ReadStart)
    assert one.on_start(again, 9, 0)[0] == StartPull(queues(1)[0], 9)


def test_a_lock_that_is_granted_too_late_is_given_back() -> None:
    one = machine("c2", ordered=True)
    (question,) = one.on_view(TOPIC, queues(1), ["c2"], 0)
    assert isinstance(question, Lock)
    assert one.on_view(TOPIC, queues(1), ["c1", "c2"], 0) == []
    assert one.on_locked(question, queues(1), 0) == [Unlock(queues(1)[0])]


def test_a_queue_whose_offset_was_set_elsewhere_is_let_go_and_taken_in_the_next_round() -> None:
    answers = Answers(machine())
    answers.view(1, ["c1"])
    assert answers.do(answers.machine.on_moved(queues(1)[0], 0)) == [Drop(queues(1)[0], Why.MOVED)]
    assert kinds(answers.view(1, ["c1"])) == ["ReadStart", "StartPull", "Changed"]


views = st.lists(
    st.tuples(st.integers(1, 9), st.sets(st.sampled_from(["c0", "c1", "c2", "c3"]), min_size=1)), max_size=12
)


@given(views, st.booleans())
def test_c1_after_any_views_the_members_share_without_overlap(
    history: list[tuple[int, set[str]]], ordered: bool
) -> None:
    """Every queue exactly once among the members of the last view; never two pull requests for one queue in a member."""
    members = {me: Answers(machine(me, ordered=ordered)) for me in ("c0", "c1", "c2", "c3")}
    for count, present in history:
        for me, answers in members.items():
            effects = answers.view(count, sorted(present))
            started = [effect.queue for effect in effects if isinstance(effect, StartPull)]
            left = [effect.queue for effect in effects if isinstance(effect, Drop | Release)]
            assert len(started) == len(set(started))
            assert kinds(effects).count("Changed") == (1 if started or left else 0)
            assert (me in present) or answers.machine.held() == ()
        held = [queue for answers in members.values() for queue in answers.machine.held()]
        assert sorted(held, key=lambda queue: queue.queue_id) == queues(count)
