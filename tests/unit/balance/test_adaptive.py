"""The default policy: slow brokers get less at once, never nothing, and come back by themselves."""

import random
from collections import Counter

from trimtab.balance.adaptive import FORGETTING_MS, WEIGHT_MIN, Adaptive
from trimtab.balance.pick import Writable
from trimtab.model import MessageQueue


def writable(*brokers: str, queues: int = 4) -> Writable:
    return Writable(
        "T", tuple(MessageQueue("T", broker, number) for broker in brokers for number in range(queues))
    )


def sent(
    policy: Adaptive,
    route: Writable,
    latency_ms: dict[str, float],
    count: int,
    rng: random.Random,
    now_ms: int = 0,
) -> Counter[str]:
    """One send after the other, each answered before the next; the share of each broker."""
    share: Counter[str] = Counter()
    for number in range(count):
        at_ms = now_ms + number
        broker = policy.choose(route, None, at_ms).queue.broker_name
        share[broker] += 1
        policy.began(broker, at_ms)
        noisy = latency_ms[broker] * rng.uniform(0.7, 1.3)
        policy.ended(broker, round(noisy), at_ms, failed=False)
    return share


def test_two_brokers_of_equal_speed_stay_within_two_percent_of_even() -> None:
    for speed_ms in (1, 5, 40, 300):
        share = sent(
            Adaptive(0), writable("a", "b"), {"a": speed_ms, "b": speed_ms}, 10_000, random.Random(speed_ms)
        )
        assert abs(share["a"] - 5_000) <= 100, (speed_ms, share)


def test_every_queue_of_a_broker_gets_its_turn() -> None:
    policy, route = Adaptive(7), writable("a", "b")
    chosen = Counter(policy.choose(route, None, 0).queue for _ in range(800))
    assert set(chosen.values()) == {100}


def test_a_broker_20_ms_slower_gets_less_than_one_percent_and_more_than_nothing() -> None:
    share = sent(Adaptive(0), writable("a", "b", "c"), {"a": 1, "b": 1, "c": 21}, 30_000, random.Random(1))
    assert 0 < share["c"] < 300
    late = sent_late_share()
    assert 0 < late < 0.01


def sent_late_share() -> float:
    policy, route, rng = Adaptive(0), writable("a", "b", "c"), random.Random(2)
    latency_ms = {"a": 1.0, "b": 1.0, "c": 60.0}
    sent(policy, route, latency_ms, 1_000, rng)
    share = sent(policy, route, latency_ms, 20_000, rng, now_ms=1_000)
    return share["c"] / 20_000


def test_a_broker_that_hangs_is_seen_before_it_answers() -> None:
    policy, route = Adaptive(0), writable("a", "b")
    for broker in ("a", "b"):
        policy.began(broker, 0)
        policy.ended(broker, 1, 1, failed=False)
    policy.began("b", 10)
    share = Counter(policy.choose(route, None, 2_010).queue.broker_name for _ in range(1_000))
    assert share["b"] <= 5


def test_a_failure_counts_at_once_and_a_retry_avoids_the_broker() -> None:
    policy, route = Adaptive(0), writable("a", "b")
    policy.began("a", 0)
    policy.ended("a", 5, 5, failed=True)
    assert policy.choose(route, "a", 5).queue.broker_name == "b"
    share = Counter(policy.choose(route, None, 5).queue.broker_name for _ in range(1_000))
    assert share["a"] <= 5


def test_with_one_broker_a_retry_has_no_choice() -> None:
    assert Adaptive(0).choose(writable("a"), "a", 0).queue.broker_name == "a"


def test_no_weight_is_ever_zero() -> None:
    policy = Adaptive(0)
    policy.ended("a", 1, 0, failed=False)
    policy.ended("b", 10**9, 0, failed=True)
    assert [standing.weight for standing in policy.brokers(0)] == [1.0, WEIGHT_MIN]


def test_recovery_needs_no_traffic_and_is_gradual() -> None:
    policy = Adaptive(0)
    policy.ended("a", 2, 0, failed=False)
    policy.ended("b", 400, 0, failed=False)
    weights = [
        next(standing.weight for standing in policy.brokers(at_ms) if standing.broker_name == "b")
        for at_ms in range(0, 10 * FORGETTING_MS, FORGETTING_MS)
    ]
    assert weights == sorted(weights)
    assert weights[0] < 0.001 + WEIGHT_MIN
    assert weights[1] < 0.05
    assert weights[-1] == 1.0


def test_recovery_by_probes_is_gradual() -> None:
    policy, route, rng = Adaptive(0), writable("a", "b"), random.Random(3)
    sent(policy, route, {"a": 1, "b": 200}, 2_000, rng)
    shares = [
        sent(policy, route, {"a": 1, "b": 1}, 1_000, rng, now_ms=2_000 + 1_000 * n)["b"] for n in range(60)
    ]
    assert shares[0] < 100
    assert shares[-1] > 450


def test_a_new_broker_is_tried_at_once() -> None:
    policy, rng = Adaptive(0), random.Random(4)
    sent(policy, writable("a", "b"), {"a": 30, "b": 30}, 100, rng)
    share = sent(policy, writable("a", "b", "new"), {"a": 30, "b": 30, "new": 30}, 900, rng, now_ms=100)
    assert 200 < share["new"] < 400
