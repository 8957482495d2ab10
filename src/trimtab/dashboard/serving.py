"""Listening for browsers, and stopping in good order."""

import asyncio
import hashlib
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from trimtab.dashboard.app import make_app
from trimtab.dashboard.desk import Desk
from trimtab.dashboard.guard import Door
from trimtab.dashboard.history import History
from trimtab.dashboard.poller import Poller
from trimtab.dashboard.sessions import Sessions
from trimtab.dashboard.subject import Pace
from trimtab.dashboard.tokens import Role, load_keyring, new_keyring
from trimtab.errors import SettingsError
from trimtab.io.clock import Clock, SystemClock
from trimtab.io.secrecy import new_secret

if TYPE_CHECKING:
    from trimtab.client.admin import Admin

STOP_S_MAX = 2
_UNSPECIFIED = {"0.0.0.0", "::"}  # noqa: S104 - looked for, not listened at


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardPlan:
    """What a dashboard shall be."""

    host: str = "127.0.0.1"
    port: int = 8_765
    folder: Path | None = None
    """Where tokens and history are kept; None: in memory, with new tokens each time."""
    allowed_hosts: tuple[str, ...] = ()
    """More names by which browsers may call it, with the port."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    new_tokens: bool = False
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("a certificate and its key belong together; say both or neither")
        try:
            is_local = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            raise SettingsError(f"{self.host!r} is no IP address, and names are not looked up") from None
        if not is_local and self.tls_cert is None:
            raise SettingsError(
                f"listening at {self.host} would send tokens in clear to whoever listens; give a certificate, or listen at"
                " 127.0.0.1 and come through a tunnel"
            )


@dataclass(frozen=True, slots=True)
class Running:
    """A dashboard that can be used."""

    url: str
    tokens: dict[Role, str]
    """Those that were made just now, to be shown this once."""
    poller: Poller


class _Quiet(uvicorn.Server):
    """Leaves signals to whoever started it, and says when it can be used."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def running(admin: "Admin", plan: DashboardPlan, clock: Clock | None = None) -> AsyncIterator[Running]:
    """A dashboard, for as long as this lasts."""
    clock = clock or SystemClock()
    if plan.folder is None:
        keyring, tokens = new_keyring(new_secret)
    else:
        keyring, tokens = load_keyring(plan.folder, new_secret, anew=plan.new_tokens)
    listening = _listen(plan)
    history = History(_history_path(plan.folder, admin.nameservers))
    poller = Poller(admin, clock, history, plan.pace)
    try:
        port = listening.getsockname()[1]
        door = Door(
            hosts_of(plan, port), keyring, Sessions(new_secret), clock, is_tls=plan.tls_cert is not None
        )
        await poller.start()
        server = _Quiet(_config(make_app(Desk(admin, clock, poller), door), plan))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            up = asyncio.create_task(server.is_up.wait())
            await asyncio.wait({up, serving}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            yield Running(_url(plan, port), tokens, poller)
        finally:
            server.should_exit = True
            await serving
    finally:
        await poller.stop()
        history.close()
        listening.close()


def hosts_of(plan: DashboardPlan, port: int) -> frozenset[str]:
    """The names by which we may be called: a browser sends one as `Host`."""
    names = {"127.0.0.1", "localhost", "[::1]"}
    if plan.host not in _UNSPECIFIED:
        names.add(f"[{plan.host}]" if ":" in plan.host else plan.host)
    return frozenset({f"{name}:{port}" for name in names} | {name.lower() for name in plan.allowed_hosts})


def history_file(nameservers: Iterable[str]) -> str:
    """Each cluster has a history of its own, known by its name servers, in whichever order they are said."""
    text = ";".join(sorted(nameservers))
    return f"dashboard-history-{hashlib.sha256(text.encode()).hexdigest()[:16]}.sqlite"


def _history_path(folder: Path | None, nameservers: Iterable[str]) -> Path | None:
    if folder is None:
        return None
    path = folder / history_file(nameservers)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return path


def _listen(plan: DashboardPlan) -> socket.socket:
    family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((plan.host, plan.port))
    except OSError as error:
        listening.close()
        raise SettingsError(
            f"the dashboard cannot listen at {plan.host}:{plan.port}: {error.strerror}; choose another port with --port"
        ) from error
    return listening


def _config(app: object, plan: DashboardPlan) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_S_MAX,
        limit_concurrency=1_000,
        ws="none",
        ssl_certfile=None if plan.tls_cert is None else str(plan.tls_cert),
        ssl_keyfile=None if plan.tls_key is None else str(plan.tls_key),
    )


def _url(plan: DashboardPlan, port: int) -> str:
    scheme = "https" if plan.tls_cert is not None else "http"
    host = "127.0.0.1" if plan.host in _UNSPECIFIED else plan.host
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
