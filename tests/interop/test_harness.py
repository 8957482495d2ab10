"""The harness itself: real servers start, answer, die and come back, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.apache import jars, ports, probe, processes
from tests.apache.cache import built_once
from tests.apache.cluster import ApacheCluster
from tests.apache.conversation import OracleError
from tests.apache.java import ToolMissingError, java
from tests.apache.oracle import JavaOracle
from tests.apache.server import StartError
from tests.apache.versions import VERSIONS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.apache.fixtures import OracleFactory

OLDEST = VERSIONS[0]
WORDS = ("", "a", "TopicTest", "broker-a", "ünï cødé", "消息队列", "🐟", "x" * 1000)


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, wrapped to a signed 32-bit integer."""
    units = memoryview(text.encode("utf-16-le")).cast("H")
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def expected_hashes(text: str) -> str:
    return f"{java_hash(text)} {zlib.crc32(text.encode()) & 0x7FFFFFFF}"


def test_mqadmin_sees_both_brokers(apache_cluster: ApacheCluster) -> None:
    answer = apache_cluster.mqadmin("clusterList")

    for broker in apache_cluster.brokers:
        assert broker.name in answer.stdout, answer.stderr
        assert broker.address in answer.stdout


def test_a_topic_made_by_mqadmin_has_a_route(apache_cluster: ApacheCluster) -> None:
    made = apache_cluster.mqadmin(
        "updateTopic", "-t", "HarnessTopic", "-c", "DefaultCluster", "-r", "3", "-w", "3"
    )
    route = apache_cluster.mqadmin("topicRoute", "-t", "HarnessTopic")

    assert "success" in made.stdout, made.stderr
    assert route.stdout.count('"writeQueueNums":3') == 2, route.stdout + route.stderr


def test_a_ready_cluster_has_the_default_topic_too(apache_cluster: ApacheCluster) -> None:
    route = probe.ask(apache_cluster.nameserver, probe.GET_ROUTE, {"topic": "TBW102"})

    for broker in apache_cluster.brokers:
        assert f'"{broker.address}"'.encode() in route


def test_a_killed_broker_comes_back_at_its_place(apache_cluster: ApacheCluster) -> None:
    broker = apache_cluster.server("broker-b")
    pid, address = broker.pid, broker.address

    apache_cluster.kill("broker-b")
    assert not probe.accepts(address)
    apache_cluster.start("broker-b")

    assert broker.pid != pid
    assert broker.address == address
    assert probe.is_registered(apache_cluster.nameserver, [(broker.name, address)])


def test_a_paused_broker_accepts_but_does_not_answer(apache_cluster: ApacheCluster) -> None:
    broker = apache_cluster.server("broker-a")
    apache_cluster.pause("broker-a")
    try:
        assert probe.accepts(broker.address)
        with pytest.raises(TimeoutError):
            probe.ask(broker.address, 28, {})  # GET_BROKER_RUNTIME_INFO
    finally:
        apache_cluster.resume("broker-a")

    assert probe.ask(broker.address, 28, {})


def test_a_stopped_broker_signs_off_and_no_process_stays(thorough_version: str) -> None:
    before = processes.running_pids()
    with ApacheCluster(thorough_version) as cluster:
        pids = [cluster.server("nameserver").pid, cluster.brokers[0].pid]
        assert all(map(is_alive, pids))
        cluster.stop("broker-a")
        assert not probe.is_registered(cluster.nameserver, [("broker-a", cluster.brokers[0].address)])
        assert not (cluster.brokers[0].home / "store" / "abort").exists(), "the mark of an unclean end"
        cluster.start("broker-a")
        pids.append(cluster.brokers[0].pid)

    assert not any(map(is_alive, pids))
    assert processes.running_pids() == before


def test_a_cluster_that_fails_inside_the_block_is_taken_down() -> None:
    before = processes.running_pids()
    with pytest.raises(RuntimeError, match="mine"), ApacheCluster(OLDEST) as cluster:
        raise RuntimeError("mine")

    assert processes.running_pids() == before
    assert not cluster.brokers[0].home.exists()


def test_a_taken_port_is_answered_with_another(
    monkeypatch: pytest.MonkeyPatch, thorough_version: str
) -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("", 0)))
        offers = [taken.getsockname()[1] + 2]  # so the VIP port is the one in use
        choose = ports.broker_port
        monkeypatch.setattr(ports, "broker_port", lambda: offers.pop() if offers else choose())

        cluster = stack.enter_context(ApacheCluster(thorough_version))

        assert not offers
        assert cluster.brokers[0].address != f"127.0.0.1:{taken.getsockname()[1] + 2}"


def test_a_broker_that_dies_early_shows_its_log() -> None:
    before = processes.running_pids()
    nonsense = {"flushDiskType": "NONSENSE", "brokerRole": "SLAVE"}
    with pytest.raises(StartError, match="brokerId"), ApacheCluster(OLDEST, broker_settings=nonsense):
        pass

    assert processes.running_pids() == before


def test_python_and_java_hash_alike(apache_version: str, java_oracle: OracleFactory) -> None:
    assert java_oracle(apache_version, "Hashes").run(WORDS) == [expected_hashes(word) for word in WORDS]


def test_an_oracle_answers_line_by_line(java_oracle: OracleFactory) -> None:
    with java_oracle(OLDEST, "Hashes").start() as conversation:
        for word in WORDS:
            assert conversation.ask(word) == expected_hashes(word)
        with pytest.raises(OracleError, match="said nothing in time"):
            conversation.hear(timeout_s=0.1)

    assert not is_alive(conversation.pid)


def test_an_oracle_that_ends_says_why(tmp_path: Path) -> None:
    source = tmp_path / "Fails.java"
    source.write_text(
        'public class Fails { public static void main(String[] a) { throw new RuntimeException("why"); } }'
    )
    oracle = JavaOracle(OLDEST, source)

    with pytest.raises(OracleError, match="RuntimeException: why"):
        oracle.run()
    with oracle.start() as conversation, pytest.raises(OracleError, match="RuntimeException: why"):
        conversation.hear()


def test_an_oracle_that_does_not_compile_says_why(tmp_path: Path) -> None:
    source = tmp_path / "Wrong.java"
    source.write_text("public class Wrong { int x = y; }")

    with pytest.raises(OracleError, match="cannot find symbol"):
        JavaOracle(OLDEST, source)


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(ToolMissingError, match="Install Maven"):
        jars.jars(OLDEST)
    with pytest.raises(ToolMissingError, match="Install a JDK 17"):
        java()
    assert not list(tmp_path.glob("apache/[!.]*")), "a failed fetch must not look like a finished one"


def test_what_is_built_is_built_once_and_whole(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("torn")

    with pytest.raises(RuntimeError, match="torn"):
        built_once(tmp_path / "thing", build)
    assert not (tmp_path / "thing").exists()

    folder = built_once(tmp_path / "thing", lambda folder: (folder / "whole").touch())
    assert built_once(tmp_path / "thing", build) == folder
    assert [file.name for file in folder.iterdir()] == ["whole"]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
