"""Templates, and how values look in them. Everything is escaped, always."""

from collections.abc import Iterable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trimtab.cli.moments import number_text, rate_text, span_text, time_text
from trimtab.client.admin.rows import QueueLine
from trimtab.dashboard.charts import bar, holding_chart, line_chart
from trimtab.dashboard.verdicts import verdicts

FOLDER = Path(__file__).parent
CHART_LIBRARY = Path(str(files("chartkick"))) / "django" / "static" / "chartkick" / "Chart.bundle.js"
"""Chart.js, as it comes in the wheel."""
NAME_CHARS_MAX = 28
LABEL_CHARS_MAX = 18
COMMON_CHARS_MIN = 4
"""A beginning that all labels share is left out from this length on."""
COLOURS = 8


def short(name: str, chars_max: int = NAME_CHARS_MAX) -> str:
    """A long name with its middle left out; the whole of it is in the title beside it."""
    half = chars_max // 2
    return name if len(name) <= chars_max else f"{name[: half - 1]}…{name[-half:]}"


def labels(names: Iterable[str]) -> dict[str, str]:
    """What tells names apart: without the beginning that all have in common, and short."""
    all_names = list(names)
    common = _common_chars(all_names) if len(all_names) > 1 else 0
    cut = common if common >= COMMON_CHARS_MIN and all(len(name) > common for name in all_names) else 0
    return {name: short(f"…{name[cut:]}" if cut else name, LABEL_CHARS_MAX) for name in all_names}


def _common_chars(names: list[str]) -> int:
    first, last = min(names), max(names)  # what these two share, all between them share
    return next(
        (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first)
    )


def by_topic(lines: Iterable[QueueLine]) -> dict[str, list[QueueLine]]:
    """Queues under their topics, in the order they come in."""
    found: dict[str, list[QueueLine]] = {}
    for line in lines:
        found.setdefault(line.topic, []).append(line)
    return found


def heat(part: float | None, most: float) -> int:
    """How much of the most that is, from 0 to 4."""
    return 0 if not part or most <= 0 else min(4, 1 + int(3 * part / most))


def share_text(share: float | None) -> str:
    """A share of 0 to 1 in percent."""
    return "-" if share is None else f"{100 * share:.0f} %"


def skew_text(skew: float | None) -> str:
    """`max/mean`."""
    return "-" if skew is None else f"{skew:.2f}"


def query(text: str) -> str:
    """A value in an address."""
    return quote(text, safe="")


_environment = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {
    "number": number_text,
    "rate": rate_text,
    "span": span_text,
    "time": time_text,
    "short": short,
    "share": share_text,
    "skew": skew_text,
    "q": query,
}
_environment.globals |= {
    "line_chart": line_chart,
    "holding_chart": holding_chart,
    "bar": bar,
    "labels": labels,
    "heat": heat,
    "by_topic": by_topic,
    "verdicts": verdicts,
    "colours": COLOURS,
    "chart_library_version": version("chartkick"),
}


def render(template: str, **values: Any) -> str:
    """A template with these values."""
    return _environment.get_template(template).render(**values)
