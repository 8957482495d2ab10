"""Printing rows: a table that fits the terminal, or JSON with names that stay.

On a terminal a table has colours and is as wide as the window, and what does not fit is cut. Into a pipe it goes plain and
whole, however wide it is. JSON is one document a command.
"""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

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
    styles: dict[str, str] | None = None,
) -> "Table":
    """Rows under titles; those named in `right` are numbers."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title in titles:
        made.add_column(
            title,
            justify="right" if title in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            style=(styles or {}).get(title),
        )
    for row in rows:
        made.add_row(*(Text(visible(cell)) for cell in row))
    return made


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Prints a table now."""
    if sys.stdout.isatty():
        console().print(table(titles, rows, right))
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
