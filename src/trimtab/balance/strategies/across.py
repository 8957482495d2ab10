"""One share over all topics of a group, for strategies that Java would ask topic by topic."""

from collections.abc import Iterable, Sequence

from trimtab.balance.order import sorted_queues
from trimtab.balance.strategies.base import Strategy
from trimtab.model import MessageQueue


def across_topics(
    strategy: Strategy, group: str, me: str, queues: Iterable[MessageQueue], members: Sequence[str]
) -> dict[str, tuple[MessageQueue, ...]]:
    """My share by topic, out of the queues of all topics at once.

    Asked topic by topic, the first members get the odd queue of every topic. Asked once, totals differ by at most one for each strategy
    that promises so for one topic; AVG_BY_CIRCLE then keeps that promise within every topic as well.
    """
    every = sorted_queues(queues)
    share: dict[str, list[MessageQueue]] = {queue.topic: [] for queue in every}
    for queue in strategy.allocate(group, me, every, members):
        share[queue.topic].append(queue)
    return {topic: tuple(mine) for topic, mine in share.items()}
