"""Issue 7, moves: `sticky` on random groups that members join and leave, with leases alone and with known holdings."""

import os
import random

import pytest

from tests.unit.balance.lease_table import LeaseTable
from trimtab.balance import metrics
from trimtab.balance.strategies import LeasedCanary, Planned, Planner, Rendezvous, Sticky, Weighted
from trimtab.balance.strategies.canary import CanarySetting
from trimtab.balance.strategies.places import in_turn
from trimtab.balance.strategies.quotas import even_quotas
from trimtab.model import MessageQueue

SIZES = [(2_000, 300), (1_999, 251), (640, 64), (64, 8), (16, 12), (10, 40), (7, 7), (1_000, 3)]


def some_queues(rng: random.Random, count: int) -> list[MessageQueue]:
    topics = [f"t{number}" for number in range(rng.randint(1, 5))]
    return [MessageQueue(topics[at % len(topics)], f"b{at % 4}", at) for at in range(count)]


def some_ids(rng: random.Random, count: int) -> list[str]:
    return [
        f"10.0.0.{rng.randrange(256)}@{rng.randrange(60_000)}#{rng.randrange(10**15)}" for _ in range(count)
    ]


def changed(rng: random.Random, members: list[str]) -> list[str]:
    leaves = rng.randint(0, min(50, len(members) - 1))
    joins = rng.randint(0 if leaves else 1, 50)
    return rng.sample(members, len(members) - leaves) + some_ids(rng, joins)


def with_odd_right(members: list[str], queues: int) -> set[str]:
    return set(in_turn("g", tuple(members))[: queues % len(members)])


def settled(queues: list[MessageQueue], members: list[str]) -> dict[MessageQueue, str]:
    """A state in which everybody has its quota."""
    quotas = even_quotas("g", tuple(members), len(queues))
    slots = [member for member, quota in quotas.items() for _ in range(quota)]
    return dict(zip(queues, slots, strict=False))


def check_a_change(rng: random.Random, queue_count: int, member_count: int, holders_known: bool) -> None:
    queues, former = some_queues(rng, queue_count), some_ids(rng, member_count)
    before = settled(queues, former)
    table = LeaseTable(Sticky(), rng, holders_known=holders_known)
    table.holders = dict(before)
    members = changed(rng, former)
    table.settle(queues, members)
    shares = table.shares(members)
    assert sum(shares) == queue_count
    assert max(shares) - min(shares) <= 1
    fewest = metrics.moved_min(before, queues, members)
    made = metrics.moved(before, table.holders)
    if holders_known or queue_count <= len(members):
        assert made == fewest
    else:
        rights = with_odd_right(former, queue_count) ^ with_odd_right(members, queue_count)
        assert fewest <= made <= fewest + len(rights.intersection(members))


@pytest.mark.parametrize("holders_known", [False, True], ids=["leases-alone", "holders-known"])
@pytest.mark.parametrize(("queue_count", "member_count"), SIZES)
def test_sticky_moves_little_more_than_it_must(
    queue_count: int, member_count: int, holders_known: bool
) -> None:
    rng = random.Random(f"{queue_count}/{member_count}")
    for _ in range(3 if queue_count * member_count < 100_000 else 1):
        check_a_change(rng, queue_count, member_count, holders_known)


@pytest.mark.parametrize("holders_known", [False, True], ids=["leases-alone", "holders-known"])
def test_sticky_moves_little_in_groups_of_any_size(holders_known: bool) -> None:
    rng = random.Random("any size")
    queues_max, members_max, views = (2_000, 300, 60) if os.environ.get("TRIMTAB_FULL") else (200, 80, 30)
    for _ in range(views):
        check_a_change(rng, rng.randint(1, queues_max), rng.randint(1, members_max), holders_known)


def test_nothing_moves_while_nothing_changes() -> None:
    rng = random.Random(1)
    queues, members = some_queues(rng, 100), some_ids(rng, 7)
    for known in (False, True):
        table = LeaseTable(Sticky(), rng, holders_known=known)
        table.settle(queues, members)
        assert not table.round(queues, members[::-1])


def test_with_leases_alone_two_rounds_settle_a_change() -> None:
    rng = random.Random(2)
    queues, members = some_queues(rng, 640), some_ids(rng, 64)
    table = LeaseTable(Sticky(), rng, holders_known=False)
    table.settle(queues, members)
    assert table.settle(queues, members[5:] + some_ids(rng, 9)) <= 2


def test_a_holding_of_several_topics_stays_of_several_topics() -> None:
    rng = random.Random(3)
    queues = [MessageQueue(f"t{topic}", "b", number) for topic in range(4) for number in range(8)]
    table = LeaseTable(Sticky(), rng, holders_known=True)
    table.settle(queues, ["a"])
    members = ["a", "b", "c", "d"]
    table.settle(queues, members)
    for member in members:
        topics = [queue.topic for queue, holder in table.holders.items() if holder == member]
        assert sorted(topics) == ["t0", "t0", "t1", "t1", "t2", "t2", "t3", "t3"]


@pytest.mark.parametrize("holders_known", [False, True])
def test_any_start_however_uneven_is_brought_to_even_shares(holders_known: bool) -> None:
    rng = random.Random(4)
    queues, members = some_queues(rng, 101), some_ids(rng, 10)
    for _ in range(20):
        table = LeaseTable(Sticky(), rng, holders_known=holders_known)
        few = rng.sample(members, rng.randint(1, 10))
        table.holders = {queue: rng.choice(few) for queue in queues if rng.random() < 0.8}
        before = dict(table.holders)
        table.settle(queues, members)
        assert sorted(table.shares(members)) == [10] * 9 + [11]
        if holders_known:
            assert metrics.moved(before, table.holders) == metrics.moved_min(before, queues, members)


@pytest.mark.parametrize("holders_known", [False, True])
def test_weights_are_followed_to_the_queue(holders_known: bool) -> None:
    rng = random.Random(5)
    queues, members = some_queues(rng, 70), ["a", "b", "c"]
    table = LeaseTable(Weighted({"a": 1, "b": 2, "c": 4}), rng, holders_known=holders_known)
    table.settle(queues, members)
    assert table.shares(members) == [10, 20, 40]
    before = dict(table.holders)
    table.planner = Weighted({"a": 2, "b": 1, "c": 4})
    table.settle(queues, members)
    assert table.shares(members) == [20, 10, 40]
    assert metrics.moved(before, table.holders) == 10


@pytest.mark.parametrize("planner", [Planned(Rendezvous()), Sticky()], ids=["rendezvous", "sticky"])
def test_a_canary_comes_and_goes(planner: Planner) -> None:
    rng = random.Random(6)
    queues, members = some_queues(rng, 40), ["a", "b", "c", "d", "e"]
    table = LeaseTable(planner, rng, holders_known=False)
    table.settle(queues, members)
    before = dict(table.holders)
    table.planner = LeasedCanary(planner, CanarySetting(frozenset("e"), part=0.05))
    table.settle(queues, members)
    assert table.shares(members)[4] == 2
    assert sorted(table.shares(members)[:4]) == [9, 9, 10, 10]
    table.planner = planner
    table.settle(queues, members)
    assert table.shares(members) == [8] * 5
    if isinstance(planner, Planned):
        assert table.holders == before
