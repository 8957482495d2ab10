"""Our name server under stock brokers and the stock admin tool."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.apache import ports, probe
from tests.apache.cluster import ApacheCluster
from tests.apache.java import LIGHT_LOAD_FLAGS
from tests.apache.versions import thorough_versions
from trimtab.io.clock import SystemClock
from trimtab.names.server import NameServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from pathlib import Path

    from tests.interop.mqadmin import MqAdmin, MqAdmins

T = TypeVar("T")

WAIT_S = 60.0
REGISTER_SOON = {"registerNameServerPeriod": "10000"}


class Host:
    """A loop in a thread with our name server in it."""

    def __init__(self, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.server = NameServer(clock=SystemClock(), **options)
        self.do(self.server.start())
        self.address = self.server.address

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def close(self) -> None:
        self.do(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


@contextmanager
def name_server(**options: Any) -> Iterator[Host]:
    host = Host(**options)
    try:
        yield host
    finally:
        host.close()


class BrokersAt(ApacheCluster):
    """Stock brokers at a name server that is not theirs."""

    def __init__(self, mqadmin: MqAdmin, brokers: int = 1, settings: Mapping[str, str] = {}) -> None:
        """Of the same version as the tool, and where the tool is."""
        super().__init__(
            mqadmin.version, brokers, broker_settings={**REGISTER_SOON, **settings}, jvm_args=LIGHT_LOAD_FLAGS
        )
        self._foreign = mqadmin.nameserver
        self.told = mqadmin.told

    def _start_all(self) -> None:
        self.nameserver = self._foreign
        self.brokers = [self._new_broker(name, ports.broker_port()) for name in self._broker_names]
        for broker in self.brokers:
            broker.start()
        self._await(self.brokers, lambda: all(map(self._is_ready, self.brokers)))


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture(params=[version for version in thorough_versions() if version != "4.9.7"], scope="module")
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with name_server() as running:
        yield running


@pytest.fixture(scope="module")
def brokers(mqadmins: MqAdmins, version: str, host: Host) -> Iterator[BrokersAt]:
    with BrokersAt(mqadmins.at(host.address, version), brokers=2) as running:
        yield running


def test_the_admin_tool_lists_the_registered_brokers(brokers: BrokersAt) -> None:
    def all_are_listed() -> bool:
        # In its first second a broker of 4.9 answers the question for its figures with an exception: it has none yet.
        listed = brokers.told("clusterList")
        return all(f"DefaultCluster {one.name} 0 {one.address} V" in listed for one in brokers.brokers)

    eventually(all_are_listed, "both brokers, with their versions")


def test_the_admin_tool_lists_topics(brokers: BrokersAt) -> None:
    listed = brokers.told("topicList").split()
    assert {"SELF_TEST_TOPIC", "TBW102", "DefaultCluster", "broker-a", "broker-b"} <= set(listed)
    assert "DefaultCluster SELF_TEST_TOPIC" in brokers.told("topicList", "-c")


def test_a_topic_comes_has_a_route_and_goes(brokers: BrokersAt) -> None:
    created = brokers.told("updateTopic", "-t", "comes", "-c", "DefaultCluster", "-r", "3", "-w", "5")
    assert created.count("success") == 2
    route = brokers.told("topicRoute", "-t", "comes").replace(" ", "")
    for broker in brokers.brokers:
        assert f'"{broker.address}"' in route
    assert route.count('"readQueueNums":3') == 2
    assert route.count('"writeQueueNums":5') == 2
    assert brokers.told("topicClusterList", "-t", "comes").startswith("DefaultCluster")
    assert "from NameServer success" in brokers.told("deleteTopic", "-t", "comes", "-c", "DefaultCluster")
    assert "No topic route info" in brokers.told("topicRoute", "-t", "comes")


def test_write_permission_is_wiped_and_added(brokers: BrokersAt, host: Host) -> None:
    def permission() -> int:
        route = host.server.names.routes.route("SELF_TEST_TOPIC")
        assert route is not None
        return next(queue.perm for queue in route.queue_datas if queue.broker_name == "broker-a")

    before = permission()
    assert before & 2

    def is_wiped() -> bool:
        # A broker whose topics changed registers them anew, and with them the old permission, here as at Apache's.
        assert "OK" in brokers.told("wipeWritePerm", "-b", "broker-a")
        return permission() == before & ~2

    eventually(is_wiped, "broker-a may not be written to")
    assert "OK" in brokers.told("addWritePerm", "-b", "broker-a")
    assert permission() == 6


def test_settings_are_kept_for_the_admin_tool(brokers: BrokersAt, host: Host) -> None:
    kv = host.server.names.kv
    assert "success" in brokers.told("updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
    assert kv.get("space", "key") == "value"
    assert "success" in brokers.told("deleteKvConfig", "-s", "space", "-k", "key")
    assert kv.get("space", "key") is None
    assert "success" in brokers.told(
        "updateOrderConf", "-t", "SELF_TEST_TOPIC", "-m", "put", "-v", "broker-a:1"
    )
    assert "orderConf=[broker-a:1]" in brokers.told("updateOrderConf", "-t", "SELF_TEST_TOPIC", "-m", "get")
    assert "success" in brokers.told("updateOrderConf", "-t", "SELF_TEST_TOPIC", "-m", "delete")


def test_the_admin_tool_may_read_our_settings_but_not_change_them(brokers: BrokersAt) -> None:
    assert "serverName = trimtab" in brokers.told("getNamesrvConfig")
    assert "CODE: 16" in brokers.told("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "/nowhere")


def test_stock_clients_send_and_receive_by_our_routes(brokers: BrokersAt) -> None:
    brokers.told("updateTopic", "-t", "talk", "-c", "DefaultCluster")
    assert "SEND_OK" in brokers.told("sendMessage", "-t", "talk", "-p", "hello")
    assert "Consume ok" in brokers.told("consumeMessage", "-t", "talk", "-g", "listeners")


def test_a_killed_broker_is_gone_and_a_restarted_one_is_back(brokers: BrokersAt, host: Host) -> None:
    brokers.kill("broker-b")
    eventually(lambda: "broker-b" not in cluster(host), "a broker outlived its connection")
    brokers.start("broker-b")
    assert "broker-b" in cluster(host)


def cluster(host: Host) -> str:
    return probe.ask(host.address, probe.GET_CLUSTER, {}).decode()


def test_a_slave_finds_its_master_and_a_stopped_one_signs_off(
    mqadmins: MqAdmins, version: str, host: Host
) -> None:
    mqadmin = mqadmins.at(host.address, version)
    cluster_name = {"brokerClusterName": "Pair", "brokerName": "pair"}
    slave_settings = {**cluster_name, "brokerId": "1", "brokerRole": "SLAVE"}
    with BrokersAt(mqadmin, settings=cluster_name) as master:
        assert "success" in master.told("updateTopic", "-t", "paired", "-b", master.brokers[0].address)
        with BrokersAt(mqadmin, settings=slave_settings) as slave:
            listed = slave.told("clusterList")
            assert f"Pair pair 0 {master.brokers[0].address}" in listed
            assert f"Pair pair 1 {slave.brokers[0].address}" in listed
            topics = slave.server("broker-a").home / "store" / "config" / "topics.json"
            eventually(lambda: has(topics, "paired"), "the slave did not learn where its master is")
            slave.stop("broker-a")
            eventually(lambda: slave.brokers[0].address not in cluster(host), "the slave did not sign off")
            assert master.brokers[0].address in cluster(host)


def has(file: Path, text: str) -> bool:
    return file.exists() and f'"{text}"' in file.read_text()


def test_brokers_come_back_after_our_restart_and_settings_are_still_there(
    mqadmins: MqAdmins, version: str, tmp_path: Path
) -> None:
    kv_path = tmp_path / "kvConfig.json"
    with name_server(kv_path=kv_path) as first:
        port = int(first.address.rpartition(":")[2])
        with BrokersAt(mqadmins.at(first.address, version)) as brokers:
            assert "success" in brokers.told("updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
            first.do(first.server.stop())
            with name_server(port=port, kv_path=kv_path) as second:
                eventually(lambda: "broker-a" in cluster(second), "the broker did not register again")
                assert second.server.names.kv.get("space", "key") == "value"
                eventually(
                    lambda: second.server.names.routes.route("TBW102") is not None, "its topics did not come"
                )
