"""What charts show, as figures that the page's script draws with Chart.js. PURE.

The data is in an attribute of the figure, the gist of it in words below: for whoever cannot see the drawing, or has no scripts.
"""

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from trimtab.cli.moments import number_text, span_text
from trimtab.dashboard.answers import HeldSpan, Point, Rebalance

MARKS_MAX = 50


def line_chart(points: Sequence[Point], label: str, name: str, marks: Sequence[Rebalance] = ()) -> Markup:
    """A figure over time; empty with fewer than two points. Rebalances are marked on it."""
    if len(points) < 2:
        return Markup("")
    begin, end = points[0].at_ms, points[-1].at_ms
    highest = max(point.value for point in points)
    text = (
        f"{label}: highest {number_text(int(highest))}, last {number_text(int(points[-1].value))},"
        f" over {span_text(end - begin)}"
    )
    shown = [one for one in marks if begin <= one.at_ms <= end][-MARKS_MAX:]
    data = {
        "label": label,
        "points": [(point.at_ms, point.value) for point in points],
        "marks": [(one.at_ms, f"{one.moved} moved: {one.cause}") for one in shown],
    }
    return _figure("line", name, data, text)


def holding_chart(spans: Sequence[HeldSpan], until_s: float, label: str, name: str) -> Markup:
    """A row for each queue, a colour for each member: where a row is empty nobody held it, where it is dark two did."""
    if not spans:
        return Markup("")
    queues = sorted({span.queue for span in spans}, key=_in_order)
    members = sorted({span.member for span in spans})
    data = {
        "queues": queues,
        "members": members,
        "until_s": until_s,
        "spans": [
            (queues.index(span.queue), members.index(span.member), span.from_s, span.until_s)
            for span in sorted(spans, key=lambda span: (span.from_s, span.member))
        ],
    }
    text = f"{label}: who held each of {len(queues)} queues over {until_s:.0f} virtual seconds"
    return _figure("holdings", name, data, text)


def _in_order(queue: str) -> tuple[str, int]:
    """Queue 10 comes after queue 9."""
    name, _, number = queue.rpartition(":")
    return (name, int(number)) if number.isascii() and number.isdecimal() else (queue, 0)


def _figure(kind: str, name: str, data: object, text: str) -> Markup:
    return Markup(
        '<figure class="chart {kind}" id="{name}" data-chart="{kind}" data-values="{values}">'
        '<div class="drawing"><canvas role="img" aria-label="{text}"></canvas></div><figcaption>{text}</figcaption></figure>'
    ).format(kind=kind, name=name, values=msgspec.json.encode(data).decode(), text=text)


def bar(share: float, label: str) -> Markup:
    """A share of 0 to 1 as a bar."""
    width = round(100 * min(1.0, max(0.0, share)), 1)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" role="img" aria-label="{label}" preserveAspectRatio="none">'
        '<rect class="bar-all" width="100" height="8"></rect><rect class="bar-part" width="{width}" height="8"></rect></svg>'
    ).format(label=label, width=width)
