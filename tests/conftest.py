"""Hypothesis prints what reproduces a failure; no test has a deadline, since machines are shared and noisy."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "trimtab", print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("trimtab")
