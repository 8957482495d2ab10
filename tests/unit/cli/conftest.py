"""A cluster for the verbs' tests: they take topics and groups of their own."""

from collections.abc import Iterator

import pytest

from trimtab.testing import BlockingCluster, Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with Cluster(brokers=2) as running:
        yield running
