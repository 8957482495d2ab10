"""What was read ahead for readers that go on where they stopped: messages that were read and checked once, and are cut off in order.

Whoever reads a queue from one end to the other asks for some messages at a time. From its second read on, more than it asks for
is read at one go, so that the places of all of them are looked up, read and checked together. The rest waits here under the
queue and the offset at which the reader will ask again; two readers of one queue do not take from each other. The log never
changes where it is written, so what waits is right for as long as the log has it.
"""

from bisect import bisect_right
from collections import OrderedDict
from typing import NamedTuple

from trimtab.broker.store.queues import Queue

WINDOW_READS = 8
"""For how many reads like the one at hand is read ahead."""
WINDOW_BYTES_MAX = 256 << 10
READ_MESSAGES_MAX = 256
"""Who asks for more than this at a time gains nothing by reading ahead."""
WINDOWS_MAX = 1_024
WINDOWS_BYTES_MAX = 16 << 20


class Window(NamedTuple):
    """Messages back to back, where each ends, and how many of them were given out. Nothing was read yet if it is empty."""

    body: bytes = b""
    ends: tuple[int, ...] = ()
    given: int = 0

    def cut(self, messages_max: int, bytes_max: int) -> tuple[bytes, int, "Window"]:
        """The next messages that both limits allow, one at least, their number, and what is left."""
        ends, given = self.ends, self.given
        start = ends[given - 1] if given else 0
        upto = bisect_right(ends, start + bytes_max, given, min(len(ends), given + messages_max))
        upto = max(upto, given + 1)
        rest = Window(self.body, ends, upto) if upto < len(ends) else UNREAD
        return self.body[start : ends[upto - 1]], upto - given, rest


UNREAD = Window()


class Windows:
    """A bounded number of them, those used last."""

    def __init__(self) -> None:
        self._windows: OrderedDict[tuple[Queue, int], Window] = OrderedDict()
        self._bytes = 0
        self._log_start = 0

    def take(self, queue: Queue, offset: int, log_start: int) -> Window | None:
        """What waits for the reader that stopped there; None if none did."""
        if log_start != self._log_start:  # some of it is gone, and nobody may read what is gone
            self._windows.clear()
            self._bytes, self._log_start = 0, log_start
        window = self._windows.pop((queue, offset), None)
        if window is not None:
            self._bytes -= len(window.body)
        return window

    def keep(self, queue: Queue, offset: int, window: Window) -> None:
        """A reader stopped there, and this is left."""
        before = self._windows.pop((queue, offset), UNREAD)
        self._windows[queue, offset] = window
        self._bytes += len(window.body) - len(before.body)
        while self._bytes > WINDOWS_BYTES_MAX or len(self._windows) > WINDOWS_MAX:
            _, oldest = self._windows.popitem(last=False)
            self._bytes -= len(oldest.body)
