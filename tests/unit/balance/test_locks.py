from trimtab.balance.locks import LeaseTable
from trimtab.model import MessageQueue

Q = [MessageQueue("T", "broker-a", number) for number in range(3)]


def test_a_free_queue_is_granted_and_one_held_by_another_is_not() -> None:
    table = LeaseTable()
    assert table.lock("g", "a", 1, Q[:2], 0) == Q[:2]
    assert table.lock("g", "b", 2, Q, 1) == [Q[2]]
    assert table.lock("other", "b", 2, Q, 1) == Q


def test_a_lease_ends_60_s_after_its_last_renewal() -> None:
    table = LeaseTable()
    table.lock("g", "a", 1, Q[:1], 0)
    assert table.lock("g", "b", 2, Q[:1], 60_000) == []
    table.lock("g", "a", 1, Q[:1], 60_000)
    assert table.lock("g", "b", 2, Q[:1], 120_000) == []
    assert table.lock("g", "b", 2, Q[:1], 120_001) == Q[:1]


def test_only_the_holder_unlocks() -> None:
    table = LeaseTable()
    table.lock("g", "a", 1, Q[:1], 0)
    table.unlock("g", "b", Q)
    assert table.lock("g", "b", 2, Q[:1], 1) == []
    table.unlock("g", "a", Q)
    assert table.lock("g", "b", 2, Q[:1], 2) == Q[:1]


def test_a_closed_connection_frees_its_leases_after_the_grace() -> None:
    table = LeaseTable(closed_grace_ms=3_000)
    table.lock("g", "a", 1, Q[:2], 0)
    table.close(1, 1_000)
    assert table.lock("g", "b", 2, Q[:1], 4_000) == []
    assert table.lock("g", "b", 2, Q[:1], 4_001) == Q[:1]


def test_the_same_client_id_coming_back_in_time_keeps_its_leases() -> None:
    table = LeaseTable(closed_grace_ms=3_000)
    table.lock("g", "a", 1, Q[:1], 0)
    before = table.holder("g", Q[0], 0)
    table.close(1, 1_000)
    assert table.lock("g", "a", 7, Q[:1], 2_000) == Q[:1]
    after = table.holder("g", Q[0], 30_000)
    assert before is not None
    assert after is not None
    assert (after.epoch, after.since_ms, after.connection) == (before.epoch, 0, 7)


def test_every_new_holder_has_a_higher_epoch() -> None:
    table = LeaseTable()
    table.lock("g", "a", 1, Q[:1], 0)
    first = table.holder("g", Q[0], 0)
    table.unlock("g", "a", Q)
    table.lock("g", "a", 1, Q[:1], 1)
    second = table.holder("g", Q[0], 1)
    assert first is not None
    assert second is not None
    assert second.epoch > first.epoch


def test_ended_leases_are_forgotten() -> None:
    table = LeaseTable()
    table.lock("g", "a", 1, Q, 0)
    table.expire(60_000)
    assert table.holder("g", Q[0], 60_000) is not None
    table.expire(60_001)
    assert table.holder("g", Q[0], 0) is None
    table.lock("g", "a", 1, Q, 0)
    table.drop_group("g")
    assert table.holder("g", Q[0], 0) is None


def test_a_close_that_the_client_may_not_know_of_frees_nothing_before_it_must_have_stopped() -> None:
    table = LeaseTable()
    table.lock("g", "a", 1, Q[:1], 0)
    table.close(1, 0, is_known_to_peer=False)
    assert table.lock("g", "b", 2, Q[:1], 9_000) == []
    assert table.lock("g", "b", 2, Q[:1], 10_001) == Q[:1]


def test_a_client_that_goes_on_without_a_connection_is_waited_for() -> None:
    """Java's client trusts a lock for 30 s after each renewal, whatever becomes of its connection."""
    table = LeaseTable(closed_grace_ms=3_000)
    table.lock("g", "a", 1, Q[:1], 0, trusted_ms=30_000)
    table.lock("g", "a", 1, Q[:1], 20_000, trusted_ms=30_000)
    table.close(1, 21_000)
    assert table.lock("g", "b", 2, Q[:1], 50_000) == []
    assert table.lock("g", "b", 2, Q[:1], 50_001) == Q[:1]


def test_no_wait_is_longer_than_the_lease() -> None:
    table = LeaseTable(lease_ms=10_000, closed_grace_ms=3_000)
    table.lock("g", "a", 1, Q[:1], 0, trusted_ms=30_000)
    table.close(1, 1_000)
    assert table.lock("g", "b", 2, Q[:1], 10_001) == Q[:1]
