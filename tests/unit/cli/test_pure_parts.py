"""What verbs decide without asking anybody."""

import pytest

from trimtab.cli.group import version_text
from trimtab.cli.group_check import level_of
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
from trimtab.cli.shell import like
from trimtab.errors import SettingsError
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
    form = Form(topic="t", tag="eu", keys=("k",), properties={"a": "b"}, key_delimiter=":")
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
