"""`trimtab store`: looking at a broker's store that is not in use, and the way out when it is damaged."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.printing import warn
from trimtab.cli.shell import UNREACHABLE
from trimtab.cli.suggesting import Suggesting
from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from trimtab.broker.store.mending import Prospect
    from trimtab.broker.store.recovery import TagsCodeOf
    from trimtab.broker.store.scrub import Finding

DAMAGED = 1
SHOWN_MAX = 20

WITHOUT_STATE = {
    "topics": "topics come back from the log with default settings; those without messages are gone",
    "groups": "groups are made anew with default settings",
    "offsets": "groups begin as if they were new: what they consumed may come again, or be passed over",
    "delays": "delayed messages of the log that were delivered may come again",
    "timers": "timed messages of the log that were delivered may come again",
}
"""What is lost with a state that cannot be read."""


@dataclass(frozen=True, slots=True)
class Look:
    """What looking at one store gave; `failure` if it could not be looked at."""

    findings: "tuple[Finding, ...]" = ()
    failure: str | None = None

    @property
    def is_damaged(self) -> bool:
        return not all(finding.harmless for finding in self.findings)

    @property
    def verdict(self) -> str:
        if self.is_damaged:
            return "damaged; the messages that are not named here are still there"
        return "fine, but for what the next start mends" if self.findings else "fine"


@click.group(cls=Suggesting)
def store() -> None:
    """Look after a broker's store while the broker is down."""


@store.command(
    epilog="""\b
Examples:
  trimtab store verify ~/.local/share/trimtab           every broker in the folder of `trimtab up`
  trimtab store verify /data/broker-a --json"""
)
@click.argument("directory", type=click.Path(exists=True, file_okay=False, readable=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def verify(directory: Path, as_json: bool) -> None:  # noqa: FBT001
    """Read every byte of a store and say what is wrong with it. Nothing is changed.

    Exit code 1: damaged; 3: a store could not be looked at, being in use or not readable, and none is known to be damaged.
    """
    folders = stores_in(directory)
    if not folders:
        raise click.UsageError(f"{directory} is no store and has none in it; name the folder of a broker")
    looks = {folder: look_at(folder) for folder in folders}
    if as_json:
        click.echo(json.dumps(rows_of(looks)))
    else:
        show_looks(looks)
    for look in looks.values():
        if look.failure is not None:
            warn(look.failure)
    if any(look.is_damaged for look in looks.values()):
        raise SystemExit(DAMAGED)
    if any(look.failure is not None for look in looks.values()):
        raise SystemExit(UNREACHABLE)


@store.command(
    epilog="""\b
Examples:
  trimtab store rebuild /data/broker-a                  shows what would be lost, then asks
  trimtab store rebuild /data/broker-a --yes"""
)
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rebuild(directory: Path, yes: bool) -> None:  # noqa: FBT001
    """Make a damaged store usable: keep what can be read, give up what cannot. Make a copy of the folder first."""
    if not (directory / "LAYOUT").exists():
        raise click.UsageError(
            f"{directory} is no store; name the folder of one broker, which has a LAYOUT file"
        )
    from trimtab.broker.store.mending import mend, prospect
    from trimtab.io.disk import RealDisk

    disk, code_of = RealDisk(directory), tags_codes()
    found = prospect(disk, tags_code_of=code_of)
    if not found.is_damaged:
        click.echo(f"{directory}: {Look(tuple(found.findings)).verdict}; nothing was changed")
        return
    show_prospect(directory, found)
    confirm_by_name(directory, yes=yes)
    for sentence in mend(disk, tags_code_of=code_of):
        click.echo(sentence)
    click.echo(
        f"{directory}: queues, index and checkpoint are new, made from the log; the broker can be started"
    )


def show_prospect(directory: Path, found: "Prospect") -> None:
    for finding in found.findings[:SHOWN_MAX]:
        click.echo(f"{directory}/{finding}")
    if len(found.findings) > SHOWN_MAX:
        click.echo(f"... and {len(found.findings) - SHOWN_MAX} more: see `trimtab store verify {directory}`")
    click.echo("queues, index and checkpoint will be made anew; damaged bytes of the log will be given up")
    for name in found.lost_states:
        lost = WITHOUT_STATE.get(name, "what it held is gone")
        click.echo(f"state/{name} will be set aside: {lost}")


def confirm_by_name(directory: Path, *, yes: bool) -> None:
    """Lets go on only who types the folder's name."""
    if yes:
        return
    name = directory.resolve().name
    if not sys.stdin.isatty():
        raise click.UsageError("Say --yes if you mean it: there is no terminal to ask.")
    if click.prompt(f"This cannot be undone. Type {name} to go on", default="", show_default=False) != name:
        raise click.ClickException("nothing was changed")


def stores_in(directory: Path) -> list[Path]:
    """The folder itself if it is a store, else the stores in it; also folders that cannot be looked into, which may be some."""
    if not os.access(directory, os.R_OK | os.X_OK) or (directory / "LAYOUT").exists():
        return [directory]
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    return [path for path in folders if not os.access(path, os.X_OK) or (path / "LAYOUT").exists()]


def look_at(folder: Path) -> Look:
    """Only reads: a backup may lie on a disk that nobody can write to."""
    from trimtab.broker.store.scrub import verify as verify_store
    from trimtab.io.disk import RealDisk

    try:
        return Look(tuple(verify_store(RealDisk(folder, read_only=True), tags_code_of=tags_codes())))
    except TrimtabError as error:
        return Look(failure=str(error))


def show_looks(looks: dict[Path, Look]) -> None:
    for folder, look in looks.items():
        for finding in look.findings:
            click.echo(f"{folder}/{finding}")
        if look.failure is None:
            click.echo(f"{folder}: {look.verdict}")


def tags_codes() -> "TagsCodeOf":
    """What the broker gave the store as the code of a message."""
    from trimtab.broker.delays import DelayLevels
    from trimtab.broker.placing import tags_code_of
    from trimtab.broker.settings import BrokerSettings

    levels = DelayLevels(BrokerSettings().delay_levels)
    return lambda message: tags_code_of(
        message.topic, message.properties_bytes, message.store_timestamp, levels
    )


def rows_of(looks: dict[Path, Look]) -> list[dict[str, object]]:
    return [
        {
            "store": str(folder),
            "damaged": look.is_damaged if look.failure is None else None,
            "failure": look.failure,
            "findings": [
                {"file": one.file, "offset": one.offset, "what": one.what, "harmless": one.harmless}
                for one in look.findings
            ],
        }
        for folder, look in looks.items()
    ]
