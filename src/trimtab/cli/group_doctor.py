"""`trimtab group doctor`: why are some queues not consumed, why do messages come twice."""

from typing import TYPE_CHECKING

import click

from trimtab.cli.amounts import Amount
from trimtab.cli.moments import parse_duration_ms
from trimtab.cli.printing import say
from trimtab.cli.shell import NOT_SO, Shell, remote
from trimtab.cli.visible import visible

if TYPE_CHECKING:
    from trimtab.client.admin import Admin
    from trimtab.client.admin.diagnosis import Facts

COLOURS = {"broken": "red", "warning": "yellow", "note": "cyan"}


@click.command(
    epilog="""\b
Examples:
  trimtab group doctor billing
  trimtab group doctor billing -n 10.0.0.5:9876 -n 10.0.0.6:9876      also whether they agree
  trimtab group doctor billing --json | jq -r '.findings[].cause'
\b
Exit code 1: something is broken. Looks twice, --sample apart, and says only what both looks show."""
)
@click.argument("name")
@click.option(
    "--sample",
    "sample_s",
    type=Amount(0, 600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between the two looks.",
)
@click.option(
    "--stuck-after",
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="A queue that waits and was not consumed from for so long is stuck.",
)
@remote
def doctor(shell: Shell, name: str, sample_s: float, stuck_after: str) -> None:
    """Name what is wrong with a group, a line each with evidence, and what to do. Works with members of any SDK."""
    stuck_ms = parse_duration_ms(stuck_after)

    async def fetch(admin: "Admin") -> "Facts":
        from trimtab.client.admin.facts import facts_of
        from trimtab.io.clock import SystemClock

        return await facts_of(admin, name, SystemClock(), sample_s=sample_s)

    from trimtab.client.admin.diagnosis import diagnose

    facts = shell.ask(fetch)
    findings = diagnose(facts, stuck_ms=stuck_ms)
    failures = (*facts.members.failures, *facts.after.progress.failures)
    if not shell.print_json(
        {"group": name, "healthy": not findings, "findings": findings, "failures": failures}
    ):
        for finding in findings:
            severity = click.style(finding.severity, fg=COLOURS[finding.severity])
            click.echo(f"{severity} {finding.cause}: {visible(finding.evidence)}")
            say(f"  do: {finding.advice}")
        if not findings:
            members = len(facts.members.client_ids)
            say(
                f"group {name}: nothing is wrong ({members} member(s), {facts.after.progress.lag:,} message(s) wait)"
            )
    broken = any(finding.severity == "broken" for finding in findings)
    shell.finish({failure.broker: failure for failure in failures}.values(), NOT_SO if broken else 0)
