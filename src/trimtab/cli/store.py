"""`trimtab store`: looking at a broker's store that is not in use."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.suggesting import Suggesting

if TYPE_CHECKING:
    from trimtab.broker.store.scrub import Finding

DAMAGED = 1


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


def stores_in(directory: Path) -> list[Path]:
    """The folder itself if it is a store, else the stores in it."""
    if (directory / "LAYOUT").exists():
        return [directory]
    return sorted(path.parent for path in directory.glob("*/LAYOUT"))


def findings_of(folder: Path) -> "list[Finding]":
    from trimtab.broker.delays import DelayLevels
    from trimtab.broker.placing import tags_code_of
    from trimtab.broker.settings import BrokerSettings
    from trimtab.broker.store.scrub import verify as verify_store
    from trimtab.io.disk import RealDisk

    levels = DelayLevels(BrokerSettings().delay_levels)
    return verify_store(
        RealDisk(folder),
        tags_code_of=lambda message: tags_code_of(
            message.topic, message.properties_bytes, message.store_timestamp, levels
        ),
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
