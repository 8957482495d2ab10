"""What people have to know and do not have to read five times a second."""

import logging

EVERY_MS = 60_000
REMEMBERED_MAX = 1_000


class Reminders:
    """Says a thing at once, and again once a minute for as long as it is true."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said_ms: dict[str, int] = {}

    def say(self, what: str, text: str, now_ms: int) -> None:
        """A warning about `what`; the text may be another each time."""
        said_ms = self._said_ms.get(what)
        if said_ms is not None and now_ms - said_ms < EVERY_MS:
            return
        if len(self._said_ms) >= REMEMBERED_MAX:
            self._said_ms.clear()
        self._said_ms[what] = now_ms
        self._log.warning("%s", text)
