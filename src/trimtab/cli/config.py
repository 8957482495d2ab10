"""`trimtab config`: named places to connect to."""

import sys

import click

from trimtab.cli.printing import print_json, print_table
from trimtab.cli.profiles import Profile, profile_path, read_profiles, write_profiles
from trimtab.cli.suggesting import Suggesting


@click.group(cls=Suggesting)
def config() -> None:
    """Named places to connect to, so that nobody types addresses.

    The order: -n, then --profile (or TRIMTAB_PROFILE), then NAMESRV_ADDR, then the default profile, then 127.0.0.1:9876.
    """


@config.command(
    "list",
    epilog="""\b
Example:
  trimtab config list""",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with stable names.")
def list_profiles(*, as_json: bool) -> None:
    """List the profiles, without their secrets."""
    profiles = read_profiles()
    if as_json:
        print_json(
            {
                "path": str(profile_path()),
                "default": profiles.default,
                "profiles": {
                    name: {
                        "nameserver": one.nameserver,
                        "access_key": one.access_key,
                        "tls": bool(one.tls or one.tls_ca),
                        "tls_ca": one.tls_ca,
                    }
                    for name, one in profiles.by_name.items()
                },
            }
        )
        return
    rows = [
        (
            f"{name} *" if name == profiles.default else name,
            one.nameserver or "-",
            one.access_key or "-",
            one.tls_ca or ("yes" if one.tls else "no"),
        )
        for name, one in sorted(profiles.by_name.items())
    ]
    if rows:
        print_table(("PROFILE", "NAMESERVER", "ACCESS KEY", "TLS"), rows)
    else:
        click.echo(f"no profile in {profile_path()}; `trimtab config set local -n 127.0.0.1:9876` makes one")


@config.command(
    "set",
    epilog="""\b
Examples:
  trimtab config set local -n 127.0.0.1:9876
  trimtab config set prod -n "10.0.0.5:9876;10.0.0.6:9876" --access-key reader --secret-key-stdin < secret
  trimtab config set prod --tls-ca /etc/ssl/prod-ca.pem         what is not said stays""",
)
@click.argument("name")
@click.option("-n", "--nameserver", metavar="HOST:PORT")
@click.option("--access-key")
@click.option("--secret-key-stdin", is_flag=True, help="Read the secret from stdin.")
@click.option("--tls/--no-tls", default=None)
@click.option("--tls-ca", type=click.Path(exists=True, dir_okay=False, resolve_path=True))
@click.option("--use", is_flag=True, help="Make it the default.")
def set_profile(
    name: str,
    nameserver: str | None,
    access_key: str | None,
    *,
    secret_key_stdin: bool,
    tls: bool | None,
    tls_ca: str | None,
    use: bool,
) -> None:
    """Make a profile, or change what is said of it."""
    from dataclasses import replace

    profiles = read_profiles()
    old = profiles.by_name.get(name, Profile())
    secret = sys.stdin.readline().strip() if secret_key_stdin else None
    new = Profile(
        nameserver=nameserver or old.nameserver,
        access_key=access_key or old.access_key,
        secret_key=secret or old.secret_key,
        tls=old.tls if tls is None else tls,
        tls_ca=tls_ca or old.tls_ca,
    )
    profiles = profiles.with_profile(name, new)
    if use:
        profiles = replace(profiles, default=name)
    path = write_profiles(profiles)
    click.echo(f"profile {name} is in {path}{' and is the default' if profiles.default == name else ''}")


@config.command(
    epilog="""\b
Example:
  trimtab config use prod"""
)
@click.argument("name")
def use(name: str) -> None:
    """Make a profile the default."""
    from dataclasses import replace

    profiles = read_profiles()
    profiles.named(name)
    write_profiles(replace(profiles, default=name))
    click.echo(f"the default is {name}")


@config.command(
    epilog="""\b
Example:
  trimtab config delete prod"""
)
@click.argument("name")
def delete(name: str) -> None:
    """Delete a profile."""
    write_profiles(read_profiles().without(name))
    click.echo(f"profile {name} is deleted")


@config.command(
    epilog="""\b
Example:
  $EDITOR "$(trimtab config path)\""""
)
def path() -> None:
    """Say where the file is."""
    click.echo(str(profile_path()))
