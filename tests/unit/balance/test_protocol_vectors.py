"""The strategies on the worked example that was taken from Java: two brokers, four queues each, three members."""

import pytest

from trimtab.balance.strategies import Averagely, ByCircle, ConsistentHash, Strategy
from trimtab.model import MessageQueue

QUEUES = tuple(MessageQueue("TopicTest", f"broker-{one}", number) for one in "ab" for number in range(4))
MEMBERS = ("10.0.0.1@100", "10.0.0.2@200", "10.0.0.3@300")


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        (Averagely(), ["a0 a1 a2", "a3 b0 b1", "b2 b3"]),
        (ByCircle(), ["a0 a3 b2", "a1 b0 b3", "a2 b1"]),
        (ConsistentHash(), ["a0 a2 b0 b3", "a1", "a3 b1 b2"]),
    ],
    ids=["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"],
)
def test_each_member_gets_what_java_gives_it(strategy: Strategy, shares: list[str]) -> None:
    given = [
        " ".join(
            f"{queue.broker_name[-1]}{queue.queue_id}"
            for queue in strategy.allocate("g", me, QUEUES, MEMBERS)
        )
        for me in MEMBERS
    ]
    assert given == shares
