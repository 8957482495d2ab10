"""Memory while time is virtual: millions of small objects wait for their moment, and nearly all go without a cycle to be found."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NEW_OBJECTS_MAX: Final = 500_000
"""So many more than before, and cycles are looked for: looking through a large world every few hundred takes longer than the world itself."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Within it, or within a function that has it above, Python looks for cycles seldom; afterwards as before."""
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, NEW_OBJECTS_MAX) if first else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
