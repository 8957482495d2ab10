"""A bar with rate and time left, on the terminal's error stream, and only if there is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from trimtab.cli.moments import rate_text

MOVES_S = 0.05
"""A bar moves no more often: it takes a lock each time, and its terminal is painted ten times a second."""


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
    if is_quiet or not console.is_terminal:
        yield _tell_nobody
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield _now_and_then(partial(bar.advance, task), bar.get_time)


def _tell_nobody(_more: int) -> None:
    return None


def _now_and_then(advance: Callable[[int], None], time_s: Callable[[], float]) -> Callable[[int], None]:
    untold, told_s = 0, time_s() - MOVES_S

    def more_done(more: int) -> None:
        nonlocal untold, told_s
        untold += more
        now_s = time_s()
        if now_s - told_s >= MOVES_S:
            advance(untold)
            untold, told_s = 0, now_s

    return more_done
