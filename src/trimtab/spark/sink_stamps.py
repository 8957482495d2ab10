"""Stamps: what tells a row that is written again from one that is new.

A task that runs again has the same rows and may have them in another order: queues are read side by side, and a shuffle gives rows as
they come. So a row is known by what it holds, and of rows that hold the same by which of them it is, counted in its task. Rows that hold
the same are alike in everything, so it does not matter which one is the first. A row that has an id of its own is known by that alone.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.wire.columns.arrays import memory

DIGEST_BYTES = 12
REMEMBERED_MAX = 500_000
"""Rows that are counted in a dictionary; those before them lie sorted, in 12 bytes each."""
_NOTHING: Any = np.empty(0, np.uint64)
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)


class Stamps:
    """The stamps of one task's rows; `prefix` names query, batch and task."""

    def __init__(self, prefix: str, remembered_max: int = REMEMBERED_MAX) -> None:
        self._prefix = prefix
        self._counts = Occurrences(remembered_max)

    def of(self, contents: Iterable[bytes]) -> Any:
        """One for each row, from all that it holds, as Arrow's strings."""
        hashes = b"".join([sha256(content).digest() for content in contents])
        digests = np.frombuffer(hashes, np.uint8).reshape(-1, sha256().digest_size)[:, :DIGEST_BYTES]
        stamps = self._written(digests)
        again = self._counts.add_all(np.ascontiguousarray(digests[:, :8]).view(np.uint64)[:, 0])
        if not again:
            return stamps
        texts = stamps.to_pylist()
        for row, before in again.items():
            texts[row] = f"{texts[row]}:{before}"
        return pa.array(texts, pa.string())

    def _written(self, digests: Any) -> Any:
        """Prefix and digest of every row, which all have one length."""
        prefix = np.frombuffer(self._prefix.encode(), np.uint8)
        texts = np.empty((len(digests), len(prefix) + 2 * DIGEST_BYTES), np.uint8)
        texts[:, : len(prefix)] = prefix
        texts[:, len(prefix) :] = _HEX[digests].view(np.uint8)
        borders = np.arange(len(texts) + 1, dtype=np.int32) * texts.shape[1]
        buffers = [None, memory(borders), memory(texts)]
        return pa.Array.from_buffers(pa.string(), len(texts), buffers)


class Occurrences:
    """How often a number came before; exact, in memory that grows by few bytes a number."""

    def __init__(self, recent_max: int) -> None:
        self._recent_max = recent_max
        self._recent: dict[int, int] = {}
        self._numbers = _NOTHING
        self._times: Any = np.empty(0, np.uint32)

    def add_all(self, numbers: Any) -> dict[int, int]:
        """By place in `numbers`, how often each came before that; only those that did."""
        listed = numbers.tolist()
        new = dict.fromkeys(listed, 1)
        if len(new) == len(listed) and self._recent.keys().isdisjoint(new) and not self._has_older(numbers):
            self._recent.update(new)
            self._keep_small()
            return {}
        return {at: times for at, number in enumerate(listed) if (times := self.add(number))}

    def add(self, number: int) -> int:
        """How often it came before this time."""
        times = self._recent.get(number)
        if times is None:
            times = self._older(number)
            self._keep_small()
        self._recent[number] = times + 1
        return times

    def _has_older(self, numbers: Any) -> bool:
        if not len(self._numbers):
            return False
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return bool((self._numbers[at] == numbers).any())

    def _older(self, number: int) -> int:
        if not len(self._numbers):
            return 0
        at = int(np.searchsorted(self._numbers, np.uint64(number)))
        return int(self._times[at]) if at < len(self._numbers) and self._numbers[at] == number else 0

    def _keep_small(self) -> None:
        """What is recent counts more than what is older of the same number, and so comes first."""
        if len(self._recent) < self._recent_max:
            return
        recent = np.fromiter(self._recent, np.uint64, len(self._recent))
        times = np.fromiter(self._recent.values(), np.uint32, len(self._recent))
        self._numbers, first = np.unique(np.concatenate([recent, self._numbers]), return_index=True)
        self._times = np.concatenate([times, self._times])[first]
        self._recent = {}
