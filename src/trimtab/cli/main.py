"""The `trimtab` command. Each verb imports what it needs when it runs, so that `--help` is quick.

Exit codes: 0 fine, 1 not so, 2 asked wrongly, 3 a server cannot be reached.
"""

from typing import Any, NoReturn

import click

from trimtab import __version__
from trimtab.cli.servers import broker, names, up
from trimtab.cli.store import store
from trimtab.errors import ServerUnreachableError, TrimtabError

NOT_SO = 1
UNREACHABLE = 3


class Verbs(click.Group):
    """Says in one sentence what went wrong."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a verb."""
        try:
            return super().invoke(ctx)
        except ServerUnreachableError as error:
            fail(error, UNREACHABLE)
        except TrimtabError as error:
            fail(error, NOT_SO)


def fail(error: TrimtabError, code: int) -> NoReturn:
    click.echo(f"trimtab: {error}", err=True)
    raise SystemExit(code)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trimtab")
def main() -> None:
    """RocketMQ for Python: messaging whose load balancing can be seen, tested and trusted."""


main.add_command(up)
main.add_command(names)
main.add_command(broker)
main.add_command(store)


@main.command(epilog="Example: trimtab demo --messages 5000")
@click.option(
    "--messages",
    type=click.IntRange(1, 100_000),
    default=1_000,
    show_default=True,
    help="How many messages to send and to pull back.",
)
def demo(messages: int) -> None:
    """Show a round trip through two brokers, in this process and in a few seconds."""
    from trimtab.cli.demo import run_demo

    run_demo(messages)


@main.command(epilog="Example: trimtab doctor")
def doctor() -> None:
    """Check this installation: extras and the Java that Spark would use."""
    from trimtab.cli.doctor import run_doctor

    raise SystemExit(run_doctor())
