"""Pages and charts as text: one HTML file with inline SVG that needs no network, in light and dark. PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 960
LEFT = 170
COLOURS = 8
_ROW = 18
_PLOT_HEIGHT = 180
_RIGHT = 70

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1c2024; --dim: #6b7280; --line: #e2e5e9;
  --c0: #2f6fb5; --c1: #d9772b; --c2: #2f9e6e; --c3: #c2453f; --c4: #7a5bb8; --c5: #8a6a3b; --c6: #c4549a; --c7: #5f7f8f; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171a; --fg: #e6e8ea; --dim: #98a1ab; --line: #2b3036;
  --c0: #6ba6e8; --c1: #f0a05f; --c2: #5fcf9f; --c3: #ef7f78; --c4: #ab92e6; --c5: #c4a26d; --c6: #e88cc3; --c7: #9dbccb; } }
body { margin: 2rem auto; max-width: 1000px; padding: 0 1rem; background: var(--bg); color: var(--fg); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; } p { color: var(--dim); margin: .2rem 0 .8rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--dim); font-weight: 600; } td.n, th.n { text-align: right; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .85rem; } .key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A coloured piece of a lane."""

    lane: str
    from_ms: int
    until_ms: int
    colour: int
    title: str


def colour(number: int) -> str:
    """A colour of the page; after the last the first again."""
    return f"var(--c{number % COLOURS})"


def page(title: str, parts: Iterable[str]) -> str:
    """The whole file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"{''.join(parts)}</body></html>\n"
    )


def section(title: str, text: str, *content: str) -> str:
    """A heading, a sentence, and what is shown."""
    return f"<h2>{escape(title)}</h2><p>{escape(text)}</p>{''.join(content)}"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Numbers stand right."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f'<td class="n">{value:,.2f}</td>'
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"


def key(names: Sequence[str]) -> str:
    """Which colour is whose."""
    items = "".join(
        f'<span><i style="background:{colour(at)}"></i>{escape(name)}</span>' for at, name in enumerate(names)
    )
    return f'<div class="key">{items}</div>'


def lanes(stretches: Sequence[Stretch], from_ms: int, until_ms: int) -> str:
    """Lanes below each other on one axis of time; stretches of a lane that overlap are seen through each other."""
    names = list(dict.fromkeys(stretch.lane for stretch in sorted(stretches, key=lambda one: one.lane)))
    rows = {name: at for at, name in enumerate(names)}
    span = max(1, until_ms - from_ms)
    drawn = [
        f'<text x="0" y="{at * _ROW + 13}">{escape(name)}</text>'
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{at * _ROW + 17}" y2="{at * _ROW + 17}" stroke="var(--line)"/>'
        for name, at in rows.items()
    ]
    for one in stretches:
        x = LEFT + (one.from_ms - from_ms) / span * (WIDTH - LEFT)
        width = max(1.5, (one.until_ms - one.from_ms) / span * (WIDTH - LEFT))
        drawn.append(
            f'<rect x="{x:.1f}" y="{rows[one.lane] * _ROW + 3}" width="{width:.1f}" height="12" rx="2"'
            f' fill="{colour(one.colour)}" fill-opacity="0.75"><title>{escape(one.title)}</title></rect>'
        )
    height = len(names) * _ROW
    return _svg(height + 20, [*drawn, *_seconds(height + 14, span)])


def lines(series: Sequence[Sequence[tuple[int, float]]], from_ms: int, until_ms: int) -> str:
    """One line a series, in the order of the key; points are a time and a value."""
    span = max(1, until_ms - from_ms)
    top = max((value for points in series for _, value in points), default=0) or 1
    drawn = [
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{_y(top * part, top):.1f}" y2="{_y(top * part, top):.1f}" stroke="var(--line)"/>'
        f'<text x="{LEFT - 8}" y="{_y(top * part, top) + 4:.1f}" text-anchor="end">{top * part:,.0f}</text>'
        for part in (0.0, 0.5, 1.0)
    ]
    for at, points in enumerate(series):
        path = " ".join(
            f"{LEFT + (at_ms - from_ms) / span * (WIDTH - LEFT):.1f},{_y(value, top):.1f}"
            for at_ms, value in points
        )
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour(at)}" stroke-width="2"/>')
    return _svg(_PLOT_HEIGHT + 34, [*drawn, *_seconds(_PLOT_HEIGHT + 28, span)])


def bars(values: Sequence[tuple[str, float]], *, is_coloured: bool = False) -> str:
    """A bar a name; coloured as in the key, or all alike."""
    top = max((value for _, value in values), default=0) or 1
    drawn = []
    for at, (name, value) in enumerate(values):
        width = value / top * (WIDTH - LEFT - _RIGHT)
        drawn.append(
            f'<text x="0" y="{at * _ROW + 13}">{escape(name)}</text>'
            f'<rect x="{LEFT}" y="{at * _ROW + 3}" width="{width:.1f}" height="12" rx="2" fill="{colour(at if is_coloured else 0)}"/>'
            f'<text x="{LEFT + width + 6:.1f}" y="{at * _ROW + 13}">{value:,.6g}</text>'
        )
    return _svg(len(values) * _ROW + 4, drawn)


def _y(value: float, top: float) -> float:
    return 10 + _PLOT_HEIGHT * (1 - value / top)


def _seconds(y: int, span_ms: int) -> list[str]:
    return [
        f'<text x="{LEFT + part * (WIDTH - LEFT):.0f}" y="{y}" text-anchor="{anchor}">{span_ms * part / 1000:,.1f} s</text>'
        for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    ]


def _svg(height: int, drawn: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(drawn)}</svg>'
