"""How many examples a test tries: what it says itself, or more if `TRIMTAB_EXAMPLES` asks for more."""

import os


def examples(at_least: int) -> int:
    return max(at_least, int(os.environ.get("TRIMTAB_EXAMPLES", "0")))
