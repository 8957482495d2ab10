"""Mission A: where a producer sends."""

from collections import Counter

import pytest

from trimtab.balance.faults import FaultAvoiding, FaultTable, classic_4_2, classic_4_9_3, not_available_ms
from trimtab.balance.pick import (
    TOPICS_MAX,
    Policy,
    RingCounter,
    RingCounters,
    RoundRobin,
    Writable,
    position,
)
from trimtab.model import MessageQueue

TWO_BROKERS = Writable(
    "T", tuple(MessageQueue("T", broker, number) for broker in ("broker1", "broker2") for number in range(4))
)
LATENCY_MS = {"broker1": 30_000, "broker2": 50_000}


def test_a1_eight_sends_visit_eight_queues() -> None:
    policy = RoundRobin(start=41)
    chosen = [policy.choose(TWO_BROKERS, None, 0).queue for _ in range(8)]
    assert sorted(chosen, key=str) == sorted(TWO_BROKERS.queues, key=str)


@pytest.mark.parametrize(
    "policy",
    [RoundRobin(start=0), classic_4_2(start=0), classic_4_9_3(start=0)],
    ids=lambda policy: str(policy.name),
)
def test_a1_topics_that_share_a_producer_each_go_round_all_of_their_queues(policy: Policy) -> None:
    routes = [
        Writable(topic, tuple(MessageQueue(topic, broker, number) for broker in "ab" for number in range(4)))
        for topic in ("orders", "audit")
    ]
    share = Counter(policy.choose(route, None, 0).queue for _ in range(80) for route in routes)
    assert share == {queue: 10 for route in routes for queue in route.queues}


def test_a1_many_topics_that_send_once_do_not_all_begin_with_one_queue() -> None:
    policy = RoundRobin(start=0)
    routes = [Writable(f"T{number}", TWO_BROKERS.queues) for number in range(16)]
    assert len({policy.choose(route, None, 0).queue for route in routes}) == 8


def test_a1_counters_of_more_topics_than_are_remembered_begin_anew() -> None:
    counters = RingCounters(start=0)
    assert [counters.of("first").next(), counters.of("first").next()] == [1, 2]
    for number in range(TOPICS_MAX):
        counters.of(f"T{number}")
    assert counters.of("first").next() == TOPICS_MAX + 2


def test_a1_the_counter_survives_the_end_of_its_range() -> None:
    counter = RingCounter(2**31 - 2)
    assert [counter.next(), counter.next(), counter.next()] == [2**31 - 1, -(2**31), 2**31 - 1]
    assert position(-(2**31), 8) == 0


def test_a2_a_retry_passes_over_the_broker_that_failed() -> None:
    policy = RoundRobin(start=0)
    for _ in range(20):
        assert policy.choose(TWO_BROKERS, "broker1", 0).queue.broker_name == "broker2"


def test_a2_with_one_broker_a_retry_is_plain_round_robin() -> None:
    one = Writable("T", TWO_BROKERS.queues[:4])
    policy = RoundRobin(start=0)
    assert {policy.choose(one, "broker1", 0).queue.queue_id for _ in range(20)} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("latency_ms", "seconds"),
    [
        (0, 0), (49, 0), (50, 0), (99, 0), (100, 0), (549, 0), (550, 30), (999, 30), (1_000, 60), (1_999, 60), (2_000, 120),
        (2_999, 120), (3_000, 180), (14_999, 180), (15_000, 600), (30_000, 600), (10**9, 600),
    ],
)  # fmt: skip
def test_a3_the_table_row_by_row(latency_ms: int, seconds: int) -> None:
    assert not_available_ms(latency_ms) == seconds * 1_000
    table = FaultTable(start=0)
    table.record("b", latency_ms, 1_000, failed=False)
    assert table.is_available("b", 1_000 + seconds * 1_000)
    assert seconds == 0 or not table.is_available("b", 999 + seconds * 1_000)


def test_a3_a_failed_send_is_avoided_for_600_s() -> None:
    table = FaultTable(start=0)
    table.record("b", 3, 0, failed=True)
    assert not table.is_available("b", 599_999)
    assert table.is_available("b", 600_000)


def test_a4_a_broker_never_used_is_available_and_others_are_walked_round() -> None:
    policy = classic_4_9_3(start=0)
    policy.ended("broker1", 20_000, 0, failed=False)
    assert {policy.choose(TWO_BROKERS, None, 1).queue.broker_name for _ in range(8)} == {"broker2"}


def test_a5_brokers_are_ordered_by_availability_latency_and_start() -> None:
    table = FaultTable(start=0)
    table.record("late", 20_000, 10, failed=False)
    table.record("early", 20_000, 5, failed=False)
    table.record("slow", 90_000, 0, failed=False)
    table.record("fine", 400, 0, failed=False)
    assert [standing.broker_name for standing in table.in_order(20)] == ["fine", "early", "late", "slow"]


def test_a5_the_pick_goes_round_the_better_half() -> None:
    table = FaultTable(start=0)
    for number in range(4):
        table.record(f"b{number}", 15_000 + number, 0, failed=False)
    assert [table.pick_one_at_least(1) for _ in range(4)] == ["b1", "b0", "b1", "b0"]
    assert FaultTable(start=0).pick_one_at_least(0) is None


def test_a5_a_broker_without_a_writable_queue_is_forgotten() -> None:
    policy = classic_4_9_3(start=0)
    for broker in ("gone", "broker1", "broker2"):
        policy.ended(broker, 15_000 if broker == "gone" else 16_000, 0, failed=False)
    choice = policy.choose(TWO_BROKERS, None, 1)
    assert choice.queue in TWO_BROKERS.queues
    assert [standing.broker_name for standing in policy.brokers(1)] == ["broker1", "broker2"]


def attempts(policy: Policy, *, failing: bool) -> list[tuple[int, ...]]:
    """Ten sends with up to two attempts each; broker1 takes 30 s, broker2 50 s."""
    now_ms = 0
    sends = []
    for _ in range(10):
        tried: list[int] = []
        last: str | None = None
        for _attempt in range(2):
            broker = policy.choose(TWO_BROKERS, last, now_ms).queue.broker_name
            now_ms += LATENCY_MS[broker]
            policy.ended(broker, LATENCY_MS[broker], now_ms, failed=failing)
            tried.append(int(broker[-1]))
            last = broker
            if not failing:
                break
        sends.append(tuple(tried))
    return sends


def test_a6_classic_4_2_when_every_send_succeeds() -> None:
    assert attempts(classic_4_2(start=0), failing=False) == [(1,), (2,), *[(1,)] * 8]


def test_a6_classic_4_2_when_every_attempt_fails() -> None:
    assert attempts(classic_4_2(start=0), failing=True) == [(1, 1), (2, 1), *[(1, 1)] * 8]


def test_a6_4_9_3_when_every_send_succeeds() -> None:
    assert attempts(classic_4_9_3(start=-1), failing=False) == [(1,), (2,), *[(1,)] * 8]


def test_a6_4_9_3_when_every_attempt_fails_its_list_fills_with_one_broker() -> None:
    policy = classic_4_9_3(start=-1)
    assert attempts(policy, failing=True) == [(1, 2), *[(1, 1)] * 9]
    assert [queue.broker_name for queue in policy.list_of(TWO_BROKERS)] == ["broker1"] * 8


def test_a6_the_route_itself_is_never_changed_and_a_new_route_begins_anew() -> None:
    policy: FaultAvoiding = classic_4_9_3(start=-1)
    attempts(policy, failing=True)
    assert [queue.broker_name for queue in TWO_BROKERS.queues] == ["broker1"] * 4 + ["broker2"] * 4
    other = Writable("T", TWO_BROKERS.queues[::-1])
    assert policy.list_of(other) == list(other.queues)
