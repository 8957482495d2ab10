"""Figures over time as SVG, drawn here: pages need no library and no other machine for it. PURE."""

from collections.abc import Sequence

from markupsafe import Markup

from trimtab.cli.moments import number_text, span_text
from trimtab.dashboard.answers import HeldSpan, Point

WIDTH, HEIGHT, EDGE = 640, 120, 4
ROW = 6
COLOURS = 8


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


def holding_chart(spans: Sequence[HeldSpan], until_s: float, label: str) -> Markup:
    """A row for each queue, a colour for each member: where a row is empty nobody held it, where it is hatched two did."""
    if not spans:
        return Markup("")
    rows = {name: place for place, name in enumerate(sorted({span.queue for span in spans}))}
    colours = {name: place % COLOURS for place, name in enumerate(sorted({span.member for span in spans}))}
    wide = (WIDTH - 2 * EDGE) / max(until_s, 0.001)
    pieces = []
    ends: dict[str, float] = {}
    for span in sorted(spans, key=lambda span: (span.from_s, span.member)):
        x, y = EDGE + wide * span.from_s, EDGE + ROW * rows[span.queue]
        width = max(0.5, wide * (span.until_s - span.from_s))
        pieces.append(
            Markup(
                '<rect class="h{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}</title></rect>'
            ).format(
                colours[span.member],
                x,
                y,
                width,
                ROW - 1,
                f"{span.queue}: {span.member} from {span.from_s:.1f} s to {span.until_s:.1f} s",
            )
        )
        both_s = min(ends.get(span.queue, 0.0), span.until_s) - span.from_s
        if both_s > 0:
            pieces.append(
                Markup('<rect class="both" x="{:.1f}" y="{}" width="{:.1f}" height="{}"></rect>').format(
                    x, y, max(1.0, wide * both_s), ROW - 1
                )
            )
        ends[span.queue] = max(ends.get(span.queue, 0.0), span.until_s)
    text = f"{label}: who held each of {len(rows)} queues over {until_s:.0f} virtual seconds"
    return Markup(
        '<figure class="chart holdings"><svg viewBox="0 0 {w} {h}" role="img" aria-label="{text}" preserveAspectRatio="none">{pieces}</svg>'
        "<figcaption>{text}</figcaption></figure>"
    ).format(w=WIDTH, h=2 * EDGE + ROW * len(rows), text=text, pieces=Markup("").join(pieces))


def bar(share: float, label: str) -> Markup:
    """A share of 0 to 1 as a bar."""
    width = round(100 * min(1.0, max(0.0, share)), 1)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" role="img" aria-label="{label}" preserveAspectRatio="none">'
        '<rect class="bar-all" width="100" height="8"></rect><rect class="bar-part" width="{width}" height="8"></rect></svg>'
    ).format(label=label, width=width)
