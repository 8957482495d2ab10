"""Hypothesis prints what reproduces a failure; no test has a deadline, since machines are shared and noisy.

`TRIMTAB_EXAMPLES=20000` tries more than a commit has time for: see `make night`.
"""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
# A worker takes whole files. These take minutes, some of them waiting: begun last, they would keep one worker busy alone.
LONGEST_FIRST = (
    "interop/test_leased_groups.py",
    "interop/test_mode_changes.py",
    "interop/test_java_client_consumes.py",
    "interop/test_java_client_members.py",
    "interop/test_spark_apache.py",
    "interop/test_names_with_apache.py",
    "interop/test_mqadmin.py",
    "interop/test_bodies_against_java.py",
    "crash/test_kill9_broker.py",
    "spark/test_fault_schedules.py",
    "spark/test_spark.py",
    "spark/test_pipelines.py",
    "crash/test_kill9.py",
)

settings.register_profile(
    "trimtab",
    max_examples=int(os.environ.get("TRIMTAB_EXAMPLES", "100")),
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("trimtab")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order in which they are begun (with `--no-loadscope-reorder`); within a file nothing moves."""
    ranks = {HERE / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -tests[item.path], item.path))
