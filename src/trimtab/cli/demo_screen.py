"""What the demo shows: on the screen as it happens, and once more, without what moved, for the report."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

WIDTH = 110
FRAME_S = 0.25


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

    @asynccontextmanager
    async def moving(self, draw: "Callable[[], RenderableType]") -> AsyncIterator[None]:
        """On a terminal, what `draw` gives is kept up to date until the end of the block, and then goes.

        It is drawn on the loop, because what it shows changes there.
        """
        if not self.is_live:
            yield
            return
        from rich.live import Live

        with Live(draw(), console=self._console, auto_refresh=False, transient=True) as live:
            drawing = asyncio.get_running_loop().create_task(_keep_drawing(live, draw))
            try:
                yield
            finally:
                drawing.cancel()
                with suppress(asyncio.CancelledError):
                    await drawing

    def save(self, file: Path) -> None:
        """All that was said, as a page."""
        file.write_text(self.record.export_html(clear=False))


async def _keep_drawing(live: "Live", draw: "Callable[[], RenderableType]") -> None:
    while True:
        await asyncio.sleep(FRAME_S)
        live.update(draw(), refresh=True)
