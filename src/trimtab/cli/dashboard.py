"""`trimtab dashboard`: see the balance in a browser, until Ctrl-C."""

import asyncio
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from trimtab.cli.shell import Shell, remote
from trimtab.errors import SettingsError

if TYPE_CHECKING:
    from trimtab.dashboard.serving import DashboardPlan, Running

PORT = 8_765
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  trimtab dashboard                              the cluster at 127.0.0.1:9876
  trimtab dashboard -n 10.0.0.5:9876 --port 9000
  trimtab dashboard --new-tokens                 whoever has the old ones is out
\b
It listens on this machine alone, unless --host is given with a certificate. Tokens to sign in with are made at the first
start and shown once: one for operators, who may change things, one for viewers."""
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The IP address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="0: any free one."
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME:PORT",
    help="Another name that browsers call it by, as behind a proxy; can be said more than once.",
)
@click.option("--tls-cert", type=_FILE, help="Speak HTTPS, with this certificate chain, PEM.")
@click.option("--tls-key", type=_FILE, help="The certificate's private key, PEM.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep tokens and history in this folder. By default in your data folder.",
)
@click.option("--memory", is_flag=True, help="Keep nothing: new tokens each time, and no history.")
@click.option("--new-tokens", is_flag=True, help="Make new tokens; the old ones are good no more.")
@remote
def dashboard(
    shell: Shell,
    host: str,
    port: int,
    allowed_hosts: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    data: Path | None,
    *,
    memory: bool,
    new_tokens: bool,
) -> None:
    """Show who holds what, lag, moves and dead letters in a browser, until Ctrl-C."""
    if memory and data is not None:
        raise click.UsageError("--data and --memory contradict each other; say one of them")
    serving = load_serving()
    plan = serving.DashboardPlan(
        host=host,
        port=port,
        folder=None if memory else dashboard_folder(data),
        allowed_hosts=allowed_hosts,
        tls_cert=tls_cert,
        tls_key=tls_key,
        new_tokens=new_tokens,
    )
    asyncio.run(_serve(shell, plan))


def load_serving() -> ModuleType:
    """The dashboard's own module; it needs what the extra installs."""
    try:
        from trimtab.dashboard import serving
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("trimtab"):
            raise
        raise SettingsError(
            f"the dashboard needs {error.name}, which is not installed: pip install 'trimtab[dashboard]'"
        ) from error
    return serving


def dashboard_folder(data: Path | None) -> Path:
    """Where tokens and history are, made if it is not there."""
    from trimtab.cli.serving import user_data_folder

    folder = (data or user_data_folder()).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SettingsError(f"{folder} cannot be used: {error.strerror}; name another with --data") from error
    return folder


async def _serve(shell: Shell, plan: "DashboardPlan") -> None:
    from trimtab.cli.serving import stop_on_signals
    from trimtab.client.admin import Admin
    from trimtab.settings import Timeouts

    stopping = stop_on_signals(asyncio.get_running_loop())
    async with (
        Admin(
            nameserver=shell.target.nameserver,
            credentials=shell.target.credentials(),
            tls=shell.target.tls or None,
            timeouts=Timeouts(request_s=shell.timeout_s, connect_s=min(3.0, shell.timeout_s)),
        ) as admin,
        load_serving().running(admin, plan) as running,
    ):
        announce(running, as_json=shell.as_json)
        await stopping.wait()


async def start_dashboard(
    stack: AsyncExitStack, nameserver: str, tls: ssl.SSLContext | None, folder: Path | None, port: int
) -> "Running":
    """Beside servers of this process, until the stack ends."""
    from trimtab.client.admin import Admin

    serving = load_serving()
    admin = await stack.enter_async_context(Admin(nameserver=nameserver, tls=tls))
    plan = serving.DashboardPlan(port=port, folder=None if folder is None else dashboard_folder(folder))
    try:
        running: Running = await stack.enter_async_context(serving.running(admin, plan))
    except SettingsError as error:
        # It speaks of the options of `trimtab dashboard`, where the port is the dashboard's alone.
        text = str(error).replace("with --port", "with --dashboard-port")
        raise SettingsError(text) from error
    return running


def facts_of(running: "Running") -> dict[str, object]:
    """Where it is, and the tokens that are new."""
    return {"url": running.url, "tokens": {role.value: token for role, token in running.tokens.items()}}


def announce(running: "Running", *, as_json: bool) -> None:
    """Says where it is, and the tokens if they are new."""
    if as_json:
        from trimtab.cli.printing import print_json

        print_json(facts_of(running))
        return
    click.echo(f"dashboard: {running.url}")
    for role, token in running.tokens.items():
        click.echo(f"  {role.value} token: {token}")
    if running.tokens:
        click.echo("  these are shown this once; --new-tokens makes new ones")
