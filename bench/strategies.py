"""Sharing queues: how long one decision takes (processor time), and how many queues move when one member joins."""

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bench.report import Row, print_rows
from trimtab.balance import metrics
from trimtab.balance.order import sorted_names, sorted_queues
from trimtab.balance.strategies import (
    Averagely,
    ByCircle,
    ConsistentHash,
    Lag,
    Load,
    Rendezvous,
    Sticky,
    Strategy,
    View,
    Weighted,
)
from trimtab.balance.strategies.places import queue_place
from trimtab.model import MessageQueue

LIMIT_MS = 50
RUNS = 7
GROUPS = 10


def group(rng: random.Random, queues: int, members: int) -> tuple[tuple[MessageQueue, ...], tuple[str, ...]]:
    ids = (
        f"10.0.{rng.randrange(256)}.{rng.randrange(256)}@{rng.randrange(60_000)}#{rng.randrange(10**15)}"
        for _ in range(members)
    )
    return (
        sorted_queues(MessageQueue(f"t{at % 5}", f"broker-{at % 4}", at // 4) for at in range(queues)),
        sorted_names(ids),
    )  # fmt: skip


def median_ms(decide: Callable[[], object]) -> float:
    """Processor time, so that what else runs on the machine does not count; nothing is remembered between runs."""
    spent = []
    for _ in range(RUNS):
        queue_place.cache_clear()
        start = time.process_time()
        decide()
        spent.append((time.process_time() - start) * 1_000)
    return statistics.median(spent)


def decisions(queues: tuple[MessageQueue, ...], members: tuple[str, ...]) -> dict[str, Callable[[], object]]:
    """One member's decision just after 10 members joined a balanced group."""
    me = members[0]
    former = members[:-10]
    holders = {queue: former[at % len(former)] for at, queue in enumerate(queues)}
    held = frozenset(queue for queue, member in holders.items() if member == me)
    loads = {queue: Load(queue.queue_id % 77, queue.queue_id % 13) for queue in queues}
    newcomer = View("g", members[-1], queues, members)
    alone = View("g", me, queues, members, held)
    known = View("g", me, queues, members, held, holders=holders, loads=loads)
    plain = {
        strategy.name: lambda strategy=strategy: strategy.allocate("g", me, queues, members)
        for strategy in (Averagely(), ByCircle(), ConsistentHash())
    }
    return plain | {
        "sticky, leases alone": lambda: Sticky().plan(alone),
        # Another tuple each time, of which nothing is known; and the order, which is made when somebody looks at it.
        "sticky, leases alone, newcomer": lambda: tuple(
            Sticky().plan(replace(newcomer, queues=(*queues,))).acquire
        ),
        "sticky, holders known": lambda: Sticky().plan(known),
        "weighted, holders known": lambda: Weighted({}, otherwise=1.0).plan(known),
        "lag, holders known": lambda: Lag().plan(known),
    }


def share_of_all(
    strategy: Strategy, queues: Sequence[MessageQueue], members: Sequence[str]
) -> dict[MessageQueue, str]:
    return {queue: me for me in members for queue in strategy.allocate("g", me, queues, members)}


def sticky_of_all(
    before: Mapping[MessageQueue, str], queues: tuple[MessageQueue, ...], members: tuple[str, ...]
) -> dict[MessageQueue, str]:
    after: dict[MessageQueue, str] = {}
    for me in members:
        held = frozenset(queue for queue, member in before.items() if member == me)
        plan = Sticky().plan(View("g", me, queues, members, held, holders=before))
        after |= dict.fromkeys((*plan.keep, *plan.acquire), me)
    return after


def moves_when_one_joins(queue_count: int, member_count: int) -> dict[str, float]:
    """`moved/min` in the mean of some random groups."""
    strategies = (Averagely(), ByCircle(), ConsistentHash(), Rendezvous())
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    rng = random.Random(7)
    for _ in range(GROUPS):
        queues, members = group(rng, queue_count, member_count + 1)
        newcomer = rng.choice(members)
        former = tuple(member for member in members if member != newcomer)
        for strategy in strategies:
            before = share_of_all(strategy, queues, former)
            moved = metrics.moved(before, share_of_all(strategy, queues, members))
            ratios[strategy.name].append(moved / (queue_count // len(members)))
        before = share_of_all(Averagely(), queues, former)
        moved = metrics.moved(before, sticky_of_all(before, queues, members))
        ratios["sticky"].append(moved / metrics.moved_min(before, queues, members))
    return {name: statistics.mean(values) for name, values in ratios.items()}


def rendezvous_row(queue_count: int, member_count: int) -> Row:
    """It weighs every queue with every member, so it is for groups that are not as large; once is enough to see it."""
    queues, members = group(random.Random(7), queue_count, member_count)
    start = time.process_time()
    Rendezvous().allocate("g", members[0], queues, members)
    spent = (time.process_time() - start) * 1_000
    note = f"{queue_count:,} queues × {member_count:,} members: {spent:,.1f} ms (limit {LIMIT_MS} ms)"
    return Row("rendezvous", 1_000 / spent, note=note)


def rows() -> list[Row]:
    queues, members = group(random.Random(7), 10_000, 1_000)
    found = []
    for name, decide in decisions(queues, members).items():
        spent = median_ms(decide)
        note = f"10,000 queues × 1,000 members: {spent:.1f} ms (limit {LIMIT_MS} ms)"
        found.append(Row(name, 1_000 / spent, note=note))
    for queue_count, member_count in ((1_000, 100), (10_000, 1_000)):
        found.append(rendezvous_row(queue_count, member_count))
    for size in ((64, 8), (640, 64)):
        ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in moves_when_one_joins(*size).items())
        print(f"moved/min, {size[0]} queues, {size[1]} members and one joins: {ratios}")
    return found


if __name__ == "__main__":
    print_rows(rows())
