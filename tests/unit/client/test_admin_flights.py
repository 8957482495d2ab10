"""What members recorded and hold, put together and judged: functions of values."""

import msgspec
import pytest

from tests.unit.client.group_facts import BOTH, NOW, facts, held, look, state
from tests.unit.client.test_admin_diagnosis import found
from trimtab.balance.recorder import Event, Flight, Kind
from trimtab.client.admin.flights import changes_of, flight_of, rebalances_in
from trimtab.client.admin.simulation import Shared, Wanted, queues_after, simulate
from trimtab.client.holdings import TOLD_QUEUES_MAX, Holding, holdings_text, read_holdings
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue

Q0, Q1 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)


def flight(client_id: str, *events: Event) -> Flight:
    return Flight(group="g", client_id=client_id, events=events, counts={}, left_out=0)


def event(at_ms: int, kind: Kind, queue: MessageQueue | None = None, **more: object) -> Event:
    return Event(at_ms=at_ms, kind=kind.value, queue=queue, **more)  # type: ignore[arg-type]


# --- history --------------------------------------------------------------------------------------------------------


def test_a_release_and_the_acquisition_after_it_are_one_move() -> None:
    giver = flight(
        "c-1",
        event(0, Kind.ACQUIRED, Q0, cause="start", duration_ms=4),
        event(990, Kind.DRAINING, Q0),
        event(1_000, Kind.RELEASED, Q0, cause="c-2 joined", duration_ms=10),
    )
    taker = flight("c-2", event(1_030, Kind.ACQUIRED, Q0, cause="c-1 joined", duration_ms=900))
    first, move = changes_of([giver, taker])
    assert (first.before, first.member, first.took_ms, first.unheld_ms) == (None, "c-1", 4, None)
    assert (move.before, move.member, move.cause) == ("c-1", "c-2", "c-2 joined")
    assert (move.took_ms, move.unheld_ms) == (40, 30)


def test_clocks_that_differ_a_little_do_not_part_the_two_sides() -> None:
    giver = flight("c-1", event(0, Kind.ACQUIRED, Q0), event(1_200, Kind.RELEASED, Q0, duration_ms=10))
    taker = flight("c-2", event(1_100, Kind.ACQUIRED, Q0), event(1_900, Kind.RELEASED, Q0))
    moves = [change for change in changes_of([giver, taker]) if change.what == "moved"]
    assert [(move.before, move.member, move.unheld_ms) for move in moves] == [
        (None, "c-1", None),
        ("c-1", "c-2", 0),
    ]


def test_what_a_member_that_is_gone_had_is_known_from_who_took_it() -> None:
    taker = flight(
        "c-2",
        event(500, Kind.TAKEN_OVER, other="c-1", cause="c-1 is gone"),
        event(510, Kind.ACQUIRED, Q0, cause="c-1 is gone"),
    )
    told, move = changes_of([taker])
    assert (told.what, told.before) == ("taken-over", "c-1")
    assert (move.what, move.before, move.member) == ("moved", "c-1", "c-2")


def test_moves_with_little_quiet_between_them_are_one_rebalance() -> None:
    events = (
        event(100, Kind.ACQUIRED, Q0, cause="x", duration_ms=50),
        event(900, Kind.ACQUIRED, Q1, cause="x"),
        event(9_000, Kind.ACQUIRED, Q0, cause="y"),
        event(9_001, Kind.FENCED, Q0),
    )
    one, two = rebalances_in(changes_of([flight("c-1", *events)]))
    assert (one.at_ms, one.took_ms, one.moved, one.cause) == (50, 850, 2, "x")
    assert (two.moved, two.cause) == (1, "y")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"group": 1}', "null"])
def test_what_nobody_can_read_is_passed_over(text: str | None) -> None:
    properties = {} if text is None else {"trimtab.flight": text}
    assert flight_of(state("c-1", properties=properties)) is None
    assert read_holdings(text) == ()


def test_holdings_travel_and_are_bounded() -> None:
    one = Holding(topic="t", broker="a", queue_id=0, since_ms=5, lease_age_ms=None, in_flight=3)
    assert read_holdings(holdings_text([one])) == (one,)
    assert len(read_holdings(holdings_text([one] * (TOLD_QUEUES_MAX + 1)))) == TOLD_QUEUES_MAX


# --- diagnosis ------------------------------------------------------------------------------------------------------


def ours(
    client_id: str, queue_id: int, *events: Event, mode: str = "leased", age_ms: int | None = 100
) -> object:
    text = msgspec.json.encode(flight(client_id, *events)).decode()
    properties = {"trimtab.mode": mode, "trimtab.flight": text, "PROP_CONSUMEORDERLY": "true"}
    return state(client_id, held(queue_id, since_ms=NOW - 9_000, lease_age_ms=age_ms), properties=properties)


def causes(*states: object) -> dict[str, str]:
    judged = found(facts(look(*states), BOTH))  # type: ignore[arg-type]
    return {cause: finding.evidence for cause, finding in judged.items()}


def test_members_with_leases_that_are_well_yield_nothing_also_in_order() -> None:
    assert causes(ours("c-1", 0), ours("c-2", 1)) == {}


def test_a_group_that_fell_back_is_told_why_and_forgotten_when_leases_are_back() -> None:
    fell = event(NOW - 5, Kind.FELL_BACK, cause="j-1 in the group does not keep leases")
    back = event(NOW - 2, Kind.JOINED, cause="all members keep leases again")
    told = causes(
        ours("c-1", 0, fell, mode="classic", age_ms=None), ours("c-2", 1, fell, mode="classic", age_ms=None)
    )
    assert (
        told["fallen-back"]
        == "c-1, c-2 gave up leases for classic mode: j-1 in the group does not keep leases"
    )
    assert causes(ours("c-1", 0, fell, back), ours("c-2", 1, fell, back)) == {}


def test_leases_beside_members_that_keep_none() -> None:
    assert (
        "c-1 share by leases, c-2 by classic" in causes(ours("c-1", 0), state("c-2", held(1)))["mixed-modes"]
    )


def test_a_lease_that_is_not_renewed() -> None:
    assert "c-1 has not renewed its lease of t@a:0 for 9 s" in causes(
        ours("c-1", 0, age_ms=9_000), ours("c-2", 1)
    ).get("expired-leases", "")


def test_leases_that_were_lost_or_fenced_lately() -> None:
    old = event(NOW - 3_600_000, Kind.LOST, Q0, cause="long ago")
    assert causes(ours("c-1", 0, old), ours("c-2", 1)) == {}
    lost = event(NOW - 60_000, Kind.LOST, Q0, cause="c-2 has it")
    fenced = event(NOW - 60_000, Kind.FENCED, Q1, cause="the lease could not be renewed")
    told = causes(ours("c-1", 0, lost), ours("c-2", 1, fenced))
    assert told["lost-leases"].startswith("c-1 lost t@a:0 within 10 minutes: c-2 has it")
    assert told["fenced-leases"].startswith("c-2 stopped by itself on t@a:1")


def test_who_holds_a_queue_twice_is_told_with_since_when() -> None:
    told = causes(ours("c-1", 0), ours("c-2", 0))
    assert "t@a:0 by c-1 (for 9 s), c-2 (for 9 s)" in told["double-held-queues"]


# --- simulation -----------------------------------------------------------------------------------------------------


def shared(members: int, queues: int) -> Shared:
    names = tuple(f"c-{number}" for number in range(members))
    found = tuple(MessageQueue("t", "ab"[number % 2], number // 2) for number in range(queues))
    holders = {queue: names[at * members // queues] for at, queue in enumerate(found)}
    return Shared(group="g", members=names, queues=found, holders=holders, lags=dict.fromkeys(found, 2))


def test_sticky_moves_the_fewest_and_everything_is_shared() -> None:
    result = simulate(shared(4, 16), Wanted(join=1))
    assert (result.moved, result.moved_min, result.moved_per_min, result.settled) == (3, 3, 1.0, True)
    assert sum(share.after or 0 for share in result.shares) == 16
    assert sum(share.lag_after for share in result.shares) == 32
    assert (result.shares[-1].member, result.shares[-1].before, result.shares[-1].after) == ("new-1", None, 3)


def test_where_brokers_do_not_tell_who_holds_what_it_is_done_as_members_do_it_by_leases_alone() -> None:
    now = msgspec.structs.replace(shared(4, 17), knows_holders=False)
    result = simulate(now, Wanted(join=1))
    assert not result.knows_holders
    assert result.moved_min <= result.moved <= result.moved_min + 2
    assert (result.settled, sum(share.after or 0 for share in result.shares)) == (True, 17)
    assert simulate(now, Wanted(strategy="lag")).knows_holders, "its members ask each other"


def test_classic_shares_out_of_nothing() -> None:
    result = simulate(shared(4, 16), Wanted(join=1, strategy="AVG", mode="classic"))
    assert result.moved > result.moved_min == 3
    assert result.max_mean_after == 1.25


def test_who_leaves_has_nothing_then_and_queues_can_be_added_and_taken() -> None:
    result = simulate(shared(4, 16), Wanted(leave=("c-0",), more_queues=8))
    assert (result.queues, result.moved, result.shares[0].after) == (24, 4, None)
    assert simulate(shared(2, 4), Wanted(more_queues=-2)).queues == 2
    retries = (MessageQueue("%RETRY%g", "a", 0), Q0)
    assert queues_after(retries, 2) == (retries[0], Q0, Q1, MessageQueue("t", "a", 2))


def test_moves_where_none_was_needed_have_no_ratio() -> None:
    swapped = Shared(
        group="g", members=("c-0", "c-1"), queues=(Q0, Q1), holders={Q0: "c-1", Q1: "c-0"}, lags={}
    )
    result = simulate(swapped, Wanted(strategy="AVG", mode="classic"))
    assert (result.moved, result.moved_min, result.moved_per_min) == (2, 0, None)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(leave=("c-00",)), "did you mean c-0"),
        (Wanted(leave=("c-0", "c-1")), "no member left"),
        (Wanted(strategy="stiky"), "did you mean 'sticky'"),
        (Wanted(more_queues=-9), "less than 9 queues"),
    ],
)
def test_what_cannot_be_simulated_is_said(wanted: Wanted, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        simulate(shared(2, 4), wanted)
