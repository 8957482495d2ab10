"""A pytest plugin with one fixture. It loads no broker before a test asks for one.

`@pytest.mark.rocketmq_cluster(brokers=2)` on a test says what its cluster shall be; it takes what `Cluster` takes.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trimtab.testing import BlockingCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rocketmq_cluster(brokers=1, ...): what the cluster of the fixture of that name shall be"
    )


@pytest.fixture
def rocketmq_cluster(request: pytest.FixtureRequest) -> Iterator["BlockingCluster"]:
    """A fresh RocketMQ cluster in this process, in memory: `.nameserver`, `.brokers`, `.kill(...)` and so on."""
    from trimtab.testing import Cluster  # noqa: PLC0415 - every test run of every project loads this plugin

    marker = request.node.get_closest_marker("rocketmq_cluster")
    with Cluster(*(marker.args if marker else ()), **(marker.kwargs if marker else {})) as cluster:
        yield cluster
