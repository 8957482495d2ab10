"""Mission C1–C5: the stock strategies' worked examples, their checks, and names."""

import pytest

from trimtab.balance.order import sorted_names, sorted_queues
from trimtab.balance.strategies import (
    Averagely,
    ByCircle,
    ByConfig,
    ByMachineRoom,
    Canary,
    CanarySetting,
    ConsistentHash,
    Lag,
    MachineRoomNearby,
    Planned,
    Rendezvous,
    Sticky,
    Strategy,
    across_topics,
    by_name,
    planner_by_name,
)
from trimtab.errors import AllocationError, SettingsError
from trimtab.model import MessageQueue

STATELESS: list[Strategy] = [Averagely(), ByCircle(), ConsistentHash(), Rendezvous(), ByMachineRoom(["hz"])]


class Prefixes:
    def of_queue(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("-")[0]

    def of_member(self, client_id: str) -> str:
        return client_id.partition("-")[0]


def queues(count: int, broker_name: str = "b", topic: str = "t") -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue(topic, broker_name, number) for number in range(1, count + 1))


def shares(strategy: Strategy, count: int, members: str) -> list[list[int]]:
    all_queues = queues(count)
    return [[q.queue_id for q in strategy.allocate("g", me, all_queues, tuple(members))] for me in members]


def test_pages_of_eight_queues_for_three_members() -> None:
    assert shares(Averagely(), 8, "abc") == [[1, 2, 3], [4, 5, 6], [7, 8]]


def test_pages_of_eight_queues_for_four_members() -> None:
    assert shares(Averagely(), 8, "abcd") == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_pages_leave_nothing_for_the_members_after_the_last_queue() -> None:
    assert shares(Averagely(), 2, "abcd") == [[1], [2], [], []]


def test_the_circle_deals_eight_queues_to_three_members() -> None:
    assert shares(ByCircle(), 8, "abc") == [[1, 4, 7], [2, 5, 8], [3, 6]]


def test_a_fixed_list_is_given_whatever_the_view() -> None:
    mine = queues(2)
    assert ByConfig(mine).allocate("g", "", (), ()) == mine


def test_only_brokers_named_after_a_chosen_room_are_shared() -> None:
    near, far, odd = queues(3, "hz@b"), queues(3, "sh@b"), queues(1, "hz@b@c")
    strategy = ByMachineRoom(["hz"])
    given = [strategy.allocate("g", me, near + far + odd, ("x", "y")) for me in "xy"]
    assert given == [(near[0], near[2]), (near[1],)]


def test_a_room_with_members_keeps_its_queues_and_one_without_is_shared_by_all() -> None:
    here, there, lonely = queues(4, "hz-b"), queues(2, "sh-b"), queues(3, "zz-b")
    strategy = MachineRoomNearby(Averagely(), Prefixes())
    members = ("hz-1", "hz-2", "sh-1")
    given = [strategy.allocate("g", me, here + there + lonely, members) for me in members]
    assert given == [(*here[:2], lonely[0]), (*here[2:], lonely[1]), (*there, lonely[2])]
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"


def test_a_queue_without_a_room_is_an_error() -> None:
    with pytest.raises(AllocationError, match="no machine room for queue t@-b:1"):
        MachineRoomNearby(Averagely(), Prefixes()).allocate("g", "hz-1", queues(1, "-b"), ("hz-1",))


@pytest.mark.parametrize("strategy", STATELESS, ids=lambda strategy: str(strategy.name))
def test_a_view_with_a_hole_is_an_error_and_a_stranger_gets_nothing(strategy: Strategy) -> None:
    some = queues(3, "hz@b")
    for me, all_queues, members in (("", some, ("a",)), ("a", (), ("a",)), ("a", some, ())):
        with pytest.raises(AllocationError) as failure:
            strategy.allocate("g", me, all_queues, members)
        assert not failure.value.retriable
        assert not failure.value.indeterminate
    assert strategy.allocate("g", "stranger", some, ("a", "b")) == ()


def test_a_ring_without_places_gives_nothing_and_less_than_none_is_an_error() -> None:
    assert ConsistentHash(0).allocate("g", "a", queues(4), ("a",)) == ()
    with pytest.raises(SettingsError, match="virtual_nodes is -1"):
        ConsistentHash(-1)


def test_names_are_ordered_by_utf16_units() -> None:
    # U+1F600 begins with the unit D83D, below U+FFEE; by characters it would come last.
    assert sorted_names(["\uffee", "\U0001f600", "a"]) == ("a", "\U0001f600", "\uffee")
    a, b = MessageQueue("\uffee", "b", 0), MessageQueue("\U0001f600", "b", 0)
    assert sorted_queues([a, b, MessageQueue("a", "z", 10), MessageQueue("a", "z", 9)])[2:] == (b, a)


def test_every_stock_strategy_is_found_by_its_name() -> None:
    for name in ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "rendezvous"):
        assert by_name(name).name == name
        assert isinstance(planner_by_name(name), Planned)
    assert isinstance(planner_by_name("sticky"), Sticky)
    assert isinstance(planner_by_name("lag"), Lag)


def test_a_strategy_of_the_users_own_is_found_by_its_name() -> None:
    mine = ByConfig(queues(1))
    assert by_name("CONFIG", own=[mine]) is mine
    with pytest.raises(SettingsError, match="two strategies of your own are called 'CONFIG'"):
        by_name("CONFIG", own=[mine, ByConfig(())])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("avg_by_circel", "did you mean 'AVG_BY_CIRCLE'"),
        ("stcky", "unknown strategy 'stcky'"),
        ("", "there are AVG, AVG_BY_CIRCLE"),
        ("MACHINE_ROOM", "needs settings"),
        ("sticky", "needs leases"),
    ],
)
def test_a_name_that_does_not_fit_is_explained(name: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        by_name(name)


def test_a_mistyped_leased_strategy_is_explained() -> None:
    with pytest.raises(SettingsError, match="did you mean 'sticky'"):
        planner_by_name("stiky")
    with pytest.raises(SettingsError, match="make a Weighted"):
        planner_by_name("weighted")


def test_shares_over_all_topics_are_even_in_total() -> None:
    members = ("a", "b", "c", "d")
    every = [queue for number in range(7) for queue in queues(5, topic=f"t{number}")]
    apart = {
        me: sum(len(Averagely().allocate("g", me, queues(5), members)) for _ in range(7)) for me in members
    }
    assert apart == {"a": 14, "b": 7, "c": 7, "d": 7}
    for strategy in (Averagely(), ByCircle(), Rendezvous()):
        given = {me: across_topics(strategy, "g", me, every, members) for me in members}
        totals = [sum(map(len, share.values())) for share in given.values()]
        assert max(totals) - min(totals) <= 1
        assert sorted(map(str, every)) == sorted(
            str(q) for s in given.values() for t in s.values() for q in t
        )


def test_the_circle_over_all_topics_is_even_within_each_topic_too() -> None:
    members = ("a", "b", "c", "d")
    every = [queue for number in range(7) for queue in queues(5, topic=f"t{number}")]
    given = [across_topics(ByCircle(), "g", me, every, members) for me in members]
    assert all(len(share[topic]) in {1, 2} for share in given for topic in share)


def test_a_canary_takes_its_part_and_leaves_no_trace_when_taken_away() -> None:
    members, every = ("a", "b", "c", "d"), queues(20)
    for within in (Averagely(), Rendezvous()):
        canary = Canary(within, CanarySetting(frozenset("d"), part=0.1))
        given = {me: canary.allocate("g", me, every, members) for me in members}
        assert len(given["d"]) == 2
        assert sorted(q.queue_id for share in given.values() for q in share) == list(range(1, 21))
        assert {len(given[me]) for me in "abc"} == {6}
        assert canary.name == f"canary-{within.name}"


def test_a_canary_may_take_named_queues() -> None:
    members, every = ("a", "b", "c"), queues(9)
    canary = Canary(Averagely(), CanarySetting(frozenset("ab"), queues=frozenset(every[3:5])))
    assert canary.allocate("g", "a", every, members) == (every[3],)
    assert canary.allocate("g", "b", every, members) == (every[4],)
    assert len(canary.allocate("g", "c", every, members)) == 7
    assert canary.allocate("g", "a", every[:3], members) == ()


def test_no_queue_starves_when_the_canaries_or_all_others_are_gone() -> None:
    canary = Canary(Averagely(), CanarySetting(frozenset("ab"), part=0.5))
    assert shares(canary, 4, "xy") == [[1, 2], [3, 4]]
    assert shares(canary, 4, "ab") == [[1, 2], [3, 4]]


def test_a_canary_that_does_not_fit_is_refused() -> None:
    setting = CanarySetting(frozenset("ab"), part=0.5)
    setting.check(("a", "b", "c"), queues(2))
    with pytest.raises(SettingsError, match="2 canaries in a group of 2"):
        setting.check(("a", "b"), queues(2))
    with pytest.raises(SettingsError, match="canary b is not in the group of a, c"):
        setting.check(("a", "c"), queues(2))
    with pytest.raises(SettingsError, match="t@b:1 is not among"):
        CanarySetting(frozenset("a"), queues=frozenset(queues(1))).check(("a", "b"), ())


@pytest.mark.parametrize(
    ("members", "part", "named", "words"),
    [
        ("", 0.5, None, "at least one member"),
        ("a", None, None, "either a part"),
        ("a", 0.5, "q", "either a part"),
        ("a", 0.0, None, "between 0 and 1"),
        ("a", 1.0, None, "between 0 and 1"),
        ("a", None, "", "empty list"),
    ],
)
def test_a_canary_setting_that_makes_no_sense_is_refused(
    members: str, part: float | None, named: str | None, words: str
) -> None:
    chosen = None if named is None else frozenset(queues(len(named)))
    with pytest.raises(SettingsError, match=words):
        CanarySetting(frozenset(members), part=part, queues=chosen)
