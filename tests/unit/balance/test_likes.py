"""In which order members like queues: made late and from what is remembered, and the same as made at once."""

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from trimtab.balance import known_queues
from trimtab.balance.known_queues import KnownQueues, known
from trimtab.balance.marks import Marks
from trimtab.balance.strategies import Sticky, View
from trimtab.balance.strategies.likes import in_order, others_in_order, untried_in_order
from trimtab.balance.strategies.places import member_place, queue_place
from trimtab.balance.strategies.plans import QueuesLater
from trimtab.model import MessageQueue

RUNS = 300


def plainly(view: View, queues: Iterable[MessageQueue], beside: Iterable[MessageQueue]) -> list[MessageQueue]:
    """The same, said at once: by what is likely to be free, then topics in turn, then the member's own order."""
    mine = member_place(view.group, view.me)
    holders = view.holders or {}
    ranked = {queue: (queue in view.refused, holders.get(queue, view.me) != view.me) for queue in queues}
    turns = Counter(queue.topic for queue in beside)
    keys = {}
    for queue in sorted(ranked, key=lambda queue: (ranked[queue], queue_place(queue) ^ mine)):
        keys[queue] = ranked[queue], turns[queue.topic]
        turns[queue.topic] += 1
    return sorted(keys, key=keys.__getitem__)


def random_view(chance: random.Random) -> View:
    topics = ["orders", "bills", "%RETRY%g"][: chance.randint(1, 3)]
    queues = tuple(
        MessageQueue(topic, f"broker-{broker}", number)
        for topic in topics
        for broker in range(chance.randint(1, 3))
        for number in range(chance.randint(1, 8))
    )
    members = tuple(f"m{number}" for number in range(chance.randint(1, 6)))
    me = chance.choice(members)
    some = [queue for queue in queues if chance.random() < 0.3]
    refused = [queue for queue in queues if chance.random() < chance.choice((0.0, 0.5))]
    holders = {queue: chance.choice(members) for queue in queues if chance.random() < 0.5}
    return View(
        "g", me, queues, members,
        held=frozenset(some[: chance.randint(0, 9)]),
        holders=chance.choice((None, holders)),
        refused=chance.choice((frozenset(refused), Marks(queues, refused))),
    )  # fmt: skip


def test_an_order_made_of_what_is_remembered_is_the_one_made_at_once() -> None:
    for seed in range(RUNS):
        view = random_view(random.Random(seed))
        others = [queue for queue in view.queues if queue not in view.held]
        expected = plainly(view, others, view.held)
        assert others_in_order(view, view.held, view.held) == expected, f"seed {seed}"
        untried = [queue for queue in expected if queue not in view.refused]
        assert list(untried_in_order(view, view.held, view.held)) == untried, f"seed {seed}"
        assert in_order(view, others) == plainly(view, others, ()), f"seed {seed}"


def test_a_plan_says_how_many_queues_it_names_before_it_names_them() -> None:
    for seed in range(RUNS):
        plan = Sticky().plan(random_view(random.Random(seed)))
        count = len(plan.acquire)
        assert count == len(tuple(plan.acquire)), f"seed {seed}"
        assert plan.acquire_max <= count


def test_queues_made_later_are_made_once_and_equal_those_made_at_once() -> None:
    queues = tuple(MessageQueue("orders", "broker-0", number) for number in range(5))
    calls = []

    def make() -> tuple[MessageQueue, ...]:
        calls.append(1)
        return queues

    later = QueuesLater(5, make, make)
    assert (len(later), calls) == (5, [])
    assert later == queues
    assert later == QueuesLater(5, lambda: list(queues), make)
    assert later != queues[:4]
    assert (later[0], later[1:3], hash(later), repr(later)) == (
        queues[0],
        queues[1:3],
        hash(queues),
        repr(queues),
    )
    assert len(calls) == 1


def test_two_equal_tuples_of_queues_are_known_one_by_one_and_few_are_remembered() -> None:
    first, second = ([MessageQueue("orders", "broker-0", number) for number in range(3)] for _ in range(2))
    one, other = tuple(first), tuple(second)
    assert known(one) is known(one)
    assert known(one) is not known(other)
    for number in range(known_queues.REMEMBERED_TUPLES_MAX):
        known((MessageQueue("bills", "broker-0", number),))
    assert all(kept.queues is not one for kept in known_queues._last)


def test_orders_are_remembered_up_to_a_limit_and_forgetting_changes_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queues = tuple(MessageQueue("orders", "broker-0", number) for number in range(10))
    all_ = KnownQueues(queues)
    before = [all_.ordered(member, queue_place) for member in range(20)]
    monkeypatch.setattr(known_queues, "REMEMBERED_PLACES_MAX", 50)
    few = KnownQueues(queues)
    assert [few.ordered(member, queue_place) for member in range(20)] == before
    assert len(few._orders) == 5
