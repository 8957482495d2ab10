"""What of a table fits a window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.cli.fitting import GAP, Fitted, fit, shortened
from trimtab.cli.group_rows import QUEUE_RIGHT, QUEUE_SPARE, QUEUE_TITLES

ROW = (
    "orders", "broker-a", "0", "10.0.0.7@15717#73f810e8f49e#tt", "959ms", "34m12s", "1,234,567", "12,345", "1m05s", "1,200/s", "10s"
)  # fmt: skip


def shown(window: int) -> list[str]:
    fitted = fit(QUEUE_TITLES, [ROW], window, right=QUEUE_RIGHT, spare=QUEUE_SPARE)
    return [QUEUE_TITLES[at] for at in fitted.widths]


def test_a_wide_window_shows_all_as_it_is() -> None:
    fitted = fit(QUEUE_TITLES, [ROW], 140, right=QUEUE_RIGHT, spare=QUEUE_SPARE)
    assert fitted == Fitted({at: max(len(QUEUE_TITLES[at]), len(ROW[at])) for at in range(len(ROW))})


def test_a_usual_window_shows_who_holds_a_queue_and_how_far_behind_it_is() -> None:
    assert shown(100) == list(QUEUE_TITLES)
    assert shown(80) == [title for title in QUEUE_TITLES if title not in ("LEASE", "SINCE")]
    assert shown(40) == ["TOPIC", "QUEUE", "HOLDER", "LAG"]


def test_figures_times_and_what_is_copied_are_never_cut() -> None:
    titles = ("ID", "AT", "N", "TEXT")
    row = ("A" * 32, "2026-01-31 12:00:00.000", "1,234,567", "t" * 50)
    for window in range(1, 140):
        fitted = fit(titles, [row], window, right=("N",), whole=("ID",))
        for at, width in fitted.widths.items():
            assert width == len(row[at]) or titles[at] == "TEXT" or len(fitted.widths) == 1


@given(
    rows=st.lists(st.tuples(*[st.text(max_size=40)] * 4), max_size=5),
    window=st.integers(1, 200),
    spare=st.sampled_from([(), ("b",), ("d", "a")]),
)
def test_a_table_fits_every_window(rows: list[tuple[str, ...]], window: int, spare: tuple[str, ...]) -> None:
    titles = ("a", "b", "c", "d")
    fitted = fit(titles, rows, window, right=("c",), spare=spare)
    assert fitted.widths
    assert sum(fitted.widths.values()) + GAP * (len(fitted.widths) - 1) <= window
    assert {*fitted.left_out} == {title for at, title in enumerate(titles) if at not in fitted.widths}


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("10.0.0.7@15717#73f810e8f49e#tt", 12, "10.0.0…9e#tt"),
        ("fits", 4, "fits"),
        ("ab", 1, "…"),
        ("abc", 2, "a…"),
    ],
)
def test_a_text_that_is_too_long_keeps_both_ends(text: str, width: int, short: str) -> None:
    assert shortened(text, width) == short


@given(text=st.text(), width=st.integers(1, 30))
def test_no_text_is_longer_than_its_column(text: str, width: int) -> None:
    assert len(shortened(text, width)) <= width
