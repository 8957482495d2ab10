"""Fixtures for the conftest of tests that meet real Apache RocketMQ."""

from __future__ import annotations

from typing import Protocol

import pytest

from tests.apache.oracle import SOURCES, JavaOracle
from tests.apache.versions import chosen_versions, thorough_versions


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
def java_oracle() -> OracleFactory:
    """Compiles `tests/apache/java/<program>.java` against a version, once for all tests."""
    known: dict[tuple[str, str], JavaOracle] = {}

    def oracle(version: str, program: str) -> JavaOracle:
        key = version, program
        if key not in known:
            known[key] = JavaOracle(version, SOURCES / f"{program}.java")
        return known[key]

    return oracle
