"""Filtering by SQL92 expressions over a message's properties, with the stock filter's semantics.

An expression is compiled once, into closures; `Filter.matches` then only calls them. The grammar is that of 5.x.
"""

from collections.abc import Mapping

from trimtab.broker.sql92_nodes import FilterSyntaxError
from trimtab.broker.sql92_parser import parse
from trimtab.broker.sql92_values import EvaluationError

__all__ = ["Filter", "FilterSyntaxError", "compile_sql92"]


class Filter:
    """A compiled expression."""

    __slots__ = ("_run", "expression")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._run = parse(expression).run

    def __repr__(self) -> str:
        return f"<Filter {self.expression!r}>"

    def matches(self, properties: Mapping[str, str]) -> bool:
        """True only if the expression is true: unknown does not match, nor does a property that is no number where one is asked."""
        try:
            return self._run(properties) is True
        except EvaluationError:
            return False


def compile_sql92(expression: str) -> Filter:
    """The filter of an expression, or `FilterSyntaxError`. It takes time in proportion to the length, whatever the expression."""
    return Filter(expression)
