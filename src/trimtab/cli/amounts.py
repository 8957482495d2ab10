"""Amounts on the command line, which end somewhere: `nan` and `inf` are numbers to Python, and to nobody who is asked for hours."""

from typing import Any

import click

AMOUNT_MAX = 1e9


class Amount(click.FloatRange):
    """A range of numbers that can be reckoned with."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; `BadParameter` if it is none, or none in the range."""
        number = super().convert(value, param, ctx)
        if not abs(number) <= AMOUNT_MAX:  # which `nan` is not, whatever it is held against
            self.fail(f"{value} is no amount; say a number up to {AMOUNT_MAX:,.0f}.", param, ctx)
        return number
