"""Mission B3–B6: how the broker knows who is there."""

from dataclasses import dataclass

from trimtab.balance.members import Changed, ConsumerGroups, Manner, Member, ProducerGroups

PUSH = Manner("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
PULL = Manner("CONSUME_ACTIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")


@dataclass(frozen=True)
class Sub:
    topic: str
    sub_version: int = 1


def member(connection: int, client_id: str = "", now_ms: int = 0) -> Member:
    return Member(connection, client_id or f"c{connection}", "PYTHON", 399, f"127.0.0.1:{connection}", now_ms)


def groups_with(*members: Member, topics: tuple[str, ...] = ("T",)) -> ConsumerGroups[Sub]:
    groups: ConsumerGroups[Sub] = ConsumerGroups()
    for one in members:
        groups.heartbeat("g", PUSH, one, [Sub(topic) for topic in topics])
    return groups


def test_b3_a_connection_not_seen_before_is_a_change_told_to_every_member() -> None:
    groups = groups_with(member(1))
    assert groups.heartbeat("g", PUSH, member(2), [Sub("T")]) == Changed("g", (1, 2))


def test_b3_a_repeated_heartbeat_is_no_change() -> None:
    groups = groups_with(member(1))
    assert groups.heartbeat("g", PUSH, member(1, now_ms=30_000), [Sub("T")]) is None


def test_b3_a_topic_added_or_removed_is_a_change() -> None:
    groups = groups_with(member(1))
    assert groups.heartbeat("g", PUSH, member(1), [Sub("T"), Sub("U")]) == Changed("g", (1,))
    assert groups.heartbeat("g", PUSH, member(1), [Sub("U")]) == Changed("g", (1,))
    group = groups.get("g")
    assert group is not None
    assert list(group.subscriptions) == ["U"]


def test_b3_a_newer_version_of_a_subscription_is_taken_without_a_change_and_an_older_one_is_not() -> None:
    groups = groups_with(member(1))
    assert groups.heartbeat("g", PUSH, member(1), [Sub("T", 5)]) is None
    assert groups.heartbeat("g", PUSH, member(1), [Sub("T", 4)]) is None
    group = groups.get("g")
    assert group is not None
    assert group.subscriptions["T"].sub_version == 5


def test_b3_a_known_connection_with_another_client_id_is_replaced_without_a_change() -> None:
    groups = groups_with(member(1, "old"))
    assert groups.heartbeat("g", PUSH, member(1, "new"), [Sub("T")]) is None
    group = groups.get("g")
    assert group is not None
    assert group.client_ids() == ["new"]


def test_b3_the_newest_heartbeat_decides_how_the_group_consumes() -> None:
    groups = groups_with(member(1))
    groups.heartbeat("g", PULL, member(2), [Sub("T")])
    group = groups.get("g")
    assert group is not None
    assert group.manner is PULL


def test_b5_unregister_tells_the_others_and_an_empty_group_is_removed() -> None:
    groups = groups_with(member(1), member(2))
    assert groups.unregister("g", 1) == Changed("g", (2,))
    assert groups.unregister("g", 1) is None
    assert groups.unregister("g", 2) == Changed("g", (), is_gone=True)
    assert groups.get("g") is None
    assert groups.unregister("nobody", 2) is None


def test_b5_a_closed_connection_leaves_every_group() -> None:
    groups = groups_with(member(1), member(2))
    groups.heartbeat("h", PUSH, member(1), [Sub("T")])
    assert groups.close(1) == [Changed("g", (2,)), Changed("h", (), is_gone=True)]
    assert groups.close(1) == []


def test_b5_a_member_silent_for_more_than_120_s_is_to_be_closed() -> None:
    groups = groups_with(member(1, now_ms=0), member(2, now_ms=50_000))
    assert groups.silent(120_000) == []
    assert groups.silent(120_001) == [1]


def test_b6_an_id_that_two_connections_carry_is_listed_twice() -> None:
    groups = groups_with(member(1, "same"), member(2, "same", now_ms=9))
    group = groups.get("g")
    assert group is not None
    assert group.client_ids() == ["same", "same"]
    newest = group.member_named("same")
    assert newest is not None
    assert newest.connection == 2
    assert group.member_named("stranger") is None


def test_a_reply_goes_to_the_newest_connection_of_a_producer() -> None:
    producers = ProducerGroups()
    producers.heartbeat("p", member(1, "c", now_ms=1))
    producers.heartbeat("q", member(2, "c", now_ms=2))
    assert producers.connection_of("c") == 2
    producers.close(2)
    assert producers.connection_of("c") == 1
    assert dict(producers).keys() == {"p"}
    assert producers.silent(120_002) == [1]
    producers.unregister("p", 1)
    assert producers.connection_of("c") is None
    assert producers.members("p") == []
