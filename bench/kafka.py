"""A real Kafka (KRaft, one node) and Spark's connector for it, both by Maven coordinates, for benches beside it."""

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.apache.cache import built_once, cache_folder
from tests.apache.java import find_tool, java
from tests.apache.ports import nameserver_port

KAFKA = "4.1.0"
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
FETCH_S_MAX = 1800.0
READY_S_MAX = 120.0

POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>trimtab</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA}</version></dependency>
  </dependencies>
</project>
"""
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=60000
"""


def connector_jars() -> list[Path]:
    """The jars that `--packages` would bring."""

    def fetch(folder: Path) -> None:
        for coordinates in CONNECTOR:
            _maven("dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}")

    return sorted(built_once(cache_folder() / "kafka" / "connector-4.2.0", fetch).glob("*.jar"))


def server_jars() -> list[Path]:
    def fetch(folder: Path) -> None:
        pom = folder / "pom.xml"
        pom.write_text(POM)
        _maven("-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}")

    return sorted(built_once(cache_folder() / "kafka" / KAFKA, fetch).glob("*.jar"))


@contextmanager
def kafka(partitions: int) -> Iterator[str]:
    """Its address; topics that are written to are made with so many partitions."""
    classpath = ":".join(map(str, server_jars()))
    with tempfile.TemporaryDirectory() as folder:
        broker, controller = nameserver_port(), nameserver_port()
        settings = Path(folder) / "server.properties"
        settings.write_text(
            PROPERTIES.format(
                broker=broker, controller=controller, logs=f"{folder}/logs", partitions=partitions
            )
        )
        program = [str(java()), "-Xmx1g", "-cp", classpath]
        cluster_id = "dHJpbXRhYi1iZW5jaC0wMQ"
        subprocess.run(
            [*program, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings)],
            check=True, capture_output=True, timeout=READY_S_MAX,
        )  # fmt: skip
        log = (Path(folder) / "kafka.log").open("wb")
        process = subprocess.Popen([*program, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        try:
            _await_port(broker, process)
            yield f"127.0.0.1:{broker}"
        finally:
            process.kill()
            process.wait(20)
            log.close()


def _await_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline_s = time.monotonic() + READY_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError("Kafka did not become ready") from None
            time.sleep(0.1)
        else:
            return


def _maven(*arguments: str) -> None:
    maven = find_tool("mvn", "Install Maven 3.8 or newer")
    subprocess.run([maven, "-q", "-B", *arguments], check=True, timeout=FETCH_S_MAX, env=os.environ.copy())
