"""The parts of a SQL92 filter: each is checked when it is built and then is one closure from properties to a value.

The stock filter judges operands by what they are written as, not by their value: `5` is a constant, `-5` is a computation
(so `BETWEEN 5 AND -5` passes its check), a lone property counts as a boolean that no text can make true, `TRUE` is both a
constant and a boolean. `Kind` keeps these apart.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from trimtab.broker.sql92_values import (
    EvaluationError,
    Long,
    Value,
    compare,
    order_doubles,
    read_double,
    read_int,
    read_long,
)
from trimtab.errors import TrimtabError

DEPTH_MAX = 300
"""How deep the closures may nest, so that no expression can exhaust the stack of whoever evaluates it."""

Run = Callable[[Mapping[str, str]], Value]
Test = Callable[[int, int], bool]


class FilterSyntaxError(TrimtabError):
    """A SQL92 filter expression that cannot be compiled; the text says where and why."""


class Kind(Enum):
    """What an operand is written as."""

    PROPERTY = auto()
    LITERAL = auto()
    """A text or a number."""
    TRUTH = auto()
    """TRUE, FALSE or NULL: constants that are booleans too."""
    BOOLEAN = auto()
    COMPUTED = auto()
    """Something with a minus in front."""


class Node(NamedTuple):
    """One part. `value` is a constant's value or a property's name."""

    kind: Kind
    run: Run
    value: Value = None
    depth: int = 1


def literal(value: str | float) -> Node:
    """A text or a number."""
    return Node(Kind.LITERAL, lambda _: value, value)


def truth(value: bool | None) -> Node:  # noqa: FBT001 - it is the value
    """TRUE, FALSE, NULL."""
    return Node(Kind.TRUTH, lambda _: value, value)


def property_named(name: str) -> Node:
    """The property, or None where the message has none."""
    return Node(Kind.PROPERTY, lambda properties: properties.get(name), name)


def as_boolean(node: Node) -> Node:
    """The node as an operand of AND, OR and NOT. A property becomes false if it is there and unknown if it is not."""
    if node.kind in (Kind.BOOLEAN, Kind.TRUTH):
        return node
    if node.kind is not Kind.PROPERTY:
        raise FilterSyntaxError("a text, a number or a minus is not a condition")
    name = str(node.value)
    return _boolean(lambda properties: None if properties.get(name) is None else False, node)


def negate(node: Node) -> Node:
    """Minus. Only numbers have one; of anything else it is unknown."""
    value = node.run({}) if node.kind in (Kind.LITERAL, Kind.COMPUTED) else None
    if isinstance(value, int | float):
        negative = type(value)(-value)
        return Node(Kind.COMPUTED, lambda _: negative, negative, _deeper(node))
    run = node.run
    return Node(Kind.COMPUTED, lambda properties: _unknown(run(properties)), None, _deeper(node))


def negation(node: Node) -> Node:
    """NOT; unknown stays unknown."""
    run = as_boolean(node).run

    def negated(properties: Mapping[str, str]) -> Value:
        value = run(properties)
        return None if value is None else not value

    return _boolean(negated, node)


def all_of(nodes: Sequence[Node]) -> Node:
    """AND: the first false ends it, and only without one does an unknown count."""
    return _chain(nodes, decisive=False)


def any_of(nodes: Sequence[Node]) -> Node:
    """OR: the first true ends it, and only without one does an unknown count."""
    return _chain(nodes, decisive=True)


def _chain(nodes: Sequence[Node], *, decisive: bool) -> Node:
    if len(nodes) == 1:
        return nodes[0]
    runs = tuple(as_boolean(node).run for node in nodes)

    def chain(properties: Mapping[str, str]) -> Value:
        otherwise: bool | None = not decisive
        for run in runs:
            value = run(properties)
            if value is decisive:
                return decisive
            if value is None:
                otherwise = None
        return otherwise

    return _boolean(chain, *nodes)


def equal(left: Node, right: Node) -> Node:
    """`=`. NULL must be asked with IS; a literal TRUE or FALSE on the left meets no text or number on the right."""
    for node in (left, right):
        if node.kind is Kind.TRUTH and node.value is None:
            raise FilterSyntaxError("NULL cannot be compared, ask IS NULL or IS NOT NULL")
    if left.kind is Kind.TRUTH and right.kind is Kind.LITERAL:
        raise FilterSyntaxError("TRUE and FALSE cannot be compared with a text or a number")
    if left.kind is Kind.PROPERTY and right.kind is Kind.LITERAL and isinstance(right.value, str):
        return _boolean(_property_equals(str(left.value), right.value), left, right)
    return _property_against_integer(left, operator.eq, right) or _same(left, right)


def is_null(node: Node) -> Node:
    """IS NULL."""
    return _same(node, truth(None))


def _same(left: Node, right: Node) -> Node:
    """Equality as Java has it: unknown only if the left is missing and the right is not; two missing ones are equal."""
    left_run, right_run = left.run, right.run

    def same(properties: Mapping[str, str]) -> Value:
        left_value, right_value = left_run(properties), right_run(properties)
        if left_value is None:
            return True if right_value is None else None
        return False if right_value is None else compare(left_value, right_value) == 0

    return _boolean(same, left, right)


def _property_equals(name: str, text: str) -> Run:
    def equals(properties: Mapping[str, str]) -> Value:
        value = properties.get(name)
        return None if value is None else value == text

    return equals


def ordered(left: Node, test: Test, right: Node) -> Node:
    """`>`, `>=`, `<` or `<=`, given as the test of a comparison's result against zero."""
    for node in (left, right):
        is_text = node.kind is Kind.LITERAL and isinstance(node.value, str)
        if is_text or node.kind in (Kind.TRUTH, Kind.BOOLEAN):
            raise FilterSyntaxError("only numbers and properties have an order")
    return _property_against_integer(left, test, right) or _ordered_values(left, test, right)


def _ordered_values(left: Node, test: Test, right: Node) -> Node:
    left_run, right_run = left.run, right.run

    def run(properties: Mapping[str, str]) -> Value:
        left_value = left_run(properties)
        if left_value is None:
            return None
        right_value = right_run(properties)
        if right_value is None:
            return None
        if isinstance(left_value, str) and isinstance(right_value, str):
            return test(order_doubles(read_double(left_value), read_double(right_value)), 0)
        return test(compare(left_value, right_value), 0)

    return _boolean(run, left, right)


def _property_against_integer(left: Node, test: Test, right: Node) -> Node | None:
    """The commonest comparison of all, without the detours."""
    bound = right.value
    if left.kind is not Kind.PROPERTY or not isinstance(bound, int) or isinstance(bound, bool):
        return None
    name, limit = str(left.value), int(bound)
    read = read_long if isinstance(bound, Long) else read_int

    def run(properties: Mapping[str, str]) -> Value:
        text = properties.get(name)
        return None if text is None else test(read(text), limit)

    return _boolean(run, left, right)


def between(node: Node, low: Node, high: Node) -> Node:
    """BETWEEN; two literals must be in order."""
    if low.kind is high.kind is Kind.LITERAL and _is_above(low.value, high.value):
        raise FilterSyntaxError(f"BETWEEN {low.value} AND {high.value} holds nothing")
    return all_of([ordered(node, operator.ge, low), ordered(node, operator.le, high)])


def _is_above(low: Value, high: Value) -> bool:
    try:
        return compare(high, low) < 0
    except EvaluationError as exc:
        raise FilterSyntaxError(f"BETWEEN {low} AND {high}: not two numbers") from exc


def not_between(node: Node, low: Node, high: Node) -> Node:
    """NOT BETWEEN."""
    return any_of([ordered(node, operator.lt, low), ordered(node, operator.gt, high)])


def one_of(node: Node, texts: Sequence[str]) -> Node:
    """IN, of a property and texts only."""
    if node.kind is not Kind.PROPERTY:
        raise FilterSyntaxError("IN asks for a property on its left")
    name, wanted = str(node.value), frozenset(texts)

    def contained(properties: Mapping[str, str]) -> Value:
        value = properties.get(name)
        return None if value is None else value in wanted

    return _boolean(contained, node)


TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def text_test(node: Node, word: str, text: str, *, wanted: bool) -> Node:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT forms; all are false for an empty text and for what is no text."""
    run, holds = node.run, TEXT_TESTS[word]

    def tested(properties: Mapping[str, str]) -> Value:
        value = run(properties) if text else None
        return isinstance(value, str) and holds(value, text) is wanted

    return _boolean(tested, node)


def _boolean(run: Run, *parts: Node) -> Node:
    return Node(Kind.BOOLEAN, run, None, _deeper(*parts))


def _deeper(*parts: Node) -> int:
    depth = 1 + max(part.depth for part in parts)
    if depth > DEPTH_MAX:
        raise FilterSyntaxError(f"the expression nests deeper than {DEPTH_MAX} levels")
    return depth


def _unknown(_: Value) -> None:
    return None
