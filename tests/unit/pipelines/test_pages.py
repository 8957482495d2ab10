"""The pages: whole, without anything from elsewhere, and safe with any name."""

import re
import xml.etree.ElementTree as ET

from trimtab.model import MessageQueue
from trimtab.pipelines.balance_page import balance_page
from trimtab.pipelines.drawing import COLOURS, bars, colour, lines
from trimtab.pipelines.holders import Span, facts_of, moves_of
from trimtab.pipelines.sweep import TITLES, sweep_page

EVIL = "<script>alert('x')</script>"


def svgs(text: str) -> list[ET.Element]:
    """Every chart, read as XML."""
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_a_balance_page_is_whole_and_needs_nothing_else() -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    spans = [Span("g", queue, "a", 0, 4_000, 9, 0), Span("g", queue, EVIL, 3_000, 9_000, 7, 0)]
    loads = {("g", "a"): 9, ("g", EVIL): 7}
    moves = moves_of(spans)
    text = balance_page(
        groups=facts_of(spans, moves, loads, {"g": 1}),
        spans=spans,
        moves=moves,
        loads=loads,
        rates=[("g", "a", 0, 4), ("g", "a", 2_000, 5), ("g", EVIL, 3_000, 7)],
        width_ms=1_000,
        latency=[{"group": "g", "what": "queueing", "messages": 16, "p50": 1, "p95": 2, "p99": 3, "max": 4}],
        twice=[{"group": "g", "topic": "orders", "broker": "broker-a", "queue": 0, "offset": 3, "message_id": "m", "times": 2,
                "first_ms": 3_000, "last_ms": 3_100, "members": ["a", EVIL]}],
    )  # fmt: skip
    assert len(svgs(text)) == 4
    assert "<script" not in text
    assert "://" not in text
    assert "prefers-color-scheme: dark" in text


def test_a_page_without_queues_still_says_what_is_known() -> None:
    facts = facts_of([], [], {("g", "a"): 3}, {})
    text = balance_page(
        groups=facts, spans=[], moves=[], loads={}, rates=[], width_ms=1_000, latency=[], twice=[]
    )
    assert "<td>g</td>" in text


def test_charts_of_nothing_and_of_zeros_can_be_drawn() -> None:
    for drawn in (bars([]), bars([("a", 0)]), lines([], 0, 0), lines([[(0, 0.0)]], 0, 0)):
        assert len(svgs(drawn)) == 1
    assert colour(COLOURS) == colour(0)


def test_a_sweep_page_passes_over_figures_that_are_not_there() -> None:
    row = ("join", "leased", "sticky", 2, None, 1.0, 0.0, 0.1, 0.0, 0, 0, 1.5, 0)
    assert len(row) == len(TITLES)
    assert len(svgs(sweep_page([row]))) == 4
