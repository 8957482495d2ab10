"""The `trimtab` command. Each verb imports what it needs when it runs, so that `--help` is quick."""

import click

from trimtab import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trimtab")
def main() -> None:
    """RocketMQ for Python: messaging whose load balancing can be seen, tested and trusted."""


@main.command()
@click.option(
    "--messages", default=10_000, show_default=True, help="How many messages to encode and read back."
)
def demo(messages: int) -> None:
    """Show what the package can do today, in a few seconds and without a server."""
    from trimtab.cli.demo import run_demo

    run_demo(messages)


@main.command()
def doctor() -> None:
    """Check this installation: extras and the Java that Spark would use."""
    from trimtab.cli.doctor import run_doctor

    raise SystemExit(run_doctor())
