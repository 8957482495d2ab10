"""What verbs decide without asking anybody."""

import time
from dataclasses import replace

import pytest

from trimtab.cli.demo import _judge
from trimtab.cli.demo_counts import GroupCounts
from trimtab.cli.group import version_text
from trimtab.cli.group_check import level_of, nagios_code, nagios_text
from trimtab.cli.group_events import as_line, event_text, events_between, read_events, rebalances_of
from trimtab.cli.message_form import Format
from trimtab.cli.message_sending import Form, message_of
from trimtab.cli.moments import (
    Place,
    parse_duration_ms,
    parse_place,
    parse_time,
    rate_text,
    span_text,
    time_text,
)
from trimtab.cli.shell import UNREACHABLE, exit_code_of, like
from trimtab.client.admin.rows import BrokerFailure, GroupProgress, QueueProgress
from trimtab.errors import MaybeStoredError, RequestTimeoutError, SettingsError, TrimtabError
from trimtab.model import MessageQueue
from trimtab.wire.codes import Version

NOW = 1_800_000_000_000
Q0, Q1 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("begin", Place("begin")),
        ("Earliest", Place("begin")),
        ("end", Place("end")),
        ("42", Place("offset", 42)),
        ("-15m", Place("time", NOW - 900_000)),
        ("-1.5h", Place("time", NOW - 5_400_000)),
        ("@1234", Place("time", 1_234)),
        ("2027-01-15T08:00:00+00:00", Place("time", NOW)),
        ("2027-01-15T09:00+01:00", Place("time", NOW)),
    ],
)
def test_places_as_people_write_them(text: str, place: Place) -> None:
    assert parse_place(text, NOW) == place


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00",
        "9999-12-31T23:59:59-12:00",
        "1969-12-31T00:00+00:00",
        "@" + "9" * 20,
        "@" + "9" * 5_000,
        "9" * 19,
        "9" * 5_000,
        "-" + "9" * 400 + "d",
    ],
    ids=lambda text: text[:30],
)
def test_a_place_that_no_number_can_hold_is_said(text: str) -> None:
    with pytest.raises(SettingsError, match="is no place"):
        parse_place(text, NOW)


def test_longer_ago_than_time_is_its_begin() -> None:
    assert parse_time("-100000d", NOW) == 0


@pytest.mark.parametrize("text", ["", "tomorrow", "-15", "-m", "@", "1.5", "2027-13-01"])
def test_what_is_no_place_is_said(text: str) -> None:
    with pytest.raises(SettingsError, match="is no place"):
        parse_place(text, NOW)


def test_times_there_and_back() -> None:
    assert parse_time(time_text(NOW), 0) == NOW
    assert time_text(None) == "-"


@pytest.mark.parametrize(
    ("text", "ms"), [("250ms", 250), ("30s", 30_000), ("5", 5_000), ("1.5m", 90_000), ("1d", 86_400_000)]
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


def test_a_duration_that_is_none() -> None:
    with pytest.raises(SettingsError, match="is no duration"):
        parse_duration_ms("soon")
    with pytest.raises(SettingsError, match="is no duration"):
        parse_duration_ms("9" * 400)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (850, "850ms"),
        (12_000, "12s"),
        (185_000, "3m05s"),
        (7_800_000, "2h10m"),
        (356_400_000, "4d03h"),
    ],
)
def test_spans(ms: int | None, text: str) -> None:
    assert span_text(ms) == text


def test_rates() -> None:
    assert [rate_text(value) for value in (None, 0, 1.25, 1_234.5)] == ["-", "0/s", "1.2/s", "1,234/s"]


def test_levels_are_passed_by_more_than_the_limit() -> None:
    assert [level_of(lag, 10, 20) for lag in (10, 11, 20, 21)] == ["ok", "warning", "warning", "critical"]


def test_a_name_that_is_like_an_unknown_one() -> None:
    names = ["orders", "billing", "%RETRY%orders"]
    assert like("topic 'ordrs' does not exist", names) == "; did you mean orders?"
    assert like("topic 'zzz' does not exist", names) == ""
    assert like("topic '%RETRY%ordres' does not exist", names) == "; did you mean %RETRY%orders?"


def test_events_and_the_rebalances_they_make() -> None:
    nobody: dict[MessageQueue, tuple[str, ...]] = {}
    start = events_between(
        "g", 1_000, (frozenset(), frozenset({"c-1"})), (nobody, {Q0: ("c-1",), Q1: ("c-1",)})
    )
    leave = events_between("g", 60_000, (frozenset({"c-1"}), frozenset({"c-2"})), ({Q0: ("c-1",)}, nobody))
    taken = events_between("g", 62_500, (frozenset({"c-2"}), frozenset({"c-2"})), (nobody, {Q0: ("c-2",)}))
    assert [event_text(event) for event in leave] == ["c-2 joined", "c-1 left", "t@a:0: c-1 -> nobody"]
    events, bad = read_events([*(as_line(event) for event in (*start, *leave, *taken)), "", "odd"])
    assert bad == 1
    first, second = rebalances_of(events)
    assert (first.cause, first.moved, first.took_ms) == ("c-1 joined", 2, 0)
    assert (second.cause, second.moved, second.took_ms, second.unheld_ms) == (
        "c-2 joined, c-1 left",
        1,
        2_500,
        2_500,
    )


def test_a_format_that_is_wrong_says_what_is_known() -> None:
    for text in ("%z", "100%"):
        with pytest.raises(SettingsError, match="known are %t"):
            Format(text)


def test_lines_become_messages() -> None:
    form = Form(topic="t", tag="eu", keys=("k",), properties={"a": "b"}, key_delimiter=b":")
    message = message_of(form, b"o-1:body:rest")
    assert (message.body, message.keys, message.tag, message.properties) == (
        b"body:rest",
        ("k", "o-1"),
        "eu",
        {"a": "b"},
    )
    assert message_of(form, b"no key").keys == ("k",)


def test_versions_as_java_names_them() -> None:
    for version in Version:
        if Version.V4_9_0 <= version < Version.HIGHER_VERSION:
            assert version_text(version) == version.name
    assert [version_text(number) for number in (121, 398, 412, 513, 612)] == [
        "121",
        "V4_9_3_SNAPSHOT",
        "V5_0_0_SNAPSHOT",
        "V5_5_0",
        "612",
    ]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC"])
def test_times_have_no_zone_in_any_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert len(time_text(NOW)) == len("2027-01-15 08:00:00.000")
        assert parse_time(time_text(NOW), 0) == NOW
    finally:
        monkeypatch.undo()
        time.tzset()


def test_nagios_hears_critical_whoever_is_silent_and_else_that_it_is_not_known() -> None:
    row = QueueProgress(topic="t", broker="a", queue_id=0, offset=0, max_offset=9)
    all_told = GroupProgress(group="g", queues=(row,))
    failure = BrokerFailure(broker="b", address="h:1", error="hangs", unreachable=True)
    partly = GroupProgress(group="g", queues=(row,), failures=(failure,))
    assert [nagios_code(all_told, level) for level in ("ok", "warning", "critical")] == [0, 1, 2]
    assert [nagios_code(partly, level) for level in ("ok", "warning", "critical")] == [3, 3, 2]
    assert nagios_text(all_told, "ok", 10, None) == "OK - 9 messages wait for group g | lag=9;10;;0"
    assert nagios_text(partly, "ok", 10, None).startswith("UNKNOWN - at least 9 messages wait")
    assert nagios_text(partly, "critical", None, 5).startswith("CRITICAL - 9")


def test_a_demo_whose_promises_do_not_hold_does_not_end_well() -> None:
    fine = GroupCounts(
        mode="classic", topic="t", sent=10, send_errors=0, delivered=12, twice_planned=2, twice_crash=1, lost=0, double_held_s=1.0,
        unheld_s=0.0, moved=3, moved_min=2, settle_ms_max=5,
    )  # fmt: skip
    leased = replace(fine, mode="leased", twice_planned=0)
    _judge([fine, leased], archived=20)
    for broken in (replace(leased, lost=1), replace(leased, twice_planned=1), replace(leased, sent=11)):
        with pytest.raises(TrimtabError, match="please report"):
            _judge([fine, broken], archived=20)


def test_a_message_that_may_be_stored_ends_like_a_server_that_did_not_answer() -> None:
    earlier, last = RequestTimeoutError("no answer of broker-a"), TrimtabError("refused")
    assert exit_code_of(MaybeStoredError(earlier, last)) == UNREACHABLE
