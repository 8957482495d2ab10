"""Stamps: what tells a row that is written again from one that is new.

A task that runs again has the same rows and may have them in another order: queues are read side by side, and a shuffle gives rows as
they come. So a row is known by what it holds, and of rows that hold the same by which of them it is, counted in its task. Rows that hold
the same are alike in everything, so it does not matter which one is the first. A row that has an id of its own is known by that alone.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import numpy as np

DIGEST_BYTES = 12
REMEMBERED_MAX = 500_000
"""Rows that are counted in a dictionary; those before them lie sorted, in 12 bytes each."""
_NOTHING: Any = np.empty(0, np.uint64)


class Stamps:
    """The stamps of one task's rows; `prefix` names query, batch and task."""

    def __init__(self, prefix: str, remembered_max: int = REMEMBERED_MAX) -> None:
        self._prefix = prefix
        self._counts = Occurrences(remembered_max)

    def of(self, contents: Iterable[bytes]) -> list[str]:
        """One for each row, from all that it holds."""
        prefix, count = self._prefix, self._counts.add
        stamps = []
        for content in contents:
            digest = sha256(content).digest()[:DIGEST_BYTES]
            before = count(int.from_bytes(digest[:8]))
            stamps.append(f"{prefix}{digest.hex()}:{before}" if before else f"{prefix}{digest.hex()}")
        return stamps


class Occurrences:
    """How often a number came before; exact, in memory that grows by few bytes a number."""

    def __init__(self, recent_max: int) -> None:
        self._recent_max = recent_max
        self._recent: dict[int, int] = {}
        self._numbers = _NOTHING
        self._times: Any = np.empty(0, np.uint32)

    def add(self, number: int) -> int:
        """How often it came before this time."""
        times = self._recent.get(number)
        if times is None:
            times = self._older(number)
            if len(self._recent) >= self._recent_max:
                self._put_away()
        self._recent[number] = times + 1
        return times

    def _older(self, number: int) -> int:
        if not len(self._numbers):
            return 0
        at = int(np.searchsorted(self._numbers, np.uint64(number)))
        return int(self._times[at]) if at < len(self._numbers) and self._numbers[at] == number else 0

    def _put_away(self) -> None:
        """What is recent counts more than what is older of the same number, and so comes first."""
        recent = np.fromiter(self._recent, np.uint64, len(self._recent))
        times = np.fromiter(self._recent.values(), np.uint32, len(self._recent))
        self._numbers, first = np.unique(np.concatenate([recent, self._numbers]), return_index=True)
        self._times = np.concatenate([times, self._times])[first]
        self._recent = {}
