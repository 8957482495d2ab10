"""Fixtures for the conftest of tests that meet real Apache RocketMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from tests.apache.cluster import ApacheCluster
from tests.apache.oracle import SOURCES, JavaOracle
from tests.apache.versions import chosen_versions, thorough_versions

if TYPE_CHECKING:
    from collections.abc import Iterator


class OracleFactory(Protocol):
    def __call__(self, version: str, program: str) -> JavaOracle: ...


@pytest.fixture(scope="session", params=chosen_versions())
def apache_version(request: pytest.FixtureRequest) -> str:
    """Each of `TRIMTAB_APACHE_VERSIONS` in turn (default: all we know)."""
    return str(request.param)


@pytest.fixture(scope="session", params=thorough_versions())
def thorough_version(request: pytest.FixtureRequest) -> str:
    """The versions that even slow tests run against."""
    return str(request.param)


@pytest.fixture(scope="session")
def apache_cluster(apache_version: str) -> Iterator[ApacheCluster]:
    """A cluster of two brokers shared by all tests of a version: use topics and groups of your own, leave it whole."""
    with ApacheCluster(apache_version, brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def java_oracle() -> OracleFactory:
    """Compiles `tests/apache/java/<program>.java` against a version, once for all tests."""
    known: dict[tuple[str, str], JavaOracle] = {}

    def oracle(version: str, program: str) -> JavaOracle:
        key = version, program
        if key not in known:
            known[key] = JavaOracle(version, SOURCES / f"{program}.java")
        return known[key]

    return oracle
