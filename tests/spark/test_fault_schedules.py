"""Real queries through schedules of faults: see `schedules`."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.schedules import Schedule
from trimtab.broker.store import StoreSettings
from trimtab.testing import BlockingCluster, Cluster

pytestmark = pytest.mark.filterwarnings("default")  # pyspark has warnings of its own

SCHEDULES = 50 if os.environ.get("TRIMTAB_FULL") else 5
SEED = int(os.environ.get("TRIMTAB_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
SMALL = StoreSettings(
    segment_bytes=128 << 10, checkpoint_bytes=64 << 10, retention_bytes=512 << 10, disk_free_bytes_min=0
)
"""A store that forgets after half a megabyte."""


class Ours:
    """Two brokers in this process."""

    can_expire = True

    def __init__(self, cluster: BlockingCluster) -> None:
        self._cluster = cluster
        self.nameserver = cluster.nameserver
        self.brokers = tuple(cluster.brokers)

    def restart(self, server: str) -> None:
        self._cluster.restart(server)


@pytest.fixture
def ours() -> Iterator[Ours]:
    with Cluster(brokers=2, store=SMALL) as cluster:
        yield Ours(cluster)


@pytest.mark.parametrize("number", range(SCHEDULES))
def test_every_message_is_in_the_files_once_or_the_error_says_why_not(
    spark: Any, ours: Ours, tmp_path: Path, number: int
) -> None:
    Schedule(spark, ours, tmp_path, SEED + number, f"t{number}").run()
