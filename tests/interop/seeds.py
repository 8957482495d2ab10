"""One seed for all random comparisons of a run; TRIMTAB_SEED repeats a failed one."""

import os
import random
from functools import cache


@cache
def seed() -> int:
    """The seed of this run. Every assertion on random input names it."""
    return int(os.environ.get("TRIMTAB_SEED") or random.SystemRandom().randrange(2**31))
