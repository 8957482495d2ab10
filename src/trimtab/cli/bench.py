"""`trimtab bench`: how fast this client is on that cluster. Each verb is loaded when it is called for."""

from importlib import import_module

import click

BENCHES = {
    "send": ("trimtab.cli.bench_send:send", "Send messages and wait for every receipt."),
    "drain": ("trimtab.cli.bench_drain:drain", "Read everything that is in a topic now."),
    "rebalance": ("trimtab.cli.bench_rebalance:rebalance", "Let members leave and join under load."),
}
"""A verb, where it is, and what it says in the list of all."""


class Benches(click.Group):
    """Loads a verb when it is called for."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(BENCHES)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, loaded now."""
        where = BENCHES.get(cmd_name)
        if where is None:
            return None
        module, _, name = where[0].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in BENCHES.items()])


@click.group(cls=Benches)
def bench() -> None:
    """Measure: sending, draining, membership changes. Figures of one machine compare only with each other."""
