"""The default policy: slow brokers get less at once, never nothing, and come back by themselves."""

import heapq
import random
from collections import Counter

import pytest

from trimtab.balance.adaptive import FIRST_SAMPLES, FORGETTING_MS, PROBES_MAX, WEIGHT_MIN, Adaptive
from trimtab.balance.pick import Writable
from trimtab.model import MessageQueue


def writable(*brokers: str, queues: int = 4) -> Writable:
    return of_topic("T", *brokers, queues=queues)


def of_topic(topic: str, *brokers: str, queues: int = 4) -> Writable:
    return Writable(
        topic, tuple(MessageQueue(topic, broker, number) for broker in brokers for number in range(queues))
    )


def sent(
    policy: Adaptive,
    route: Writable,
    latency_ms: dict[str, float],
    count: int,
    rng: random.Random,
    now_ms: int = 0,
    in_flight: int = 1,
) -> Counter[str]:
    """So many sends with so many on their way at once, a millisecond or more apart; the share of each broker."""
    share: Counter[str] = Counter()
    on_their_way: list[tuple[int, int, str]] = []
    at_ms = now_ms
    for number in range(count):
        at_ms = max(at_ms, now_ms + number)
        while on_their_way and (len(on_their_way) >= in_flight or on_their_way[0][0] <= at_ms):
            at_ms = max(at_ms, on_their_way[0][0])
            answered(policy, heapq.heappop(on_their_way))
        broker = policy.choose(route, None, at_ms).queue.broker_name
        share[broker] += 1
        policy.began(broker, at_ms)
        heapq.heappush(
            on_their_way, (at_ms + round(latency_ms[broker] * rng.uniform(0.7, 1.3)), at_ms, broker)
        )
    while on_their_way:
        answered(policy, heapq.heappop(on_their_way))
    return share


def answered(policy: Adaptive, trip: tuple[int, int, str]) -> None:
    now_ms, began_ms, broker = trip
    policy.ended(broker, now_ms - began_ms, now_ms, failed=False)


@pytest.mark.parametrize("in_flight", [1, 7, 64, 1_000])
@pytest.mark.parametrize("speed_ms", [1, 5, 40, 300])
def test_two_brokers_of_equal_speed_stay_within_two_percent_of_even(speed_ms: int, in_flight: int) -> None:
    speeds = {"a": float(speed_ms), "b": float(speed_ms)}
    share = sent(Adaptive(0), writable("a", "b"), speeds, 10_000, random.Random(speed_ms), 0, in_flight)
    assert abs(share["a"] - 5_000) <= 100, share


@pytest.mark.parametrize("pattern", ["AB", "AAB", "ABBC"])
def test_topics_that_share_a_producer_are_each_spread_evenly(pattern: str) -> None:
    policy, share = Adaptive(0), Counter[tuple[str, MessageQueue]]()
    routes = {
        topic: of_topic(topic, "a", "b", queues=queues)
        for topic, queues in zip("ABC", (4, 4, 1), strict=True)
    }
    for at_ms, topic in enumerate(pattern * 1_000):
        queue = policy.choose(routes[topic], None, at_ms).queue
        share[topic, queue] += 1
        policy.began(queue.broker_name, at_ms)
        policy.ended(queue.broker_name, 1, at_ms + 1, failed=False)
    for topic, route in routes.items():
        counts = [share[topic, queue] for queue in route.queues]
        assert max(counts) - min(counts) <= len(routes), (topic, counts)


def test_a_topic_s_turns_outlive_a_new_route() -> None:
    policy, share = Adaptive(0), Counter[str]()
    for _ in range(100):
        share.update([policy.choose(writable("a", "b", "c"), None, 0).queue.broker_name])
    assert max(share.values()) - min(share.values()) <= 1


def test_many_topics_that_send_once_do_not_all_begin_with_one_broker() -> None:
    policy = Adaptive(0)
    share = Counter(
        policy.choose(of_topic(f"T{number}", "a", "b", "c"), None, 0).queue.broker_name
        for number in range(300)
    )
    assert share == {"a": 100, "b": 100, "c": 100}


def share_after_a_cold_start(cold_ms: int, in_flight: int) -> float:
    """Of two brokers of equal speed one answers nothing at first: its part of what is sent in the second after it did."""
    policy, route, share = Adaptive(0), writable("a", "b"), Counter[str]()
    on_their_way: list[tuple[int, int, str]] = []
    at_ms = 0
    while at_ms < cold_ms + 1_000:
        if len(on_their_way) >= in_flight:
            at_ms = max(at_ms, on_their_way[0][0])
            answered(policy, heapq.heappop(on_their_way))
        broker = policy.choose(route, None, at_ms).queue.broker_name
        share[broker] += at_ms > cold_ms + 20
        policy.began(broker, at_ms)
        heapq.heappush(on_their_way, (max(at_ms + 1, cold_ms if broker == "a" else 0), at_ms, broker))
    return share["a"] / share.total()


@pytest.mark.parametrize("in_flight", [1, 8, 64])
@pytest.mark.parametrize("cold_ms", [3, 5, 10, 50, 100, 1_000])
def test_a_first_answer_that_was_slow_is_soon_forgotten(cold_ms: int, in_flight: int) -> None:
    assert 0.49 < share_after_a_cold_start(cold_ms, in_flight) < 0.51


def test_one_that_is_slow_again_and_again_is_not_probed_without_end() -> None:
    share = sent(Adaptive(0), writable("a", "b"), {"a": 1, "b": 80}, 2_000, random.Random(9), in_flight=4)
    assert FIRST_SAMPLES <= share["b"] <= PROBES_MAX + 15


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


@pytest.mark.parametrize("speed_ms", [2, 10, 30, 200])
def test_a_broker_that_never_answers_gets_a_few_probes_and_then_next_to_nothing(speed_ms: int) -> None:
    policy, route = Adaptive(0), writable("a", "b")
    sent(policy, route, {"a": speed_ms, "b": speed_ms}, 200, random.Random(5))
    wider, share = writable("a", "b", "dark"), Counter[str]()
    at_ms = 100_000
    for _ in range(1_000):
        broker = policy.choose(wider, None, at_ms).queue.broker_name
        share[broker] += 1
        policy.began(broker, at_ms)
        if broker != "dark":
            at_ms += speed_ms
            policy.ended(broker, speed_ms, at_ms, failed=False)
    assert PROBES_MAX <= share["dark"] <= PROBES_MAX + 5


def test_the_probes_of_a_new_broker_are_bounded_within_one_moment() -> None:
    policy = Adaptive(0)
    sent(policy, writable("a", "b"), {"a": 5, "b": 5}, 100, random.Random(6))
    wider = writable("a", "b", "dark")
    share = Counter(policy.choose(wider, None, 1_000).queue.broker_name for _ in range(3_000))
    assert PROBES_MAX <= share["dark"] <= PROBES_MAX + 5


def test_while_nobody_has_answered_all_get_the_same() -> None:
    policy, route = Adaptive(0), writable("a", "b", "c")
    share = Counter(policy.choose(route, None, 0).queue.broker_name for _ in range(300))
    assert share == {"a": 100, "b": 100, "c": 100}


def test_one_that_failed_is_no_measure_for_one_that_was_never_asked() -> None:
    policy, route = Adaptive(0), writable("a", "b")
    policy.began("a", 0)
    policy.ended("a", 3_000, 3_000, failed=True)
    share = Counter(policy.choose(route, None, 3_000).queue.broker_name for _ in range(1_000))
    assert share["a"] <= 5


def test_a_hiccup_of_the_only_one_that_is_well_sends_nobody_to_one_that_failed() -> None:
    policy, route = Adaptive(0), writable("well", "dark")
    policy.ended("well", 1, 1, failed=False)
    policy.ended("dark", 3_000, 3_000, failed=True)
    policy.began("well", 3_000)
    # Its answer is 30 ms late, as when this process itself was busy.
    share = Counter(policy.choose(route, None, 3_030).queue.broker_name for _ in range(1_000))
    assert share["dark"] <= 5


def test_the_age_of_the_oldest_request_is_that_of_the_one_still_unanswered() -> None:
    policy = Adaptive(0)
    policy.began("b", 10)
    for at_ms in range(11, 5_000):
        policy.began("b", at_ms)
        policy.ended("b", 0, at_ms, failed=False)
    (standing,) = policy.brokers(5_000)
    assert (standing.latency_ms, standing.in_flight) == (4_990, 1)


def test_a_refusal_for_the_message_s_own_sake_is_no_failure_of_the_broker() -> None:
    policy = Adaptive(0)
    for broker in ("a", "b"):
        policy.ended(broker, 1, 1, failed=False)
    policy.began("a", 5)
    policy.declined("a", 1, 6)
    assert [(s.weight, s.in_flight) for s in policy.brokers(6)] == [(1.0, 0), (1.0, 0)]


def test_what_became_no_request_leaves_nothing_behind() -> None:
    policy = Adaptive(0)
    policy.began("a", 5)
    policy.dropped("a", 5)
    (standing,) = policy.brokers(60_000)
    assert (standing.in_flight, standing.weight, standing.latency_ms) == (0, 1.0, 0.0)


def test_a_broker_with_more_than_its_part_on_its_way_gets_less_before_its_answers_are_late() -> None:
    policy, route = Adaptive(0), writable("a", "b")
    for broker in ("a", "b"):
        policy.began(broker, 0)
        policy.ended(broker, 20, 20, failed=False)
    for _ in range(40):
        policy.began("a", 30)
    share = Counter(policy.choose(route, None, 30).queue.broker_name for _ in range(1_000))
    assert 0 < share["a"] < 450


def test_credits_from_better_times_starve_nobody_when_all_brokers_hang() -> None:
    policy, route = Adaptive(0), writable("a", "b", "c")
    sent(policy, route, {"a": 1, "b": 1, "c": 1}, 301, random.Random(7))
    for broker in ("a", "b", "c"):
        policy.began(broker, 1_000)
    share = Counter(policy.choose(route, None, 60_000).queue.broker_name for _ in range(30))
    assert min(share.values()) >= 9


def test_a6_of_two_very_slow_brokers_the_slower_one_gets_less_and_a_failing_pair_is_tried_in_turn() -> None:
    latency_ms = {"broker1": 30_000.0, "broker2": 50_000.0}
    share = sent(Adaptive(0), writable("broker1", "broker2"), latency_ms, 1_000, random.Random(8))
    assert 100 < share["broker2"] < share["broker1"]
    policy, now_ms, tried = Adaptive(0), 0, []
    for _ in range(10):
        last = None
        for _attempt in range(2):
            last = policy.choose(writable("broker1", "broker2"), last, now_ms).queue.broker_name
            policy.began(last, now_ms)
            now_ms += int(latency_ms[last])
            policy.ended(last, int(latency_ms[last]), now_ms, failed=True)
            tried.append(last)
    assert all(set(pair) == {"broker1", "broker2"} for pair in zip(tried[::2], tried[1::2], strict=True))
