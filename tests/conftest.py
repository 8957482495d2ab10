"""Hypothesis prints what reproduces a failure; no test has a deadline, since machines are shared and noisy.

`TRIMTAB_EXAMPLES=20000` tries more than a commit has time for: see `make night`.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "trimtab",
    max_examples=int(os.environ.get("TRIMTAB_EXAMPLES", "100")),
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("trimtab")
