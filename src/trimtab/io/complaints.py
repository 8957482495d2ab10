"""Complaints about peers, in the log: one line a minute for each address, so that nobody fills the disk by being refused."""

import logging
from typing import Final

EVERY_MS: Final = 60_000
ADDRESSES_MAX: Final = 10_000
"""Addresses that are told apart. When there are more, the one complained of longest ago is forgotten."""


class Complaints:
    """What a server has to say about its peers. The first complaint about an address is logged; those of the next minute are
    counted, and the line after them says how many there were.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._hosts: dict[str, tuple[int, int]] = {}
        """By address: when a line was logged, and how many were left out since."""

    def about(self, host: str, now_ms: int, level: int, text: str, *values: object) -> None:
        """Logs it, or counts it."""
        since_ms, left_out = self._hosts.get(host, (None, 0))
        if since_ms is not None and now_ms - since_ms < EVERY_MS:
            self._hosts[host] = since_ms, left_out + 1
            return
        self._hosts.pop(host, None)
        if len(self._hosts) >= ADDRESSES_MAX:
            del self._hosts[next(iter(self._hosts))]
        self._hosts[host] = now_ms, 0
        if left_out:
            text, values = f"{text} (%d more from %s were left out)", (*values, left_out, host)
        self._log.log(level, text, *values)
