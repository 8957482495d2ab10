"""`trimtab up`, `names` and `broker`: servers that run until they are stopped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trimtab.cli.amounts import Amount

BROKERS_MAX = 26
PORT = click.IntRange(0, 65_535)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

F = TypeVar("F", bound=Callable[..., None])


def storage_options(command: F) -> F:
    """Where things are kept."""
    for option in (
        click.option("--memory", is_flag=True, help="Keep nothing: everything is gone when it stops."),
        click.option(
            "--data",
            type=click.Path(file_okay=False, path_type=Path),
            help="Keep everything in this folder. By default that is one in your data folder; it says which.",
        ),
    ):
        command = option(command)
    return command


def flush_option(command: F) -> F:
    """When a message is acknowledged."""
    return click.option(
        "--flush",
        type=click.Choice(["sync", "async"]),
        default="sync",
        show_default=True,
        help="Acknowledge a message when it is on disk, or as soon as it is handed to the system.",
    )(command)


def keeping_options(command: F) -> F:
    """How long messages are kept."""
    for option in (
        click.option(
            "--disk-free-min-mib",
            type=click.IntRange(0),
            default=512,
            show_default=True,
            help="Take no messages while less is free on the disk.",
        ),
        click.option(
            "--retention-gib",
            type=Amount(0),
            default=0,
            show_default=True,
            help="Let the oldest messages go when a broker's log is larger. 0: as large as the disk allows.",
        ),
        click.option(
            "--retention-hours",
            type=Amount(0),
            default=72,
            show_default=True,
            help="Let messages go that are older. 0: keep them for ever.",
        ),
    ):
        command = option(command)
    return command


def outside_options(command: F) -> F:
    """How a server is seen from outside."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Log more."),
        click.option("--json", "as_json", is_flag=True, help="Print the addresses as JSON."),
        click.option(
            "--ready-file",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write the addresses and the process id there, as JSON, once everything can be used.",
        ),
        click.option("--tls-key", type=FILE, help="The certificate's private key, PEM."),
        click.option("--tls-cert", type=FILE, help="Speak TLS only, with this certificate chain, PEM."),
        click.option(
            "--acl-in-clear",
            is_flag=True,
            help="Take signatures also without TLS from other machines. Whoever sees one can repeat it.",
        ),
        click.option("--acl", type=FILE, help="Accounts and permissions, as in Apache's plain_acl.yml."),
        click.option(
            "--insecure-open", is_flag=True, help="Let other machines in although there is no --acl."
        ),
        click.option("--advertise", metavar="ADDRESS", help="The IP address that clients are told."),
        click.option("--host", default="127.0.0.1", show_default=True, help="The IP address to listen at."),
    ):
        command = option(command)
    return command


@click.command(
    epilog="""\b
Examples:
  trimtab up                                  one broker; messages are kept
  trimtab up --brokers 2 --memory             two brokers that forget
  trimtab up --dashboard                      and a page that shows who holds what
  trimtab up --nameserver-port 0 --broker-port 0 --ready-file ready.json
  trimtab up --host 0.0.0.0 --advertise 10.0.0.5 --acl accounts.yml --tls-cert c.pem --tls-key k.pem"""
)
@click.option("--brokers", type=click.IntRange(1, BROKERS_MAX), default=1, show_default=True)
@click.option("--dashboard", is_flag=True, help="Run the dashboard too, for this machine alone.")
@click.option("--dashboard-port", type=PORT, default=8_765, show_default=True, help="0: any free one.")
@click.option("--nameserver-port", type=PORT, default=9876, show_default=True, help="0: any free one.")
@click.option(
    "--broker-port",
    type=PORT,
    default=10_911,
    show_default=True,
    help="Of the first broker; the next ones take every tenth. Each also listens two below, where old clients send to. 0: any free ones.",
)
@storage_options
@flush_option
@keeping_options
@outside_options
def up(
    brokers: int,
    nameserver_port: int,
    broker_port: int,
    data: Path | None,
    memory: bool,  # noqa: FBT001
    flush: Any,
    retention_hours: float,
    retention_gib: float,
    disk_free_min_mib: int,
    dashboard: bool,  # noqa: FBT001
    dashboard_port: int,
    **outside: Any,
) -> None:
    """Run a name server and brokers, until Ctrl-C."""
    from trimtab.cli.serving import Keeping, Outside, Storage, run_up

    if dashboard and outside["acl"] is not None:
        raise click.UsageError(
            "--dashboard has no account to sign with; run `trimtab dashboard --access-key ...` beside this"
        )
    run_up(
        brokers,
        nameserver_port=nameserver_port,
        broker_port=broker_port,
        storage=Storage(
            data,
            memory=memory,
            flush=flush,
            keeping=Keeping(retention_hours, retention_gib, disk_free_min_mib),
        ),
        outside=Outside(**outside),
        dashboard_port=dashboard_port if dashboard else None,
    )


@click.command(
    epilog="""\b
Examples:
  trimtab names
  trimtab names --port 9877 --memory"""
)
@click.option("--port", type=PORT, default=9876, show_default=True, help="0: any free one.")
@storage_options
@outside_options
def names(port: int, data: Path | None, memory: bool, **outside: Any) -> None:  # noqa: FBT001
    """Run a name server alone, until Ctrl-C."""
    from trimtab.cli.serving import Outside, Storage, run_names

    run_names(port, storage=Storage(data, memory=memory), outside=Outside(**outside))


@click.command(
    epilog="""\b
Examples:
  trimtab broker -n 127.0.0.1:9876
  trimtab broker -n 10.0.0.5:9876 -n 10.0.0.6:9876 --name broker-b --port 10921"""
)
@click.option(
    "-n",
    "--nameserver",
    "nameservers",
    multiple=True,
    required=True,
    envvar="NAMESRV_ADDR",
    help="Where to register: host:port, once or more often, or with ; between them.  [env: NAMESRV_ADDR]",
)
@click.option("--nameserver-ca", type=FILE, help="The name servers speak TLS; trust these certificates.")
@click.option("--name", default="broker-a", show_default=True)
@click.option("--cluster", default="DefaultCluster", show_default=True)
@click.option(
    "--port",
    type=PORT,
    default=10_911,
    show_default=True,
    help="It also listens two below, where old clients send to. 0: any free one.",
)
@storage_options
@flush_option
@keeping_options
@outside_options
def broker(
    nameservers: tuple[str, ...],
    nameserver_ca: Path | None,
    name: str,
    cluster: str,
    port: int,
    data: Path | None,
    memory: bool,  # noqa: FBT001
    flush: Any,
    retention_hours: float,
    retention_gib: float,
    disk_free_min_mib: int,
    **outside: Any,
) -> None:
    """Run a broker alone, until Ctrl-C. It starts without its name servers and registers when they are there."""
    from trimtab.cli.serving import Keeping, Outside, Storage, run_broker

    run_broker(
        name,
        cluster=cluster,
        port=port,
        nameservers=nameservers,
        nameserver_ca=nameserver_ca,
        storage=Storage(
            data,
            memory=memory,
            flush=flush,
            keeping=Keeping(retention_hours, retention_gib, disk_free_min_mib),
        ),
        outside=Outside(**outside),
    )
