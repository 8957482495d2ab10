"""The `trimtab` command. Each verb is loaded when it is called for, and imports what it needs when it runs.

Exit codes: 0 fine, 1 not so, 2 asked wrongly, 3 a server cannot be reached or a store not be looked at, 130 interrupted.
"""

import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from trimtab import __version__
from trimtab.cli.suggesting import Suggesting
from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130

VERBS: dict[str, tuple[str, str]] = {
    "demo": (
        "trimtab.cli.demo:demo",
        "See it work: a slow broker, members that come, go and crash, an archive.",
    ),
    "up": ("trimtab.cli.servers:up", "Run a name server and brokers, until Ctrl-C."),
    "names": ("trimtab.cli.servers:names", "Run a name server alone, until Ctrl-C."),
    "broker": ("trimtab.cli.servers:broker", "Run a broker alone, until Ctrl-C."),
    "topic": ("trimtab.cli.topic:topic", "List, make, change, delete and look at topics."),
    "group": ("trimtab.cli.group:group", "Groups of consumers: who holds what, lag, offsets, what is wrong."),
    "message": ("trimtab.cli.message:message", "Send, read, tail, find and trace messages."),
    "dlq": ("trimtab.cli.dlq:dlq", "Dead letters: what nobody could handle."),
    "cluster": ("trimtab.cli.cluster:cluster", "Brokers and name servers: who is there and how they are."),
    "dashboard": ("trimtab.cli.dashboard:dashboard", "See the balance in a browser, until Ctrl-C."),
    "config": ("trimtab.cli.config:config", "Named places to connect to."),
    "bench": ("trimtab.cli.bench:bench", "Measure: sending, draining, membership changes."),
    "sim": ("trimtab.cli.sim:sim", "Play what happens to a group on virtual time, from a seed."),
    "spark": ("trimtab.cli.spark:spark", "Queries of Spark: what they need, where they stand."),
    "pipeline": (
        "trimtab.cli.pipeline:pipeline",
        "Ready pipelines on Spark: balance report, archive, dead letters, sweep.",
    ),
    "store": ("trimtab.cli.store:store", "Look after a broker's store while the broker is down."),
}
"""A verb, where it is, and what it says in the list of all."""


class Verbs(Suggesting):
    """Loads a verb when it is called for, and says in one sentence what went wrong."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, then those that were added."""
        return [*VERBS, *(name for name in super().list_commands(ctx) if name not in VERBS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, loaded now."""
        where = VERBS.get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = where[0].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, without loading them."""
        rows = [(name, help_text) for name, (_, help_text) in VERBS.items()]
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            if command is not None and name not in VERBS:
                rows.append((name, command.get_short_help_str()))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def main(self, args: "Sequence[str] | None" = None, *more: Any, **options: Any) -> Any:
        """Runs the program."""
        refuse_what_is_no_text(sys.argv[1:] if args is None else args)
        try:
            return super().main(args, *more, **options)
        finally:
            if args is None:
                # The process ends now: it need not look for garbage in all its modules before it does.
                gc.freeze()

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a verb."""
        try:
            return super().invoke(ctx)
        except TrimtabError as error:
            from trimtab.cli.shell import exit_code_of, fail, text_of

            fail(text_of(error), exit_code_of(error))
        except KeyboardInterrupt:
            click.echo(err=True)
            raise SystemExit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever reads has seen enough. Python would complain once more while it closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None


def refuse_what_is_no_text(words: "Sequence[str]") -> None:
    """Bytes that are no UTF-8 come as half characters, which can be neither sent nor printed."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            from trimtab.cli.shell import MISUSE, fail

            fail(f"the argument {word!a} is no UTF-8; write it in UTF-8", MISUSE)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  trimtab up                                   a name server and a broker, here
  trimtab topic create orders --queues 8
  echo hello | trimtab message send orders
  trimtab message consume orders -o begin -c 10
  trimtab group describe billing
  trimtab group doctor billing
\b
Every command has examples at the end of its --help. `trimtab config` keeps addresses; -n says one.""",
)
@click.version_option(__version__, prog_name="trimtab")
def main() -> None:
    """RocketMQ for Python: messaging whose load balancing can be seen, tested and trusted."""


@main.command(
    epilog="""\b
Examples:
  trimtab doctor
  trimtab doctor --json | jq '.packages[] | select(.version == null)'"""
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with stable names.")
def doctor(*, as_json: bool) -> None:
    """Check this installation: extras and the Java that Spark would use."""
    from trimtab.cli.doctor import run_doctor

    raise SystemExit(run_doctor(as_json=as_json))
