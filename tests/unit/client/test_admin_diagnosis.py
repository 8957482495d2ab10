"""The diagnosis as a function: facts in, findings out. The same faults with real members are in tests/interop and tests/unit/cli."""

import pytest

from tests.unit.client.group_facts import (
    BOTH,
    HEALTHY,
    NOW,
    facts,
    held,
    look,
    member,
    replace,
    route,
    state,
    view,
)
from trimtab.client.admin.diagnosis import Facts, Finding, Look, diagnose, strategy_of
from trimtab.client.admin.rows import (
    BrokerFailure,
    GroupOnBroker,
    GroupProgress,
    GroupSettings,
    QueueProgress,
    RouteOfNameserver,
    Subscription,
    TopicPace,
    TopicRoute,
)


def found(given: Facts) -> dict[str, Finding]:
    return {finding.cause: finding for finding in diagnose(given)}


def test_a_healthy_group_yields_nothing() -> None:
    assert diagnose(facts(HEALTHY, BOTH)) == ()


def test_the_same_client_id_twice() -> None:
    twice = view("a", member("c-1", "h1:1"), member("c-1", "h2:1"), member("c-2"))
    finding = found(facts(HEALTHY, twice))["same-client-id"]
    assert "c-1 is connected 2 times: h1:1, h2:1" in finding.evidence


def test_brokers_that_see_different_members() -> None:
    finding = found(facts(HEALTHY, BOTH, view("b", member("c-1"))))["split-view"]
    assert finding.evidence == "b does not see c-2, other brokers do"
    blind = found(facts(HEALTHY, view("b", member("c-1"), member("c-2"))))["split-view"]
    assert blind.evidence.startswith("a has queues of the group's topics and sees no member")


def test_unequal_subscriptions() -> None:
    odd = (Subscription(topic="t", expression="eu"),)
    given = facts(look(state("c-1", held(0)), state("c-2", held(1), subscriptions=odd)), BOTH)
    assert set(found(given)) == {"unequal-subscriptions"}
    assert "c-1 wants t: *" in found(given)["unequal-subscriptions"].evidence


def test_mixed_sdks_and_strategies() -> None:
    mixed = view("a", member("c-1"), member("c-2", language="CPP"))
    assert set(found(facts(HEALTHY, mixed))) == {"mixed-sdks"}
    java = {
        "allocateMessageQueueStrategy": "org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely@1b2c"
    }
    circle = {"allocateMessageQueueStrategy": "AVG_BY_CIRCLE"}
    avg = {"allocateMessageQueueStrategy": "AVG"}
    same = look(state("c-1", held(0), properties=java), state("c-2", held(1), properties=avg))
    assert diagnose(facts(same, BOTH)) == ()
    other = look(state("c-1", held(0), properties=java), state("c-2", held(1), properties=circle))
    assert "AVG (c-1), AVG_BY_CIRCLE (c-2)" in found(facts(other, BOTH))["mixed-strategies"].evidence
    assert strategy_of(state("c-1")) is None


def test_name_servers_that_disagree() -> None:
    for other in (route(read=3, write=3), None):
        told = (
            RouteOfNameserver(nameserver="n:1", route=route()),
            RouteOfNameserver(nameserver="n:2", route=other),
        )
        finding = found(facts(HEALTHY, BOTH, routes={"t": told}))["nameservers-disagree"]
        assert "n:1: a=2r2w(rw)" in finding.evidence


def test_more_members_than_queues() -> None:
    three = view("a", member("c-1"), member("c-2"), member("c-3"))
    given = facts(look(state("c-1", held(0)), state("c-2", held(1)), state("c-3")), three)
    assert found(given)["more-members-than-queues"].evidence == "3 members share 2 queue(s) of t: 1 get none"


def test_queues_that_nobody_or_more_than_one_holds_in_both_looks() -> None:
    unheld = look(state("c-1", held(0)), state("c-2"), offsets=(5, 2))
    assert (
        "nobody holds t@a:1 of t; 3 message(s) wait" in found(facts(unheld, BOTH))["unheld-queues"].evidence
    )
    assert diagnose(facts(unheld, BOTH, before=HEALTHY)) == (), "it changes hands just now"
    double = look(state("c-1", held(0)), state("c-2", held(0), held(1)))
    assert "t@a:0 by c-1, c-2" in found(facts(double, BOTH))["double-held-queues"].evidence
    assert diagnose(facts(double, BOTH, before=HEALTHY)) == ()
    leaving = look(state("c-1", held(0)), state("c-2", held(0, dropped=True), held(1)))
    assert diagnose(facts(leaving, BOTH)) == ()


def test_a_broadcasting_group_shares_nothing() -> None:
    everybody = view("a", member("c-1"), member("c-2"), member("c-3"), model="BROADCASTING")
    states = [state(f"c-{number}", held(0), held(1)) for number in (1, 2, 3)]
    assert diagnose(facts(look(*states), everybody)) == ()


def test_stuck_offsets() -> None:
    old = held(0, last_consume_ms=NOW - 100_000, cached=3)
    stuck = look(state("c-1", old), state("c-2", held(1)), offsets=(2, 5))
    finding = found(facts(stuck, BOTH))["stuck-offset"]
    assert (
        "c-1 has not moved t@a:0 for 100 s; 3 wait in t@a:0, it holds 3: its handler hangs"
        in finding.evidence
    )
    moving = look(state("c-1", old), state("c-2", held(1)), offsets=(1, 5))
    assert diagnose(facts(stuck, BOTH, before=moving)) == (), "it moved between the looks"
    assert diagnose(facts(stuck, BOTH), stuck_ms=200_000) == ()


def test_locks_of_ordered_consumers() -> None:
    ordered = {"PROP_CONSUMEORDERLY": "true"}
    good_lock = held(0, locked=True, last_lock_ms=NOW - 5_000)
    fine = look(state("c-1", good_lock, properties=ordered), state("c-2", held(1)))
    assert diagnose(facts(fine, BOTH)) == ()
    for bad in (held(0), held(0, locked=True, last_lock_ms=NOW - 31_000)):
        given = facts(look(state("c-1", bad, properties=ordered), state("c-2", held(1))), BOTH)
        assert set(found(given)) == {"expired-locks"}


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        (route(perm="r"), "read-only-queues"),
        (route(write=3), "unread-queues"),
        (route(perm="w"), "unreadable-queues"),
    ],
)
def test_odd_queues(changed: TopicRoute, cause: str) -> None:
    routes = {"t": (RouteOfNameserver(nameserver="n:1", route=changed),)}
    assert cause in found(facts(HEALTHY, BOTH, routes=routes))


def test_a_hot_queue() -> None:
    rows = tuple(
        QueueProgress(topic="t", broker="a", queue_id=number, offset=0, max_offset=end)
        for number, end in enumerate((5_000, 10, 10))
    )
    hot = replace(HEALTHY, progress=GroupProgress(group="g", queues=rows))
    assert "t@a:0 has 5,000 of the 5,020" in found(facts(hot, BOTH))["hot-queue"].evidence


def test_nobody_there_a_disabled_group_a_silent_member_and_a_failing_handler() -> None:
    assert set(found(facts(look(offsets=(2, 5))))) == {"no-members"}
    assert diagnose(facts(look())) == (), "nobody is there, and nothing waits"
    off = GroupOnBroker(
        broker="a", enabled=False, broadcast_enabled=True, retry_queues=1, retries_max=16, notify_members=True
    )
    disabled = facts(HEALTHY, BOTH, settings=GroupSettings(group="g", brokers=(off,)))
    assert set(found(disabled)) == {"group-disabled"}
    failure = BrokerFailure(broker="c-2", address="h:1", error="no answer", unreachable=True)
    silent = replace(HEALTHY, states=replace(HEALTHY.states, failures=(failure,)))
    assert "c-2 is connected" in found(facts(silent, BOTH))["silent-member"].evidence
    pace = TopicPace(
        topic="t",
        pulled_per_s=1,
        consumed_per_s=0,
        failed_per_s=2.5,
        pull_ms=1,
        consume_ms=1,
        failed_last_hour=9,
    )
    failing = look(state("c-1", held(0), pace=(pace,)), state("c-2", held(1)))
    assert found(facts(failing, BOTH))["failing-handler"].evidence == "c-1 fails 2.5 messages a second of t"
    seldom = look(state("c-1", held(0), pace=(replace(pace, failed_per_s=0.02),)), state("c-2", held(1)))
    assert found(facts(seldom, BOTH))["failing-handler"].evidence == "c-1 fails 1.2 messages a minute of t"


def test_the_worst_comes_first() -> None:
    given = facts(
        look(state("c-1", held(0)), state("c-2"), offsets=(5, 2)),
        view("a", member("c-1"), member("c-2", language="CPP")),
    )
    assert [finding.severity for finding in diagnose(given)] == ["broken", "note"]


def test_locks_are_judged_by_the_members_own_clock_and_in_both_looks() -> None:
    ordered = {"PROP_CONSUMEORDERLY": "true"}

    def seen(off_ms: int, age_ms: int) -> Look:
        row = held(
            0,
            locked=True,
            last_lock_ms=NOW + off_ms - age_ms,
            last_pull_ms=NOW + off_ms,
            last_consume_ms=None,
        )
        return look(state("c-1", row, properties=ordered), state("c-2", held(1)))

    for off_ms in (-3_600_000, 3_600_000):
        assert "expired-locks" not in found(facts(seen(off_ms, 5_000), BOTH))
        assert "expired-locks" in found(facts(seen(off_ms, 31_000), BOTH))
    late = facts(seen(0, 31_000), BOTH, before=seen(0, 29_000))
    assert "expired-locks" not in found(late)
