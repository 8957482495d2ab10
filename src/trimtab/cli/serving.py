"""Running servers until they are stopped: what `up`, `names` and `broker` have in common.

A folder has one owner: `up` locks the whole of it, so that a second start is told so in one sentence before it takes a port.
Signals: the first SIGTERM or SIGINT stops in good order (what is asked is answered, what is held is written); a second one
ends the process where it is.
"""

import asyncio
import gc
import ipaddress
import json
import logging
import os
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from trimtab.cli import ready_files
from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from trimtab.broker.acl import Acl
    from trimtab.broker.server import BrokerPlan, BrokerServer
    from trimtab.broker.store import StoreSettings
    from trimtab.dashboard.serving import Running
    from trimtab.io.disk import Disk
    from trimtab.io.serving import ServingLimits
    from trimtab.names.server import NameServer

BROKER_PORT_STEP = 10
_LOOPBACK = "127.0.0.1"


class CannotListenError(TrimtabError):
    """A port is not to be had."""


class FolderError(TrimtabError):
    """A folder cannot be used."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long a broker keeps messages, in the units of the command line; 0 for no bound."""

    retention_hours: float = 72
    retention_gib: float = 0
    disk_free_min_mib: int = 512


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a server keeps what it has."""

    data: Path | None
    memory: bool
    flush: Literal["sync", "async"] = "sync"
    keeping: Keeping = Keeping()

    def __post_init__(self) -> None:
        if self.data is not None and self.memory:
            raise click.UsageError("--data and --memory contradict each other; say one of them")

    def store_settings(self) -> "StoreSettings":
        from trimtab.broker.store import StoreSettings

        keeping = self.keeping
        retention_bytes = int(keeping.retention_gib * (1 << 30))
        if retention_bytes and retention_bytes < StoreSettings().segment_bytes:
            raise click.UsageError(
                f"--retention-gib {keeping.retention_gib:g} is less than one file of the log, which goes as a whole; say 0.25 or more"
            )
        return StoreSettings(
            flush=self.flush,
            retention_ms=int(keeping.retention_hours * 3_600_000),
            retention_bytes=retention_bytes,
            disk_free_bytes_min=keeping.disk_free_min_mib << 20,
        )

    def folder(self, *default: str) -> Path | None:
        """None for memory; else what was named, or a place of that name in the user's data folder."""
        if self.memory:
            return None
        return (self.data or user_data_folder().joinpath(*default)).absolute()


def user_data_folder() -> Path:
    """Where programs keep a user's data, by the XDG rules."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (named if named.is_absolute() else Path("~/.local/share").expanduser()) / "trimtab"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """How a server is seen from outside."""

    host: str
    advertise: str | None
    insecure_open: bool
    acl: Path | None
    acl_in_clear: bool
    tls_cert: Path | None
    tls_key: Path | None
    ready_file: Path | None
    as_json: bool
    verbose: bool

    def __post_init__(self) -> None:
        for option, address in (("--host", self.listening_at), ("--advertise", self.advertise)):
            if address is not None and not _is_ip(address):
                raise click.UsageError(f"{option} {address} is no IP address, and names are not looked up")
        if ipaddress.ip_address(self.listening_at).is_unspecified and self.advertise is None:
            raise click.UsageError(
                f"--host {self.host} is no address that clients could be told; add --advertise ADDRESS"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key belong together; say both or neither")
        if self.ready_file is not None:
            refuse_unwritable(self.ready_file)

    @property
    def listening_at(self) -> str:
        return _LOOPBACK if self.host == "localhost" else self.host

    @property
    def advertised(self) -> str:
        """The host that clients are told, as it stands before a port."""
        return _before_port(self.advertise or self.listening_at)

    @property
    def reached_from_here(self) -> str:
        """The host under which servers of this process reach each other."""
        address = ipaddress.ip_address(self.listening_at)
        if address.is_unspecified:
            return _LOOPBACK if address.version == 4 else "[::1]"
        return _before_port(self.listening_at)

    def load_acl(self) -> "Acl | None":
        from trimtab.broker.exposure import OpenExposureError, refuse_open_exposure

        try:
            refuse_open_exposure(self.host, has_acl=self.acl is not None, insecure_open=self.insecure_open)
        except OpenExposureError as error:
            raise click.UsageError(str(error)) from error
        if self.acl is None:
            return None
        from trimtab.broker.acl_file import load_acl  # not before: reading YAML takes long to load

        return load_acl(self.acl, allow_v1_in_clear=self.acl_in_clear)

    def tls(self) -> ssl.SSLContext | None:
        """For listening."""
        from trimtab.io.tls import server_context

        if self.tls_cert is None or self.tls_key is None:
            return None
        return server_context(self.tls_cert, self.tls_key)

    def tls_to_ourselves(self) -> ssl.SSLContext | None:
        """For connecting to a server that has our own certificate, whatever name that is for."""
        from trimtab.io.tls import own_client_context

        return None if self.tls_cert is None else own_client_context(self.tls_cert)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _before_port(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# --- the three verbs ------------------------------------------------------------------------------------------------


def run_up(
    brokers: int,
    *,
    nameserver_port: int,
    broker_port: int,
    storage: Storage,
    outside: Outside,
    dashboard_port: int | None = None,
) -> None:
    """Until a signal comes."""
    from trimtab.broker.server import BrokerPlan
    from trimtab.broker.settings import BrokerSettings

    refuse_broker_port("--broker-port", broker_port)
    if dashboard_port is not None:
        from trimtab.cli.dashboard import load_serving

        load_serving()  # before anything starts: what it needs may not be installed
    last_port = broker_port + BROKER_PORT_STEP * (brokers - 1)
    if last_port > 65_535:
        raise click.UsageError(
            f"--broker-port {broker_port} leaves no port for broker {brokers}; say a lower one"
        )
    acl, tls, folder = outside.load_acl(), outside.tls(), storage.folder()
    if acl is not None:
        acl.require_admin()
    limits, store = limits_for(1 + brokers, brokers), storage.store_settings()

    def plans(nameserver: str) -> "list[BrokerPlan]":
        nameserver_port = nameserver.rpartition(":")[2]
        return [
            BrokerPlan(
                settings=BrokerSettings(broker_name=name, advertised_host=outside.advertised),
                store=store,
                disk=disk_in(folder and folder / name),
                nameservers=(f"{outside.reached_from_here}:{nameserver_port}",),
                host=outside.listening_at,
                port=broker_port and broker_port + BROKER_PORT_STEP * number,
                has_vip_port=broker_port > 0,
                tls=tls,
                nameserver_tls=outside.tls_to_ourselves(),
                acl=acl,
                limits=limits,
            )
            for number, name in enumerate(broker_names(brokers))
        ]

    with locked(folder), locked(folder and folder / "nameserver"):
        note_idle_brokers(folder, brokers)
        serve(
            new_nameserver(nameserver_port, folder and folder / "nameserver", outside, acl, limits),
            plans,
            folder,
            outside,
            dashboard_port,
        )


def run_names(port: int, *, storage: Storage, outside: Outside) -> None:
    """Until a signal comes."""
    acl, folder = outside.load_acl(), storage.folder("nameserver")
    with locked(folder):
        serve(new_nameserver(port, folder, outside, acl, limits_for(1, 0)), lambda _: [], folder, outside)


def run_broker(
    name: str,
    *,
    cluster: str,
    port: int,
    nameservers: tuple[str, ...],
    nameserver_ca: Path | None,
    storage: Storage,
    outside: Outside,
) -> None:
    """Until a signal comes."""
    from trimtab.broker.server import BrokerPlan
    from trimtab.broker.settings import BrokerSettings
    from trimtab.io.nameservers import NameserverTextError, resolve_nameserver
    from trimtab.io.tls import client_context

    refuse_broker_port("--port", port)
    for option, named in (("--name", name), ("--cluster", cluster)):
        refuse_broker_name(option, named)
    try:
        addresses = tuple(resolve_nameserver(";".join(nameservers)).split(";"))
    except NameserverTextError as error:
        raise click.UsageError(str(error)) from error
    folder = storage.folder(name)
    plan = BrokerPlan(
        settings=BrokerSettings(broker_name=name, cluster_name=cluster, advertised_host=outside.advertised),
        store=storage.store_settings(),
        disk=disk_in(folder),
        nameservers=addresses,
        host=outside.listening_at,
        port=port,
        has_vip_port=port > 0,
        tls=outside.tls(),
        nameserver_tls=None if nameserver_ca is None else client_context(nameserver_ca),
        acl=outside.load_acl(),
        limits=limits_for(1, 1),
    )
    serve(None, lambda _: [plan], folder, outside)


def refuse_broker_name(option: str, name: str) -> None:
    """It becomes a folder, and a word in tables of other programs."""
    from trimtab.broker.names import BROKER_NAME_LENGTH_MAX
    from trimtab.wire.resources import NAME

    if not NAME.fullmatch(name) or len(name) > BROKER_NAME_LENGTH_MAX:
        raise click.UsageError(
            f"{option} {name[:40]!r} may only have letters, digits and % | _ -, at most {BROKER_NAME_LENGTH_MAX} of them, and one at least"
        )


def refuse_broker_port(option: str, port: int) -> None:
    from trimtab.broker.server import VIP_DISTANCE

    if 0 < port <= VIP_DISTANCE:
        raise click.UsageError(
            f"{option} {port} leaves no port two below, where old clients send to; say {VIP_DISTANCE + 1} or more, or 0 for any free one"
        )


def broker_names(count: int) -> list[str]:
    """`broker-a`, `broker-b` and so on."""
    return [f"broker-{chr(ord('a') + number)}" for number in range(count)]


def limits_for(servers: int, stores: int) -> "ServingLimits":
    """What each server of this process bears. Files are asked for first: a store that cannot open one takes no messages."""
    from trimtab.broker.store import StoreSettings
    from trimtab.io.open_files import connections_within, raise_open_files_limit
    from trimtab.io.serving import ServingLimits

    kept = stores * StoreSettings().open_files_max
    most = connections_within(raise_open_files_limit(), servers=servers, kept_by_stores=kept)
    return ServingLimits().with_connections(most)


def new_nameserver(
    port: int, folder: Path | None, outside: Outside, acl: "Acl | None", limits: "ServingLimits"
) -> "NameServer":
    from trimtab.io.clock import SystemClock
    from trimtab.names.server import NameServer

    return NameServer(
        clock=SystemClock(),
        host=outside.listening_at,
        port=port,
        kv_path=folder and folder / "kvConfig.json",
        tls=outside.tls(),
        guard=acl,
        limits=limits,
    )


# --- folders --------------------------------------------------------------------------------------------------------


def disk_in(folder: Path | None) -> "Disk":
    from trimtab.io.disk import MemoryDisk, RealDisk

    if folder is None:
        return MemoryDisk()
    try:
        return RealDisk(folder)
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(place: Path | str, error: OSError) -> FolderError:
    return FolderError(f"{place} cannot be used: {error.strerror}; name another folder with --data")


def refuse_unwritable(ready_file: Path) -> None:
    folder = ready_file.absolute().parent
    if not folder.is_dir():
        raise click.UsageError(f"--ready-file {ready_file}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise click.UsageError(
            f"--ready-file {ready_file}: {folder} cannot be written to; name another place"
        )


@contextmanager
def locked(folder: Path | None) -> Iterator[None]:
    """Keeps other processes out of a folder; `DiskLockedError` if one is in."""
    disk = disk_in(folder)
    disk.lock()
    try:
        yield
    finally:
        disk.unlock()


def note_idle_brokers(folder: Path | None, count: int) -> None:
    """Says so when there are messages that this start does not serve."""
    stores = sorted(path.parent.name for path in folder.glob("broker-?/LAYOUT")) if folder is not None else []
    idle = [name for name in stores if name not in broker_names(count)]
    if idle:
        click.echo(f"note: {folder} also has messages of {', '.join(idle)}; --brokers starts them", err=True)


# --- running --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Announcement:
    """How those who wait learn that everything can be used."""

    outside: Outside
    folder: Path | None

    def starting(self) -> None:
        if self.outside.ready_file is not None:
            ready_files.remove_if_left_over(self.outside.ready_file)
        if not self.outside.as_json:
            click.echo(f"kept in: {self.folder}" if self.folder else "kept in memory: gone when this ends")

    def ready(self, nameserver: str | None, brokers: dict[str, str], dashboard: "Running | None") -> None:
        facts: dict[str, object] = {
            "nameserver": nameserver,
            "brokers": brokers,
            "pid": os.getpid(),
            "data": None if self.folder is None else str(self.folder),
        }
        if dashboard is not None:
            facts["dashboard"] = {"url": dashboard.url}
        if self.outside.ready_file is not None:
            # First, so that nobody is told of servers that end because of it. Without tokens: others may read it.
            ready_files.write(self.outside.ready_file, facts)
        if self.outside.as_json:
            self._tell_machines(facts, dashboard)
        else:
            self._tell_people(nameserver, brokers, dashboard)

    def _tell_machines(self, facts: dict[str, object], dashboard: "Running | None") -> None:
        if dashboard is not None:
            from trimtab.cli.dashboard import facts_of

            facts = facts | {"dashboard": facts_of(dashboard)}
        click.echo(json.dumps(facts))

    def _tell_people(
        self, nameserver: str | None, brokers: dict[str, str], dashboard: "Running | None"
    ) -> None:
        servers = {"nameserver": nameserver} | brokers if nameserver else brokers
        click.echo(f"ready: {', '.join(f'{name} {address}' for name, address in servers.items())}")
        if nameserver:
            click.echo(f"clients: export NAMESRV_ADDR={nameserver}")
        if dashboard is not None:
            from trimtab.cli.dashboard import announce

            announce(dashboard, as_json=False)

    def gone(self) -> None:
        if self.outside.ready_file is not None:
            ready_files.remove_own(self.outside.ready_file)


def serve(
    nameserver: "NameServer | None",
    plans: "Callable[[str], list[BrokerPlan]]",
    folder: Path | None,
    outside: Outside,
    dashboard_port: int | None = None,
) -> None:
    """Starts everything, says so, and stops it when a signal comes."""
    from trimtab.io.loops import new_event_loop

    logging.basicConfig(
        level=logging.INFO if outside.verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    announcement = Announcement(outside, folder)
    announcement.starting()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(nameserver, plans, announcement, dashboard_port))


async def _serve(
    nameserver: "NameServer | None",
    plans: "Callable[[str], list[BrokerPlan]]",
    announcement: Announcement,
    dashboard_port: int | None,
) -> None:
    from trimtab.broker.server import BrokerServer

    stopping = stop_on_signals(asyncio.get_running_loop())
    outside = announcement.outside
    async with AsyncExitStack() as stack:
        if nameserver is not None:
            await _start(stack, nameserver, "the name server")
        brokers: dict[str, str] = {}
        for plan in plans("" if nameserver is None else nameserver.address):
            broker = BrokerServer(plan)
            await _start(stack, broker, plan.settings.broker_name)
            brokers[plan.settings.broker_name] = broker.address
        dashboard = None
        if dashboard_port is not None and nameserver is not None:
            from trimtab.cli.dashboard import start_dashboard

            dashboard = await start_dashboard(
                stack, nameserver.address, outside.tls_to_ourselves(), announcement.folder, dashboard_port
            )
        stack.callback(announcement.gone)
        if not stopping.is_set():
            told = None if nameserver is None else _as_told(nameserver.address, outside)
            announcement.ready(told, brokers, dashboard)
        # What is there now stays for good: looking for garbage in it would hold up answers again and again.
        gc.freeze()
        await stopping.wait()


def _as_told(address: str, outside: Outside) -> str:
    return f"{outside.advertised}:{address.rpartition(':')[2]}"


def stop_on_signals(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """An event that the first signal to stop sets."""
    stopping = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        stopping.set()
        for number in signals:
            loop.remove_signal_handler(number)  # the next one means it

    for number in signals:
        loop.add_signal_handler(number, stop)
    return stopping


async def _start(stack: AsyncExitStack, server: "NameServer | BrokerServer", name: str) -> None:
    try:
        await server.start()
    except OSError as error:
        if error.filename is not None:  # it was no socket that could not be had
            raise _unusable(error.filename, error) from error
        raise CannotListenError(
            f"{name} cannot listen: {error.strerror or error}; stop what is there, or choose another port or host"
        ) from error
    stack.push_async_callback(server.stop)
