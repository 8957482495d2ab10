"""What is shown, from facts that are given."""

import html
import json
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.client import group_facts
from trimtab.balance.recorder import Event, Flight
from trimtab.client.admin.diagnosis import Finding
from trimtab.client.admin.queue_lines import queue_lines
from trimtab.client.admin.rows import (
    BrokerStates,
    ClusterView,
    GroupLine,
    GroupLines,
    Names,
    QueueLine,
    QueueRange,
    Rate,
)
from trimtab.dashboard.answers import Group, HeldSpan, MemberBrief, Moment, Point
from trimtab.dashboard.bodies import hex_dump
from trimtab.dashboard.charts import bar, holding_chart, line_chart
from trimtab.dashboard.drawing import heat, labels, share_text, short, skew_text
from trimtab.dashboard.group_view import group_view, lines_since
from trimtab.dashboard.history import History, HistoryError
from trimtab.dashboard.moves import Moves
from trimtab.dashboard.overview_view import overview_view
from trimtab.dashboard.serving import history_file
from trimtab.dashboard.simulate import reports
from trimtab.dashboard.timeline import held_since, moments_of, scrub, timeline
from trimtab.dashboard.topic_watch import queue_sizes, shares
from trimtab.dashboard.verdicts import verdicts
from trimtab.dashboard.what_if import STRATEGIES, what_if
from trimtab.dashboard.wishes import SimulationWish
from trimtab.errors import SettingsError
from trimtab.model import MessageQueue
from trimtab.sim import run


def group(members: list[str], holders: dict[int, str], queues: int = 8) -> Group:
    lines = tuple(
        QueueLine(
            topic="orders", broker="a", queue_id=number, holders=(holders[number],) if number in holders else (),
            lease=None, lease_age_ms=None, since_ms=None, offset=0, max_offset=number, lag=number, lag_ms=None, per_s=None, eta_ms=None,
        )
        for number in range(queues)
    )  # fmt: skip
    return Group(
        group="g", at_ms=0, queues=lines, queue_count=queues, lag=0, consumed_per_s=None, eta_ms=None, skew_queues=None, skew_lag=None,
        unheld=0, double_held=0, findings=(), broadcast=False, failures=(), lag_history=(),
        members=tuple(MemberBrief(client_id=name, address="", language="PYTHON", queues=None, lag=0) for name in members),
    )  # fmt: skip


def even(names: list[str], queues: int = 8) -> dict[int, str]:
    return {number: names[number % len(names)] for number in range(queues)}


def test_one_more_member_moves_the_fewest_queues() -> None:
    one = group(["m1", "m2"], even(["m1", "m2"]))
    found = what_if(one, one.queues, join=1, leave=(), strategy="sticky")
    assert found.settled
    assert sorted(share.queues_then for share in found.shares) == [2, 3, 3]
    assert (found.moved, found.moved_min) == (2, 2)
    assert [share.member for share in found.shares] == ["m1", "m2", "new-1"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_gives_every_queue_to_one_member(strategy: str) -> None:
    one = group(["m1", "m2"], even(["m1", "m2"]))
    found = what_if(one, one.queues, join=2, leave=["m1"], strategy=strategy)
    assert sum(share.queues_then for share in found.shares) == 8
    assert {share.member for share in found.shares if share.queues_then} <= {"m2", "new-1", "new-2"}
    assert found.settled


def test_a_what_if_that_cannot_be_says_so() -> None:
    one = group(["m1"], {})
    for options in (
        {"join": 0, "leave": ["m1"], "strategy": "sticky"},
        {"join": 0, "leave": ["x"], "strategy": "sticky"},
        {"join": 0, "leave": (), "strategy": "x"},
    ):
        with pytest.raises(SettingsError):
            what_if(one, one.queues, **options)  # type: ignore[arg-type]


QUEUE = MessageQueue("orders", "a", 0)


def moments() -> list[Moment]:
    first = [
        Event(at_ms=1_000, kind="acquired", queue=QUEUE, cause="m1 joined", duration_ms=4),
        Event(at_ms=20_000, kind="released", queue=QUEUE, cause="m2 joined", other="m2", in_flight=3),
    ]
    second = [Event(at_ms=20_050, kind="acquired", queue=QUEUE, other="m1")]
    seen = Moment(at_ms=20_060, source="seen", kind="moved", member="m2", queue=str(QUEUE), other="m1")
    joined = Moment(at_ms=19_990, source="seen", kind="joined", member="m2")
    return [*moments_of("m1", first), *moments_of("m2", second), seen, joined]


def test_the_timeline_has_what_was_recorded_and_nothing_else() -> None:
    flights = {"m1": Flight(group="g", client_id="m1", events=(), counts={}, left_out=7)}
    found = timeline("g", moments(), flights, ["m1", "java"])
    assert [(one.at_ms, one.moved, len(one.moments)) for one in found.rebalances] == [
        (1_000, 1, 1),
        (19_990, 1, 3),
    ]
    assert found.rebalances[1].cause == "m2 joined"
    assert found.not_recording == ("java",)
    assert found.left_out == 7
    assert timeline("g", [], {}, []).rebalances == ()
    assert held_since(moments()) == {("m2", str(QUEUE)): 20_050}


def test_scrubbing_says_what_was_known_then() -> None:
    def holders(at_ms: int) -> dict[str, tuple[str, ...] | None]:
        return {
            one.queue: one.holders
            for one in scrub("g", [str(QUEUE), "orders@a:1"], moments(), at_ms).holdings
        }

    assert holders(999) == {str(QUEUE): None, "orders@a:1": None}
    assert holders(1_000)[str(QUEUE)] == ("m1",)
    assert holders(20_000)[str(QUEUE)] == ()
    assert holders(30_000) == {str(QUEUE): ("m2",), "orders@a:1": None}


def test_the_history_keeps_changes_and_stays_small(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite", figures_max=500, moments_max=300)
    for number in range(3):
        history.add_figures(number * 1_000, [("lag", 5.0)])
    history.add_figures(61_000, [("lag", 5.0)])
    history.add_figures(62_000, [("lag", 6.0)])
    assert [point.at_ms for point in history.figures("lag", 0)] == [0, 61_000, 62_000]
    assert history.figures("other", 0) == ()
    for number in range(1_500, 3_000):
        history.add_figures(number, [("n", float(number))])
    kept = history.figures("n", 0, points_max=10_000)
    assert kept[-1].value == 2_999
    assert kept[0].value > 1_500
    thin = history.figures("n", 0, points_max=10)
    assert len(thin) <= 11
    assert thin[-1] == kept[-1]
    for start in range(0, 2_000, 100):
        some = [Moment(at_ms=start + n, source="seen", kind="joined", member="m") for n in range(100)]
        history.add_moments("g", some + some)
    found = history.moments("g")
    assert found[-1].at_ms == 1_999
    assert found[0].at_ms > 500
    assert len({one.at_ms for one in found}) == len(found)
    history.close()
    again = History(tmp_path / "h.sqlite")
    assert again.moments("g")[-1].at_ms == 1_999
    again.close()
    (tmp_path / "broken").write_bytes(b"no database" * 100)
    with pytest.raises(HistoryError, match="move it away"):
        History(tmp_path / "broken")


def test_a_history_whose_file_is_full_lets_the_older_half_go_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, most = tmp_path / "h.sqlite", 512 * 1024
    history = History(path, file_bytes_max=most)
    moments = [
        Moment(at_ms=number, source="seen", kind="joined", member=f"{number}-" + "m" * 900)
        for number in range(2_000)
    ]
    for start in range(0, len(moments), 10):
        history.add_moments("g", moments[start : start + 10])
        history.add_figures(start, [("lag", float(start))])
    found = history.moments("g")
    assert not caplog.records
    assert found == tuple(moments[-len(found) :])  # the newest, without a gap
    assert 50 < len(found) < 500
    assert history.figures("lag", 0)[-1].at_ms == 1_990
    history.close()
    assert path.stat().st_size <= most


def test_small_forms() -> None:
    assert hex_dump(b"A\x00").startswith("00000000  41 00")
    assert hex_dump(b"A\x00").endswith("A.")
    assert line_chart([Point(at_ms=0, value=1)], "x", "c") == ""
    chart = line_chart([Point(at_ms=0, value=1), Point(at_ms=5_000, value=0)], "<lag>", "c")
    assert "&lt;lag&gt;: highest 1, last 0, over 5s" in chart
    assert 'width="100' in bar(7.0, "x")
    assert short("x" * 28) == "x" * 28
    assert len(short("x" * 100)) == 28
    assert (share_text(None), share_text(0.256), skew_text(None), skew_text(1.5)) == (
        "-",
        "26 %",
        "-",
        "1.50",
    )


def test_moves_between_members_of_two_kinds_are_told() -> None:
    """A queue that went from a member with a recorder to one without is in no recorder as taken."""
    recorded = moments_of("ours", [Event(at_ms=1_000, kind="acquired", queue=QUEUE)])

    def seen(after: str, before: str) -> tuple[str, ...]:
        one = Moment(at_ms=9_000, source="seen", kind="moved", member=after, queue=str(QUEUE), other=before)
        told = timeline("g", [*recorded, one], {}, ["ours", "java"])
        return tuple(moment.member for moment in told.rebalances[-1].moments if moment.kind == "moved")

    assert seen("java", "ours") == ("java",)
    assert seen("java + ours", "ours") == ("java + ours",)
    assert seen("nobody", "java") == ("nobody",)
    assert seen("ours", "java") == ()
    assert seen("nobody", "ours") == ()


def test_what_if_counts_queues_that_are_not_shown() -> None:
    all_lines = group(["m1", "m2"], even(["m1", "m2"])).queues
    shown = msgspec.structs.replace(group(["m1", "m2"], even(["m1", "m2"])), queues=all_lines[:3])
    found = what_if(shown, all_lines, join=0, leave=(), strategy="sticky")
    assert sum(share.queues_then for share in found.shares) == len(all_lines)
    assert found.moved == 0


def test_a_held_queue_without_an_offset_is_shown() -> None:
    look = group_facts.look(
        group_facts.state("c-1", group_facts.held(0), group_facts.held(1)), offsets=(5,), ends=(9,)
    )
    facts = group_facts.facts(look, group_facts.view("a", group_facts.member("c-1")))
    lines = tuple(queue_lines(None, look))
    assert [(line.queue_id, line.holders, line.lag) for line in lines] == [
        (0, ("c-1",), 4),
        (1, ("c-1",), None),
    ]
    shown = group_view(facts, lines)
    assert (shown.queue_count, shown.unheld, shown.lag) == (2, 0, 4)
    assert [(one.queues, one.lag) for one in shown.members] == [(2, 4)]


def test_since_when_a_queue_is_held_is_taken_from_what_was_recorded() -> None:
    look = group_facts.look(group_facts.state("c-1", group_facts.held(0), group_facts.held(1)))
    lines = queue_lines(None, look)
    recorded = {("c-1", str(group_facts.held(0).queue)): 7}
    assert [line.since_ms for line in lines_since(lines, recorded)] == [7, None]
    assert lines_since(lines, {}) == tuple(lines)


def test_each_cluster_has_a_history_of_its_own() -> None:
    assert history_file(["a:1", "b:1"]) == history_file(["b:1", "a:1"])
    assert history_file(["a:1"]) != history_file(["b:1"])


def test_a_history_that_somebody_else_has_locked_loses_nothing(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite", locked_s_max=0.01)
    for number in range(10):
        history.add_figures(number, [("lag", float(number))])
    other = sqlite3.connect(tmp_path / "h.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    history.add_figures(100, [("lag", 100.0)])
    other.execute("ROLLBACK")
    other.close()
    history.add_figures(101, [("lag", 101.0)])
    assert [point.value for point in history.figures("lag", 0)] == [*map(float, range(10)), 101.0]
    history.close()


def test_a_history_that_is_too_long_is_cut_when_it_is_opened(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    for number in range(50):
        history.add_figures(number, [("lag", float(number))])
    history.close()
    again = History(tmp_path / "h.sqlite", figures_max=20)
    assert [point.value for point in again.figures("lag", 0)] == [float(number) for number in range(30, 50)]
    again.close()


def test_the_overview_says_what_is_wrong_with_groups() -> None:
    lines = (
        GroupLine(group="fine", members=2, lag=0, consumed_per_s=1.0),
        GroupLine(group="same", members=1, lag=0, consumed_per_s=1.0, same_ids=("c-1",)),
        GroupLine(group="alone", members=0, lag=7, consumed_per_s=0.0),
        GroupLine(group="unknown", members=None, lag=7, consumed_per_s=1.0),
        GroupLine(group="watched", members=2, lag=0, consumed_per_s=1.0),
    )
    broken = Finding(cause="double-held-queues", severity="broken", evidence="t@a:0 held by two", advice="")
    note = Finding(cause="x", severity="note", evidence="", advice="")
    found = overview_view(
        0, ClusterView(brokers=()), BrokerStates(brokers=()), GroupLines(groups=lines), Names(names=()),
        watched={"watched": (note, broken), "fine": (note,)},
    )  # fmt: skip
    needs = {one.group: one.needs or "" for one in found.groups}
    assert (needs["fine"], needs["unknown"]) == ("", "")
    assert "client id c-1 is connected more than once" in needs["same"]
    assert "no member is connected" in needs["alone"]
    assert needs["watched"].startswith("double-held-queues: t@a:0")


def test_looking_at_a_simulation_changes_nothing_in_it() -> None:
    wish = SimulationWish(scenario="join", mode="both", members=3, queues=6, seed=5)
    looked = reports(wish)
    for report, spans in zip(looked.reports, looked.holdings, strict=True):
        plain = run("join", mode=str(report["mode"]), members=3, queues=6, seed=5, broker_kind="ours")
        assert report["moved"] == plain.moved
        assert report["delivered_twice"] == plain.delivered_twice
        assert len({span.queue for span in spans}) == 6
        assert len({span.member for span in spans}) == 4
        assert all(span.until_s >= span.from_s for span in spans)


def values_of(chart: str) -> dict[str, Any]:
    found = re.search('data-values="([^"]*)"', chart)
    assert found is not None
    values: dict[str, Any] = json.loads(html.unescape(found[1]))
    return values


def test_charts_carry_their_values() -> None:
    spans = [
        HeldSpan(queue="q:10", member="<a>", from_s=0.0, until_s=4.0),
        HeldSpan(queue="q:9", member="b", from_s=3.0, until_s=9.0),
    ]
    chart = holding_chart(spans, 10.0, "classic", "run")
    assert "<a>" not in chart
    values = values_of(chart)
    assert (values["queues"], values["members"]) == (["q:9", "q:10"], ["<a>", "b"])
    assert values["spans"] == [[1, 0, 0.0, 4.0], [0, 1, 3.0, 9.0]]
    assert holding_chart([], 1.0, "x", "run") == ""
    points = [Point(at_ms=1_000, value=1), Point(at_ms=30_000, value=0)]
    marks = timeline("g", moments(), {}, []).rebalances
    assert values_of(line_chart(points, "lag", "c", marks))["marks"] == [
        [1_000, "1 moved: m1 joined"],
        [19_990, "1 moved: m2 joined"],
    ]


def test_a_rebalance_says_from_whom_to_whom() -> None:
    first, second = timeline("g", moments(), {}, []).rebalances
    assert [(one.giver, one.taker, one.took_ms, one.in_flight) for one in first.moves] == [
        (None, "m1", 4, None)
    ]
    assert [(one.giver, one.taker, one.queues) for one in second.moves] == [("m1", "m2", (str(QUEUE),))]
    assert second.moves[0].in_flight == 3

    def told(*events: tuple[str, Event]) -> list[tuple[str | None, str | None]]:
        some = [moment for member, event in events for moment in moments_of(member, [event])]
        return [(one.giver, one.taker) for one in timeline("g", some, {}, []).rebalances[-1].moves]

    taken = ("m1", Event(at_ms=1, kind="acquired", queue=QUEUE))
    gone = ("m1", Event(at_ms=9_000, kind="released", queue=QUEUE))
    again = ("m1", Event(at_ms=9_500, kind="acquired", queue=QUEUE))
    later = ("m2", Event(at_ms=19_000, kind="taken-over", queue=QUEUE))
    assert told(taken, gone) == [("m1", None)]
    assert told(taken, gone, again) == []
    assert told(taken, gone, later) == [("m1", "m2")]
    seen = Moment(at_ms=90_000, source="seen", kind="moved", member="java", queue=str(QUEUE), other="m1")
    assert [(one.giver, one.taker) for one in Moves().of([seen])] == [("m1", "java")]


def test_names_are_told_apart_by_what_differs() -> None:
    assert labels(["10.0.0.1@9#1", "10.0.0.2@7#2"]) == {"10.0.0.1@9#1": "…1@9#1", "10.0.0.2@7#2": "…2@7#2"}
    assert labels(["c-1", "c-2"]) == {"c-1": "c-1", "c-2": "c-2"}
    assert labels(["same-1", "same-1"]) == {"same-1": "same-1"}
    assert labels(["a" * 40]) == {"a" * 40: "aaaaaaaa…aaaaaaaaa"}
    assert labels([]) == {}
    assert [heat(None, 9), heat(0, 9), heat(1, 0), heat(1, 9), heat(9, 9)] == [0, 0, 0, 1, 4]


def test_hot_queues_are_those_that_get_more_while_something_comes_in() -> None:
    def rows(*ends: int) -> list[QueueRange]:
        return [
            QueueRange(topic="t", broker="a", queue_id=number, min_offset=0, max_offset=end)
            for number, end in enumerate(ends)
        ]

    first = queue_sizes(rows(900, 10, 10, 10), None, 1_000)
    assert [(one.per_s, one.hot) for one in first] == [
        (None, True),
        (None, False),
        (None, False),
        (None, False),
    ]
    before = (1_000, {("a", 0): 900, ("a", 1): 10, ("a", 2): 10})
    then = queue_sizes(rows(900, 210, 14, 10), before, 3_000)
    assert [(one.per_s, one.hot) for one in then] == [
        (0.0, False),
        (100.0, True),
        (2.0, False),
        (None, False),
    ]
    assert [one.per_s for one in queue_sizes(rows(5), (1_000, {("a", 0): 900}), 3_000)] == [0.0]

    def rate(broker: str, per_s: float) -> Rate:
        return Rate(
            broker=broker, per_s_minute=per_s, per_s_hour=0, per_s_day=0, sum_minute=0, sum_hour=0, sum_day=0
        )

    shared = shares([rate("a", 3.0), rate("b", 1.0)])
    assert [one.share for one in shared] == [0.75, 0.25]


def test_verdicts_answer_in_a_word() -> None:
    def tones(one: Group, past: Sequence[Moment] = ()) -> list[tuple[str, str]]:
        return [(found.answer, found.tone) for found in verdicts(one, timeline("g", past, {}, []))]

    def counted(*counts: int | None, **fields: Any) -> Group:
        names = [f"m{number}" for number in range(len(counts))]
        known = [count for count in counts if count is not None]
        one = group(names, {})
        briefs = [
            msgspec.structs.replace(brief, queues=count)
            for brief, count in zip(one.members, counts, strict=True)
        ]
        skew = max(known) * len(known) / sum(known) if known else None
        return msgspec.structs.replace(one, members=tuple(briefs), skew_queues=skew, **fields)

    assert tones(counted(4, 4)) == [
        ("yes", "good"),
        ("4 each", "good"),
        ("nothing waits", "good"),
        ("not recorded", "plain"),
    ]
    assert tones(counted(1, 9, double_held=2))[:2] == [("no: 2 twice", "bad"), ("1 to 9 each", "bad")]
    assert tones(counted(4, 4, unheld=1))[0] == ("no: 1 by nobody", "bad")
    assert tones(counted(4, None, unheld=1))[:2] == [("not told", "plain"), ("4 for one", "plain")]
    assert tones(counted(3, 5))[1] == ("3 to 5 each", "plain")
    assert tones(counted(lag=5))[:2] == [("by nobody", "bad"), ("-", "plain")]
    assert tones(counted(8, 8, broadcast=True))[:2] == [("by everyone", "plain"), ("-", "plain")]
    assert tones(counted(4, 4, lag=5, consumed_per_s=0.0))[2] == ("5 wait", "bad")
    assert tones(counted(4, 4, lag=5))[2] == ("5 wait", "plain")
    assert tones(counted(4, 4, lag=5, consumed_per_s=1.0, eta_ms=5_000))[2] == ("5 wait", "plain")
    assert tones(counted(4, 4, at_ms=30_060), moments())[3] == ("10s ago", "plain")
