"""Groups of verbs that help with a mistyped one, and say in their lists what each verb says of itself, to the end of the sentence."""

from typing import Any

import click

SENTENCE_CHARS_MAX = 500


class Suggesting(click.Group):
    """As click's own, and an unknown verb is answered with those that are like it."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The verb that was meant."""
        import difflib

        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            found = difflib.get_close_matches(args[0], self.list_commands(ctx), n=2)
            if not found:
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(found)}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs; a sentence that is too long for its line goes on in the next one."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=SENTENCE_CHARS_MAX)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
