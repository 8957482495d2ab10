"""Printing rows: a table that fits the terminal, or JSON with names that stay.

On a terminal a table has colours and fits the window: `fitting` decides how. Into a pipe it goes plain and
whole, however wide it is. JSON is one document a command.
"""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from trimtab.cli.fitting import GAP, fit, shortened
from trimtab.cli.visible import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 100_000


def console(*, err: bool = False) -> "Console":
    """Where to print: colours and width are a terminal's if it is one."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, emoji=False)


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    spare: Sequence[str] = (),
    whole: Sequence[str] = (),
    *,
    window: int,
) -> "tuple[Table, tuple[str, ...]]":
    """Rows under titles in so many characters, and the titles for which there is no room.

    Those named in `right` are numbers; those in `spare` are given up first, in this order, and those in `whole` are never cut.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    shown = [tuple(map(visible, row)) for row in rows]
    fitted = fit(titles, shown, window, right=right, spare=spare, whole=whole, width_of=cell_len)
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, GAP, 0, 0))
    for at, width in fitted.widths.items():
        justify: Literal["left", "right"] = "right" if titles[at] in right else "left"
        made.add_column(titles[at], justify=justify, no_wrap=True, width=width)
    for row in shown:
        made.add_row(*(Text(shortened(row[at], width, cell_len)) for at, width in fitted.widths.items()))
    return made, fitted.left_out


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    spare: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> None:
    """Prints a table now."""
    if sys.stdout.isatty():
        screen = console()
        made, left_out = table(titles, rows, right, spare, whole, window=screen.width)
        screen.print(made)
        if left_out:
            note = f"no room for {', '.join(left_out)}"
            screen.print(note, style="dim", no_wrap=True, overflow="ellipsis")
        return
    rows = [tuple(map(visible, row)) for row in rows]
    widths = [
        max(len(title), *(len(row[at]) for row in rows)) if rows else len(title)
        for at, title in enumerate(titles)
    ]
    for line in (titles, *rows):
        cells = [
            cell.rjust(width) if title in right else cell.ljust(width)
            for cell, width, title in zip(line, widths, titles, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """`name: value` lines."""
    width = max((len(name) for name, _ in facts), default=0) + 1
    for name, value in facts:
        click.echo(f"{name + ':':<{width}} {visible(value)}")


def print_json(value: Any) -> None:
    """One document; on a terminal indented."""
    import msgspec

    plain = msgspec.to_builtins(value, str_keys=True)
    text = json.dumps(plain, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False)
    click.echo(visible_json(text))


def say(text: str = "", *, err: bool = False) -> None:
    """Lines for people; whatever others wrote into them does nothing to the terminal."""
    click.echo(visible_lines(text), err=err)


def warn(text: str) -> None:
    """A line for people, beside what is printed for programs."""
    click.echo(f"trimtab: {visible(text)}", err=True)
