"""A bar with rate and time left, on the terminal's error stream, and only if there is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trimtab.cli.moments import rate_text


@contextmanager
def progress_bar(what: str, total: int | None, *, is_quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with how much more is done; `total` may be unknown."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(rate_text(task.finished_speed or task.speed))

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=is_quiet or not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)
