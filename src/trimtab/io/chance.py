"""Chance as a seam: one seeded source per process or simulation, handed to whoever needs it."""

import random
from typing import Protocol


class Chance(Protocol):
    """What may be left to chance."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to `stop` - 1."""

    def random(self) -> float:
        """A number from 0 up to, but not including, 1."""

    def randbytes(self, n: int, /) -> bytes:
        """`n` bytes."""


def seeded_chance(seed: int | None = None) -> Chance:
    """Chance that repeats itself for the same seed; without one, the machine's own."""
    return random.Random(seed)  # noqa: S311 - for spreading load, never for secrets
