"""What the demo shows: on the screen as it happens, and once more, without what moved, for the report."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 110
FRAMES_PER_S = 4


class Screen:
    """A terminal gets colours and a table that moves; anything else gets plain lines."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        is_terminal = stream.isatty()
        self._console = Console(
            file=stream, highlight=False, emoji=False, width=None if is_terminal else WIDTH
        )
        self.record = Console(
            file=io.StringIO(), record=True, width=WIDTH, highlight=False, emoji=False, force_terminal=True
        )
        self.is_live = is_terminal

    def say(self, what: "RenderableType") -> None:
        """A line, a paragraph or a table."""
        self._console.print(what)
        self.record.print(what)

    def title(self, text: str) -> None:
        """A new part."""
        self.say(f"\n[bold cyan]{text}[/bold cyan]")

    @contextmanager
    def moving(self, draw: "Callable[[], RenderableType]") -> Iterator[None]:
        """On a terminal, what `draw` gives is kept up to date until the end of the block, and then goes."""
        if not self.is_live:
            yield
            return
        from rich.live import Live

        with Live(
            get_renderable=draw, console=self._console, refresh_per_second=FRAMES_PER_S, transient=True
        ):
            yield

    def save(self, file: Path) -> None:
        """All that was said, as a page."""
        file.write_text(self.record.export_html(clear=False))
