"""Stamps: what tells a row that is written again from one that is new.

A task that runs again has the same rows and may have them in another order: queues are read side by side, and a shuffle gives rows as
they come. So a row is known by what it holds, and of rows that hold the same by which of them it is, counted in its task. Rows that hold
the same are alike in everything, so it does not matter which one is the first. A row that has an id of its own is known by that alone.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.spark.sink_texts import HEX, begun_alike

STAMP = "SPARK_ROW"
"""The property that tells a row from all others. A replay writes the same again."""
DIGEST_BYTES = 12


class Stamps:
    """The stamps of one task's rows; `prefix` names query, batch and task."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._counts = Occurrences()

    def of(self, contents: Iterable[bytes]) -> Any:
        """The property of each row, from all that it holds."""
        hashes = b"".join([blake2b(content, digest_size=DIGEST_BYTES).digest() for content in contents])
        digests = np.frombuffer(hashes, np.uint8).reshape(-1, DIGEST_BYTES)
        stamps = begun_alike(f"{STAMP}\x01{self._prefix}", HEX[digests])
        again = self._counts.add_all(np.ascontiguousarray(digests[:, :8]).view(np.uint64)[:, 0])
        if not again:
            return stamps
        texts = stamps.to_pylist()
        for row, before in again.items():
            texts[row] = b"%b:%d" % (texts[row], before)
        return pa.array(texts, pa.binary())


class Occurrences:
    """How often a number came before; exact, in 12 bytes a number.

    What was added lies in sorted runs, each about twice as long as the next: a number is looked for in few of them, and is seldom
    moved. A number that is in several of them has its count in the last one.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def add_all(self, numbers: Any) -> dict[int, int]:
        """By place in `numbers`, how often each came before that; only those that did."""
        ordered = np.sort(numbers)
        is_new = not (ordered[1:] == ordered[:-1]).any() and not any(
            run.has_any(ordered) for run in self._runs
        )
        if is_new:
            self._keep(_Run(ordered))
            return {}
        return self._count(numbers.tolist())

    def _count(self, numbers: list[int]) -> dict[int, int]:
        counts: dict[int, int] = {}
        again = {}
        for at, number in enumerate(numbers):
            times = counts.get(number)
            if times is None:
                times = self._times(number)
            counts[number] = times + 1
            if times:
                again[at] = times
        keys = np.fromiter(counts, np.uint64, len(counts))
        order = np.argsort(keys)
        self._keep(_Run(keys[order], np.fromiter(counts.values(), np.uint32, len(counts))[order]))
        return again

    def _times(self, number: int) -> int:
        found = (run.times_of(number) for run in reversed(self._runs))
        return next(filter(None, found), 0)

    def _keep(self, run: "_Run") -> None:
        while self._runs and len(self._runs[-1].numbers) <= 2 * len(run.numbers):
            run = self._runs.pop().followed_by(run)
        self._runs.append(run)


class _Run(NamedTuple):
    """Different numbers in order, and how often each came up to then: without `times` once, and in no run before it."""

    numbers: Any
    times: Any | None = None

    def has_any(self, ordered: Any) -> bool:
        at = np.minimum(np.searchsorted(self.numbers, ordered), len(self.numbers) - 1)
        return bool((self.numbers[at] == ordered).any())

    def times_of(self, number: int) -> int:
        at = int(np.searchsorted(self.numbers, np.uint64(number)))
        if at == len(self.numbers) or self.numbers[at] != number:
            return 0
        return 1 if self.times is None else int(self.times[at])

    def followed_by(self, later: "_Run") -> "_Run":
        """Both as one; of a number that is in both the later count is the true one, and `unique` keeps what comes first."""
        numbers = np.concatenate([later.numbers, self.numbers])
        if self.times is None and later.times is None:
            numbers.sort(kind="stable")  # which merges what is in order already
            return _Run(numbers)
        times = np.concatenate([later.each_counted(), self.each_counted()])
        numbers, first = np.unique(numbers, return_index=True)
        return _Run(numbers, times[first])

    def each_counted(self) -> Any:
        return np.ones(len(self.numbers), np.uint32) if self.times is None else self.times
