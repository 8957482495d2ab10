"""A real Apache RocketMQ cluster for tests and benchmarks: one name server and some brokers, each a JVM of its own.

    with ApacheCluster("4.9.3", brokers=2) as cluster:
        connect_to(cluster.nameserver)
        cluster.kill("broker-b")

All of it lives in one folder and on loopback, and is gone when the block ends.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Self

from tests.apache import homes, java, ports, probe, processes
from tests.apache.jars import classpath
from tests.apache.server import PortTakenError, Server, StartError
from tests.apache.versions import is_4x

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

NAMESERVER = "nameserver"
START_TIMEOUT_S = 120.0
POLL_S = 0.1
MQADMIN_TIMEOUT_S = 180.0
PORT_ATTEMPTS_MAX = 5
PORT_TAKEN_PAUSE_S = 2.0
FAREWELL_TIMEOUT_S = 0.5
HEAP_START_MIB = 128
NAMESERVER_HEAP_MIB = 128
DISK_USED_MAX_5X = 0.90


class ApacheCluster:
    """Brokers `broker-a`, `broker-b`, … (masters of `DefaultCluster`) and the name server they are registered at."""

    def __init__(
        self,
        version: str,
        brokers: int | Sequence[str] = 1,
        *,
        directory: Path | None = None,
        broker_settings: Mapping[str, str] = {},
        heap_mib: int = 512,
        jvm_args: Sequence[str] = (),
    ) -> None:
        """`brokers` is how many, or their names. `directory` is kept, and a store found there is opened; without it all lies in a temporary folder.

        `jvm_args` come last and so win over ours, for the name server too.
        """
        self.version = version
        self.classpath = classpath(version)
        self.nameserver = ""
        self.brokers: list[Server] = []
        self._broker_names = (
            [f"broker-{letter}" for letter in ascii_lowercase[:brokers]]
            if isinstance(brokers, int)
            else brokers
        )
        self._kept_directory = directory
        self._directory = directory or Path()
        self._settings = broker_settings
        self._heap_mib = heap_mib
        self._jvm_args = jvm_args
        self._nameserver_server: Server | None = None

    def __repr__(self) -> str:
        return f"<ApacheCluster {self.version} at {self.nameserver or 'nowhere'} {self.brokers}>"

    def __enter__(self) -> Self:
        self._directory = (
            self._kept_directory or Path(tempfile.mkdtemp(prefix="trimtab-apache-"))
        ).absolute()
        try:
            self._require_disk()
            self._start_all_on_free_ports()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    # Servers, by name: a broker's, or "nameserver".

    def kill(self, name: str) -> None:
        """Takes the server away without a farewell (SIGKILL)."""
        self.server(name).kill()

    def stop(self, name: str) -> None:
        """Lets the server say goodbye (SIGTERM)."""
        self.server(name).stop()

    def start(self, *names: str) -> None:
        """Brings servers back on their ports with their stores, and returns when they are ready."""
        servers = [self.server(name) for name in names]
        for _ in range(PORT_ATTEMPTS_MAX - 1):
            try:
                return self._start(servers)
            except PortTakenError:
                time.sleep(PORT_TAKEN_PAUSE_S)  # by a connection that is just going away
        return self._start(servers)

    def _start(self, servers: Sequence[Server]) -> None:
        for server in servers:
            if not server.is_running:
                server.start()
        self._await(servers, lambda: all(map(self._is_ready, servers)))

    def pause(self, name: str) -> None:
        """Freezes the server with its connections open (SIGSTOP)."""
        self.server(name).pause()

    def resume(self, name: str) -> None:
        self.server(name).resume()

    def server(self, name: str) -> Server:
        for server in self._servers():
            if server.name == name:
                return server
        raise LookupError(f"no server {name!r} in {self!r}")

    def logs(self) -> str:
        """The end of each server's log, for error messages."""
        return "\n".join(f"--- {server!r}\n{processes.tail(server.log)}" for server in self._servers())

    def mqadmin(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs Apache's admin tool at this name server. It exits with 0 even when it failed: read its output."""
        command: list[str | Path] = [
            java.java(),
            *java.OPEN_FLAGS,
            *java.SHORT_LIVED_FLAGS,
            *homes.home_flags(self._directory / "tools", stream="err", level="WARN"),
            "-cp",
            self.classpath,
            "org.apache.rocketmq.tools.command.MQAdminStartup",
            *args,
            "-n",
            self.nameserver,
        ]
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MQADMIN_TIMEOUT_S,
            check=False,
        )

    def _servers(self) -> list[Server]:
        return [*([self._nameserver_server] if self._nameserver_server else []), *self.brokers]

    def _require_disk(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        usage = shutil.disk_usage(self._directory)
        if not is_4x(self.version) and usage.used / (usage.used + usage.free) > DISK_USED_MAX_5X:
            raise StartError(
                f"{self._directory} is on a disk over 90 % full, where 5.x brokers refuse messages; free some"
            )

    def _start_all_on_free_ports(self) -> None:
        for _ in range(PORT_ATTEMPTS_MAX - 1):
            try:
                return self._start_all()
            except PortTakenError:
                processes.end(
                    (server.child for server in self._servers() if server.is_running), FAREWELL_TIMEOUT_S
                )
        return self._start_all()

    def _start_all(self) -> None:
        self.brokers = []
        nameserver = self._nameserver_server = self._new_nameserver(ports.nameserver_port())
        self.nameserver = nameserver.address
        nameserver.start()
        # A broker that finds no name server tries again only after seconds.
        self._await([nameserver], lambda: self._is_ready(nameserver))
        for name in self._broker_names:
            self.brokers.append(self._new_broker(name, ports.broker_port()))
            self.brokers[-1].start()
        self._await(self._servers(), lambda: all(map(self._is_ready, self._servers())))

    def _is_ready(self, server: Server) -> bool:
        if server is self._nameserver_server:
            return probe.accepts(server.address)
        return probe.accepts(server.address) and probe.is_registered(
            self.nameserver, [(server.name, server.address)]
        )

    def _await(self, servers: Sequence[Server], condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            met = condition()
            for server in servers:
                server.require_running()
            if met:
                return
            if time.monotonic() > deadline_s:
                names = ", ".join(server.name for server in servers)
                raise StartError(
                    f"{names} of RocketMQ {self.version} not ready after {START_TIMEOUT_S:.0f} s:\n{self.logs()}"
                )
            time.sleep(POLL_S)

    def _new_nameserver(self, port: int) -> Server:
        home = self._home(NAMESERVER)
        settings = homes.nameserver_settings(home, port)
        return self._new_server(NAMESERVER, port, "namesrv.NamesrvStartup", settings, NAMESERVER_HEAP_MIB)

    def _new_broker(self, name: str, port: int) -> Server:
        settings = homes.broker_settings(self._home(name), name, port, self.nameserver, self._settings)
        return self._new_server(name, port, "broker.BrokerStartup", settings, self._heap_mib)

    def _new_server(
        self, name: str, port: int, main_class: str, settings: Mapping[str, str], heap_mib: int
    ) -> Server:
        home = self._home(name)
        flags = homes.home_flags(home)
        settings_file = home / "conf" / "server.conf"
        homes.write_settings(settings_file, settings)
        command: list[str | Path] = [
            java.java(),
            *java.OPEN_FLAGS,
            *flags,
            *homes.DISK_FLAGS,
            f"-Xms{min(HEAP_START_MIB, heap_mib)}m",
            f"-Xmx{heap_mib}m",
            f"-XX:MaxDirectMemorySize={heap_mib}m",
            "-XX:-UsePerfData",
            *self._jvm_args,
            f"org.apache.rocketmq.{main_class}",
            "-c",
            settings_file,
        ]
        # Through the environment, so that `ps` shows a line and not a page.
        environment = {"CLASSPATH": self.classpath, "ROCKETMQ_HOME": str(home)}
        return Server(name, f"{ports.LOOPBACK}:{port}", home, command, environment)

    def _home(self, name: str) -> Path:
        return self._directory / name

    def _end(self) -> None:
        """Brokers first, that they can sign off. 5.x takes 15 s for it, too long for a store that is thrown away."""
        timeout_s = FAREWELL_TIMEOUT_S if self._kept_directory is None else processes.STOP_TIMEOUT_S
        processes.end((broker.child for broker in self.brokers if broker.is_running), timeout_s)
        processes.end((server.child for server in self._servers() if server.is_running), timeout_s)
        if self._kept_directory is None:
            shutil.rmtree(self._directory, ignore_errors=True)
