"""Groups of verbs that help with a mistyped one."""

from typing import Any

import click


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
