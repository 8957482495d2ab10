"""One Spark session for all tests here: starting one takes longer than any of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from trimtab.spark import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    running = session("local[2]", app="trimtab-tests", spark__sql__warehouse__dir=warehouse)
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()
