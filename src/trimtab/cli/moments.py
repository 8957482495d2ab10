"""Times and places as people write and read them. PURE but for the time zone, which is the machine's."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from trimtab.errors import SettingsError

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
MOMENT_MS_MAX = 253_402_214_399_999
"""The last day of 9999: no later time can be printed in every time zone."""
OFFSET_MAX = (1 << 63) - 1
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a queue: its begin, its end, an offset, or a time in ms since 1970."""

    kind: Literal["begin", "end", "offset", "time"]
    value: int = 0


def parse_place(text: str, now_ms: int) -> Place:
    """`begin`, `end`, `42`, `2026-01-31T12:00`, `@1767225600000` (ms since 1970) or `-15m` (ago)."""
    word = text.strip().lower()
    if word in ("begin", "beginning", "start", "first", "earliest"):
        return Place("begin")
    if word in ("end", "last", "latest"):
        return Place("end")
    if word.isascii() and word.isdecimal():
        return Place("offset", _whole(word, OFFSET_MAX, f"{text!r} is no place: offsets end at {OFFSET_MAX}"))
    return Place("time", parse_time(text, now_ms))


def parse_time(text: str, now_ms: int) -> int:
    """A time, in ms since 1970."""
    word = text.strip()
    outside = f"{text!r} is no place: times are from 1970 to 9999"
    ago = _AGO.fullmatch(word)
    if ago:
        return max(0, now_ms - _span_ms(ago, outside))
    if word.startswith("@") and word[1:].isascii() and word[1:].isdecimal():
        return _whole(word[1:], MOMENT_MS_MAX, outside)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise SettingsError(
            f"{text!r} is no place: write begin, end, an offset, a time like 2026-01-31T12:00, @MILLISECONDS, or -15m for"
            " fifteen minutes ago"
        ) from None
    try:
        at_ms = int(moment.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):  # the other side of a time zone lies outside of what Python counts
        raise SettingsError(outside) from None
    if not 0 <= at_ms <= MOMENT_MS_MAX:
        raise SettingsError(outside)
    return at_ms


def _whole(digits: str, most: int, complaint: str) -> int:
    """Looked at before it is made a number: of one with thousands of digits Python makes none."""
    if len(digits.lstrip("0")) > len(str(most)) or int(digits.lstrip("0") or "0") > most:
        raise SettingsError(complaint)
    return int(digits.lstrip("0") or "0")


def _span_ms(found: re.Match[str], complaint: str) -> int:
    ms = float(found[1]) * _UNIT_MS[found[2]]
    if ms > MOMENT_MS_MAX:
        raise SettingsError(complaint)
    return int(ms)


def parse_duration_ms(text: str) -> int:
    """`250ms`, `30s`, `15m`, `2h`, `1d`; a bare number is seconds."""
    found = _AGO.fullmatch(f"-{text.strip()}") or _AGO.fullmatch(f"-{text.strip()}s")
    if not found:
        raise SettingsError(f"{text!r} is no duration: write 250ms, 30s, 15m, 2h or 1d")
    return _span_ms(found, f"{text!r} is no duration: nothing lasts so long")


def time_text(at_ms: int | None) -> str:
    """Local time to the millisecond."""
    if at_ms is None:
        return "-"
    local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    return local.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


def span_text(ms: float | None) -> str:
    """A duration, short: `0s`, `850ms`, `12s`, `3m05s`, `2h10m`, `4d03h`."""
    if ms is None:
        return "-"
    if 0 < ms < 1_000:
        return f"{ms:.0f}ms"
    seconds = int(ms // 1000)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3_600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02d}h"


def rate_text(per_s: float | None) -> str:
    """A rate, short."""
    if per_s is None:
        return "-"
    return f"{per_s:,.0f}/s" if per_s >= 10 or per_s == 0 else f"{per_s:.1f}/s"


def number_text(number: int | None) -> str:
    """A count with separators."""
    return "-" if number is None else f"{number:,}"
