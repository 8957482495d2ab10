"""Templates, and how values look in them. Everything is escaped, always."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trimtab.cli.moments import number_text, rate_text, span_text, time_text
from trimtab.dashboard.charts import bar, holding_chart, line_chart

FOLDER = Path(__file__).parent
NAME_CHARS_MAX = 28


def short(name: str) -> str:
    """A long name with its middle left out; the whole of it is in the title beside it."""
    half = NAME_CHARS_MAX // 2
    return name if len(name) <= NAME_CHARS_MAX else f"{name[: half - 1]}…{name[-half:]}"


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
_environment.globals |= {"line_chart": line_chart, "holding_chart": holding_chart, "bar": bar}


def render(template: str, **values: Any) -> str:
    """A template with these values."""
    return _environment.get_template(template).render(**values)
