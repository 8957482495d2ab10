"""Some of a group's queues, and questions for many of them."""

import random
from collections.abc import Set as AbstractSet

from trimtab.balance.asking import Asked, Asking
from trimtab.balance.holdings import Holding, Holdings, Phase
from trimtab.balance.leased_effects import Acquire
from trimtab.balance.marks import Marks
from trimtab.model import MessageQueue

QUEUES = tuple(MessageQueue("orders", f"broker-{number % 3}", number) for number in range(30))
STRANGER = MessageQueue("bills", "broker-0", 1)


def equal(one: AbstractSet[MessageQueue], other: AbstractSet[MessageQueue]) -> bool:
    return one == other and other == one


def test_marks_are_a_set_of_queues() -> None:
    chance = random.Random(7)
    marks, plain = Marks(QUEUES), set[MessageQueue]()
    for _ in range(500):
        some = chance.sample(QUEUES, 3)
        if chance.random() < 0.5:
            marks.add(some)
            plain.update(some)
        else:
            marks.discard(some)
            plain.difference_update(some)
        assert equal(marks, plain)
        assert len(marks) == len(plain)
        assert set(marks) == plain
        assert marks.without(QUEUES) == [queue for queue in QUEUES if queue not in plain]
        assert marks & set(some) == plain & set(some)
        assert marks.isdisjoint(some) == plain.isdisjoint(some)
    marks.clear()
    assert not marks


def test_a_queue_of_another_group_is_never_marked() -> None:
    marks = Marks(QUEUES, [STRANGER])
    marks.discard([STRANGER])
    assert STRANGER not in marks
    assert not marks
    assert marks.without([STRANGER]) == [STRANGER]


def test_marks_as_they_are_now_stay_so() -> None:
    marks = Marks(QUEUES, QUEUES[:3])
    then = marks.as_now()
    marks.clear()
    marks.add(QUEUES[5:])
    assert equal(then, set(QUEUES[:3]))


def test_a_question_is_asked_until_it_is_answered_and_answered_once() -> None:
    asking = Asking()
    first, second = Acquire("broker-0", QUEUES[0:9:3]), Acquire("broker-1", QUEUES[1:9:3])
    asking.ask(first, 10, "start")
    asking.ask(second, 20, "start")
    assert len(asking) == 6
    assert set(asking) == {*first.queues, *second.queues}
    assert asking.answered(first) == Asked(10, "start")
    assert asking.answered(first) is None
    assert QUEUES[0] not in asking
    assert QUEUES[1] in asking
    asking.clear()
    assert (len(asking), asking.answered(second)) == (0, None)


def test_holdings_know_their_brokers() -> None:
    holdings = Holdings()
    for queue in (*QUEUES[:4], QUEUES[0]):
        holdings[queue] = Holding(queue, Phase.HELD, 0)
    assert holdings.brokers == {"broker-0": 2, "broker-1": 1, "broker-2": 1}
    assert holdings.by_broker(["broker-0"]) == {"broker-0": [QUEUES[0], QUEUES[3]]}
    del holdings[QUEUES[1]]
    assert holdings.brokers == {"broker-0": 2, "broker-2": 1}
