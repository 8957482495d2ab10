"""Everything in this folder talks to real Apache RocketMQ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apache.fixtures import apache_cluster, apache_version, java_oracle

__all__ = ["apache_cluster", "apache_version", "java_oracle"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)
