"""Which columns of a table fit a window, and how wide each is. PURE.

Figures, times and what people copy are shown whole or not at all: half a number is a wrong one. Texts give way first, the widest one first, and lose
their middle, because names that are alike differ at their ends. If that is not enough, whole columns go, those first of which the table
says that it can spare them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

GAP = 2
TEXT_CHARS_MIN = 12
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}|-?")

Width = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Fitted:
    """The columns that are shown, by number, with their widths."""

    widths: dict[int, int]
    left_out: tuple[str, ...] = ()


def fit(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    window: int,
    *,
    right: Sequence[str] = (),
    spare: Sequence[str] = (),
    whole: Sequence[str] = (),
    width_of: Width = len,
) -> Fitted:
    """What is shown of a table in a window so many characters wide."""
    natural = [
        max([width_of(title), *(width_of(row[at]) for row in rows)]) for at, title in enumerate(titles)
    ]
    smallest = [
        wide
        if title in right or title in whole or all(_TIME.fullmatch(row[at]) for row in rows)
        else min(wide, max(width_of(title), TEXT_CHARS_MIN))
        for at, (title, wide) in enumerate(zip(titles, natural, strict=True))
    ]
    kept = list(range(len(titles)))
    dispensable = [titles.index(name) for name in reversed(spare)]
    while len(kept) > 1 and _total(smallest, kept) > window:
        kept.remove(dispensable.pop() if dispensable else kept[-1])
    widths = {at: natural[at] for at in kept}
    while _total(widths, kept) > window:
        can_give = [at for at in kept if widths[at] > smallest[at]]
        if not can_give:  # one column, and not even that fits
            return Fitted({at: min(widths[at], window) for at in kept}, _others(titles, kept))
        widths[max(can_give, key=lambda at: widths[at])] -= 1
    return Fitted(widths, _others(titles, kept))


def _total(widths: Sequence[int] | dict[int, int], kept: Sequence[int]) -> int:
    return sum(widths[at] for at in kept) + GAP * (len(kept) - 1)


def _others(titles: Sequence[str], kept: Sequence[int]) -> tuple[str, ...]:
    return tuple(title for at, title in enumerate(titles) if at not in kept)


def shortened(text: str, width: int, width_of: Width = len) -> str:
    """A text in so many characters: both its ends, if it is too long."""
    if width_of(text) <= width:
        return text
    begin, end = list(text[: max(1, width // 2)]), list(text[len(text) - (width - width // 2) :])
    while width_of("".join(begin)) + 1 + width_of("".join(end)) > width and (begin or end):
        end.pop(0) if width_of("".join(end)) >= width_of("".join(begin)) else begin.pop()
    return f"{''.join(begin)}…{''.join(end)}"
