"""`trimtab group check`: a lag against limits, for monitoring."""

from typing import TYPE_CHECKING, Literal

import click

from trimtab.cli.printing import print_json, say
from trimtab.cli.shell import NOT_SO, Shell, remote
from trimtab.cli.visible import visible
from trimtab.errors import SettingsError, TrimtabError

if TYPE_CHECKING:
    from trimtab.client.admin.rows import GroupProgress

Level = Literal["ok", "warning", "critical"]
NAGIOS = {"ok": 0, "warning": 1, "critical": 2}
NAGIOS_UNKNOWN = 3


@click.command(
    epilog="""\b
Examples:
  trimtab group check billing --lag-warn 1000 --lag-critical 100000
  trimtab group check billing --lag-critical 5000 --format nagios
  trimtab group check billing --format prometheus > /var/lib/node_exporter/billing.prom
\b
Exit codes: 0 fine, 1 a limit is passed, 3 a server cannot be reached. With --format nagios they are Nagios's: 0 ok,
1 warning, 2 critical, 3 unknown."""
)
@click.argument("name")
@click.option("--topic", help="Only this topic.")
@click.option("--lag-warn", type=click.IntRange(0), metavar="MESSAGES")
@click.option("--lag-critical", type=click.IntRange(0), metavar="MESSAGES")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "nagios", "prometheus"]),
    default="text",
    show_default=True,
)
@remote
def check(
    shell: Shell,
    name: str,
    topic: str | None,
    lag_warn: int | None,
    lag_critical: int | None,
    form: str,
) -> None:
    """Compare a group's lag with limits; the exit code says how it is."""
    form = "json" if shell.as_json else form
    try:
        if lag_warn is not None and lag_critical is not None and lag_warn > lag_critical:
            raise SettingsError(f"--lag-warn {lag_warn} is above --lag-critical {lag_critical}")
        progress = shell.ask(lambda admin: admin.progress(name, topic))
    except TrimtabError as error:
        if form != "nagios":
            raise
        say(f"UNKNOWN - {visible(str(error))}")
        raise SystemExit(NAGIOS_UNKNOWN) from error
    level = level_of(progress.lag, lag_warn, lag_critical)
    if form == "json":
        print_json({"group": name, "lag": progress.lag, "level": level, "failures": progress.failures})
    elif form == "nagios":
        say(nagios_text(progress, level, lag_warn, lag_critical))
        raise SystemExit(nagios_code(progress, level))
    elif form == "prometheus":
        say(prometheus_text(progress).removesuffix("\n"))
    else:
        say(f"{level}: {progress.lag:,} message(s) wait for group {name}")
    shell.finish(progress.failures, 0 if level == "ok" else NOT_SO)


def level_of(lag: int, warn: int | None, critical: int | None) -> Level:
    """A limit is passed when there is more than it."""
    if critical is not None and lag > critical:
        return "critical"
    return "warning" if warn is not None and lag > warn else "ok"


def nagios_code(progress: "GroupProgress", level: Level) -> int:
    """Brokers that did not answer could only make it worse: critical it is in any case, anything less is not known."""
    return NAGIOS_UNKNOWN if progress.failures and level != "critical" else NAGIOS[level]


def nagios_text(progress: "GroupProgress", level: Level, warn: int | None, critical: int | None) -> str:
    """A plugin's line, with the figure after the bar."""
    limits = f"{'' if warn is None else warn};{'' if critical is None else critical}"
    if nagios_code(progress, level) == NAGIOS_UNKNOWN:
        silent = ", ".join(dict.fromkeys(one.broker for one in progress.failures))
        return f"UNKNOWN - at least {progress.lag} messages wait for group {progress.group}; {silent} did not answer"
    return f"{level.upper()} - {progress.lag} messages wait for group {progress.group} | lag={progress.lag};{limits};0"


def prometheus_text(progress: "GroupProgress") -> str:
    """Gauges in the text format."""
    lines = [
        "# HELP trimtab_group_lag_messages Messages that wait for a group in a queue.",
        "# TYPE trimtab_group_lag_messages gauge",
    ]
    for row in progress.queues:
        labels = f'group="{_label(progress.group)}",topic="{_label(row.topic)}",broker="{_label(row.broker)}",queue="{row.queue_id}"'
        lines.append(f"trimtab_group_lag_messages{{{labels}}} {row.lag}")
    lines += [
        "# HELP trimtab_group_consumed_per_second What brokers count of a group, over the last minute.",
        "# TYPE trimtab_group_consumed_per_second gauge",
        f'trimtab_group_consumed_per_second{{group="{_label(progress.group)}"}} {progress.consumed_per_s:g}',
    ]
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
