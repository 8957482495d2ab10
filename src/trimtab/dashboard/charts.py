"""Figures over time as SVG, drawn here: pages need no library and no other machine for it. PURE."""

from collections.abc import Sequence

from markupsafe import Markup

from trimtab.cli.moments import number_text, span_text
from trimtab.dashboard.answers import Point

WIDTH, HEIGHT, EDGE = 640, 120, 4


def line_chart(points: Sequence[Point], label: str) -> Markup:
    """A line with its highest and its last value; empty with fewer than two points."""
    if len(points) < 2:
        return Markup("")
    begin, end = points[0].at_ms, points[-1].at_ms
    highest = max(point.value for point in points)
    span, top = max(1, end - begin), max(1.0, highest)
    places = []
    for point in points:
        x = EDGE + (WIDTH - 2 * EDGE) * (point.at_ms - begin) / span
        y = HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * point.value / top
        places.append(f"{x:.1f},{y:.1f}")
    line = " ".join(places)
    text = (
        f"{label}: highest {number_text(int(highest))}, last {number_text(int(points[-1].value))},"
        f" over {span_text(end - begin)}"
    )
    return Markup(
        '<figure class="chart"><svg viewBox="0 0 {w} {h}" role="img" aria-label="{text}" preserveAspectRatio="none">'
        '<polygon class="area" points="{x0},{y0} {line} {x1},{y0}"></polygon>'
        '<polyline class="line" points="{line}"></polyline></svg><figcaption>{text}</figcaption></figure>'
    ).format(w=WIDTH, h=HEIGHT, text=text, line=line, x0=EDGE, x1=WIDTH - EDGE, y0=HEIGHT - EDGE)


def bar(share: float, label: str) -> Markup:
    """A share of 0 to 1 as a bar."""
    width = round(100 * min(1.0, max(0.0, share)), 1)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" role="img" aria-label="{label}" preserveAspectRatio="none">'
        '<rect class="bar-all" width="100" height="8"></rect><rect class="bar-part" width="{width}" height="8"></rect></svg>'
    ).format(label=label, width=width)
