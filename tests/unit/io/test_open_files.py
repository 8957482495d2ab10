"""Files that a process may open: raised at the start, and never all of them for connections."""

import resource
import subprocess
import sys

import pytest

from trimtab.io.open_files import connections_within, raise_open_files_limit
from trimtab.io.serving import ServingLimits

RAISES = """
import resource
from trimtab.io.open_files import raise_open_files_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))
print(raise_open_files_limit(1000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(("hard", "raised_to"), [("hard", 1000), ("512", 512)])
def test_the_limit_is_raised_as_far_as_wanted_and_allowed(hard: str, raised_to: int) -> None:
    told = subprocess.run(
        [sys.executable, "-c", RAISES.format(hard=hard)], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == [str(raised_to), str(raised_to)]


def test_a_limit_that_is_high_enough_stays() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_open_files_limit(1) == before[0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_connections_leave_files_for_the_stores() -> None:
    most = connections_within(1024, servers=2, kept_by_stores=256)
    assert 2 * most + 256 < 1024
    assert most > 100
    assert connections_within(64, servers=2, kept_by_stores=256) == 1


def test_fewer_connections_are_not_all_for_one_host() -> None:
    limits = ServingLimits()
    assert limits.with_connections(1_000_000) == limits
    fewer = limits.with_connections(300)
    assert (fewer.connections_max, fewer.connections_per_host_max) == (300, 150)
    assert limits.connections_per_host_max < limits.connections_max
