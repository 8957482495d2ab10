"""Whatever the view: every queue exactly once, shares even where promised, the same answer from everybody."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.balance.lease_table import LeaseTable
from trimtab.balance import metrics
from trimtab.balance.order import sorted_names, sorted_queues
from trimtab.balance.strategies import (
    Averagely,
    ByCircle,
    ConsistentHash,
    Lag,
    Load,
    Planner,
    Rendezvous,
    Sticky,
    Strategy,
    Weighted,
)
from trimtab.model import MessageQueue

EVEN: list[Strategy] = [Averagely(), ByCircle(), Rendezvous()]
ALL: list[Strategy] = [*EVEN, ConsistentHash()]

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
member_lists = st.lists(names, min_size=1, max_size=12, unique=True).map(sorted_names)
queue_lists = st.lists(
    st.builds(MessageQueue, names, names, st.integers(0, 50)), min_size=1, max_size=60, unique=True
).map(sorted_queues)


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: str(strategy.name))
@given(queues=queue_lists, members=member_lists)
def test_every_queue_goes_to_exactly_one_member(
    strategy: Strategy, queues: tuple[MessageQueue, ...], members: tuple[str, ...]
) -> None:
    shares = [strategy.allocate("g", me, queues, members) for me in members]
    assert sorted_queues(queue for share in shares for queue in share) == queues


@pytest.mark.parametrize("strategy", EVEN, ids=lambda strategy: str(strategy.name))
@given(queues=queue_lists, members=member_lists)
def test_shares_differ_by_at_most_one(
    strategy: Strategy, queues: tuple[MessageQueue, ...], members: tuple[str, ...]
) -> None:
    sizes = [len(strategy.allocate("g", me, queues, members)) for me in members]
    assert max(sizes) - min(sizes) <= 1


@given(queues=queue_lists, members=member_lists, order=st.randoms(use_true_random=False))
def test_rendezvous_does_not_depend_on_any_order(
    queues: tuple[MessageQueue, ...], members: tuple[str, ...], order: random.Random
) -> None:
    shuffled_queues = order.sample(queues, len(queues))
    shuffled_members = order.sample(members, len(members))
    for me in members:
        one = Rendezvous().allocate("g", me, queues, members)
        other = Rendezvous().allocate("g", me, shuffled_queues, shuffled_members)
        assert set(one) == set(other)


@pytest.mark.parametrize("holders_known", [False, True])
@given(queues=queue_lists, start=member_lists, then=member_lists, rng=st.randoms(use_true_random=False))
def test_sticky_is_even_after_any_change(
    holders_known: bool,
    queues: tuple[MessageQueue, ...],
    start: tuple[str, ...],
    then: tuple[str, ...],
    rng: random.Random,
) -> None:
    table = LeaseTable(Sticky(), rng, holders_known=holders_known)
    table.settle(queues, start)
    before = dict(table.holders)
    table.settle(queues, then)
    shares = table.shares(then)
    assert sum(shares) == len(queues)
    assert max(shares) - min(shares) <= 1
    if holders_known or len(then) >= len(queues):
        assert metrics.moved(before, table.holders) == metrics.moved_min(before, queues, then)


@pytest.mark.parametrize("holders_known", [False, True])
@given(
    queues=queue_lists,
    weights=st.dictionaries(names, st.floats(0, 1e6), min_size=1, max_size=8).filter(
        lambda w: any(w.values())
    ),
    rng=st.randoms(use_true_random=False),
)
def test_weighted_shares_are_within_one_of_their_part(
    holders_known: bool, queues: tuple[MessageQueue, ...], weights: dict[str, float], rng: random.Random
) -> None:
    members = sorted_names(weights)
    table = LeaseTable(Weighted(weights), rng, holders_known=holders_known)
    table.settle(queues, members)
    total = sum(weights.values())
    for member, share in zip(members, table.shares(members), strict=True):
        assert abs(share - len(queues) * (weights[member] / total)) < 1.001
    assert len(table.holders) == len(queues)


@given(
    queues=queue_lists,
    members=member_lists,
    numbers=st.lists(st.integers(0, 10_000), min_size=60, max_size=60),
    moves_max=st.integers(1, 5),
    rng=st.randoms(use_true_random=False),
)
def test_lag_comes_to_rest_holds_all_and_keeps_to_its_moves(
    queues: tuple[MessageQueue, ...],
    members: tuple[str, ...],
    numbers: list[int],
    moves_max: int,
    rng: random.Random,
) -> None:
    table = LeaseTable(Sticky(), rng, holders_known=True)
    table.settle(queues, members)
    planner: Planner = Lag(moves_max=moves_max)
    table.planner = planner
    table.loads = {queue: Load(lag, lag / 100) for queue, lag in zip(queues, numbers, strict=False)}
    for _ in range(2 * len(queues)):
        before = dict(table.holders)
        changed = table.round(queues, members)
        assert metrics.moved(before, table.holders) <= moves_max
        assert len(table.holders) == len(queues)
        if not changed:
            return
    raise AssertionError("never came to rest")
