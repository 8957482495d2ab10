"""Everything in this folder talks to real Apache RocketMQ."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apache.fixtures import apache_version, java_oracle, thorough_version
from tests.apache.golang import start_go_program
from tests.interop.java_program import JAVA_CLIENTS, JavaPrograms
from tests.interop.mqadmin import MqAdmins
from tests.interop.servers import Servers, chosen_servers
from tests.interop.stock_client import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.apache.cluster import ApacheCluster
    from tests.interop.servers import ServerUnderTest
    from tests.interop.stock_client import Client

__all__ = ["apache_version", "java_oracle", "thorough_version"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Started when a test first asks for them, for the whole session: Apache's take a quarter of a minute to start."""
    with Servers() as running:
        yield running


@pytest.fixture(scope="session", params=chosen_servers())
def server(request: pytest.FixtureRequest, servers: Servers) -> ServerUnderTest:
    """Each of `TRIMTAB_SERVERS` in turn."""
    return servers.running(str(request.param))


@pytest.fixture(scope="session")
def apache_cluster(apache_version: str, servers: Servers) -> ApacheCluster:
    """A cluster of two brokers shared by all tests of a version: use topics and groups of your own, leave it whole."""
    return servers.apache(apache_version).cluster


@pytest.fixture(scope="session")
def java_programs() -> Iterator[JavaPrograms]:
    """One JVM for each version of the client, for the whole session."""
    with JavaPrograms() as programs:
        yield programs


@pytest.fixture(params=JAVA_CLIENTS)
def java(request: pytest.FixtureRequest, java_programs: JavaPrograms) -> Program:
    """A stock Java client of each version in turn."""
    return java_programs.running(str(request.param))


@pytest.fixture(scope="session")
def mqadmins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmins]:
    """One JVM for each version of the admin tool, for the whole session."""
    with MqAdmins(tmp_path_factory.mktemp("tools")) as tools:
        yield tools


@pytest.fixture(scope="session")
def go() -> Iterator[Program]:
    """A stock Go client, for the whole session."""
    with start_go_program("client") as conversation:
        yield Program("go", conversation)


@pytest.fixture
def java_reader(
    java_programs: JavaPrograms, server: ServerUnderTest, shared_clients: SharedClients
) -> Client:
    """A Java pull consumer for tests of other clients."""
    return shared_clients.get("pull", java_programs.running(JAVA_CLIENTS[0]), server)


@pytest.fixture
def producer(java: Program, server: ServerUnderTest, shared_clients: SharedClients) -> Client:
    """A producer that all tests of a client and a server share."""
    return shared_clients.get("producer", java, server)


@pytest.fixture
def reader(java: Program, server: ServerUnderTest, shared_clients: SharedClients) -> Client:
    """A pull consumer that all tests of a client and a server share."""
    return shared_clients.get("pull", java, server)


class SharedClients:
    """Clients made once, at each server, ended with the session."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._known: dict[tuple[str, int, str], Client] = {}

    def get(self, kind: str, program: Program, server: ServerUnderTest) -> Client:
        key = kind, program.pid, server.nameserver
        if key not in self._known:
            self._known[key] = self._stack.enter_context(program.client(kind, server))
        return self._known[key]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def shared_clients(servers: Servers, java_programs: JavaPrograms) -> Iterator[SharedClients]:
    """Asks for servers and programs so that these outlive the clients."""
    clients = SharedClients()
    yield clients
    clients.close()
