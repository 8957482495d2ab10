"""`trimtab store`: looking at a broker's store that is not in use, and the way out when it is damaged."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.suggesting import Suggesting

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


@click.group(cls=Suggesting)
def store() -> None:
    """Look after a broker's store while the broker is down."""


@store.command(
    epilog="""\b
Examples:
  trimtab store verify ~/.local/share/trimtab           every broker in the folder of `trimtab up`
  trimtab store verify /data/broker-a --json"""
)
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def verify(directory: Path, as_json: bool) -> None:  # noqa: FBT001
    """Read every byte of a store and say what is wrong with it. Nothing is changed. Exit code 1: damaged."""
    folders = stores_in(directory)
    if not folders:
        raise click.UsageError(f"{directory} is no store and has none in it; name the folder of a broker")
    found = {folder: findings_of(folder) for folder in folders}
    if as_json:
        click.echo(json.dumps(rows_of(found)))
    else:
        for folder, findings in found.items():
            for finding in findings:
                click.echo(f"{folder}/{finding}")
            click.echo(f"{folder}: {verdict_on(findings)}")
    if any(is_damaged(findings) for findings in found.values()):
        raise SystemExit(DAMAGED)


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
        click.echo(f"{directory}: {verdict_on(found.findings)}; nothing was changed")
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
    """The folder itself if it is a store, else the stores in it."""
    if (directory / "LAYOUT").exists():
        return [directory]
    return sorted(path.parent for path in directory.glob("*/LAYOUT"))


def findings_of(folder: Path) -> "list[Finding]":
    from trimtab.broker.store.scrub import verify as verify_store
    from trimtab.io.disk import RealDisk

    return verify_store(RealDisk(folder), tags_code_of=tags_codes())


def tags_codes() -> "TagsCodeOf":
    """What the broker gave the store as the code of a message."""
    from trimtab.broker.delays import DelayLevels
    from trimtab.broker.placing import tags_code_of
    from trimtab.broker.settings import BrokerSettings

    levels = DelayLevels(BrokerSettings().delay_levels)
    return lambda message: tags_code_of(
        message.topic, message.properties_bytes, message.store_timestamp, levels
    )


def is_damaged(findings: "list[Finding]") -> bool:
    return not all(finding.harmless for finding in findings)


def verdict_on(findings: "list[Finding]") -> str:
    if is_damaged(findings):
        return "damaged; the messages that are not named here are still there"
    return "fine, but for what the next start mends" if findings else "fine"


def rows_of(found: "dict[Path, list[Finding]]") -> list[dict[str, object]]:
    return [
        {
            "store": str(folder),
            "damaged": is_damaged(findings),
            "findings": [
                {"file": one.file, "offset": one.offset, "what": one.what, "harmless": one.harmless}
                for one in findings
            ],
        }
        for folder, findings in found.items()
    ]
