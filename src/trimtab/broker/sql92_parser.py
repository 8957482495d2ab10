"""From the text of a SQL92 filter to its parts.

Weakest first: OR · AND · `=` `<>` IS [NOT] NULL · `<` `<=` `>` `>=` [NOT] BETWEEN, IN, CONTAINS, STARTSWITH, ENDSWITH · `+` `-` NOT.
All bind to the left. Two habits of the stock parser are kept because consumers may rely on them: tokens are cut only when
they are needed, and whatever follows a whole expression is not looked at (`a = 1 b ???` is `a = 1`).
"""

import operator
import re
from collections.abc import Callable
from typing import NamedTuple

from trimtab.broker import sql92_nodes as nodes
from trimtab.broker.sql92_nodes import FilterSyntaxError, Node
from trimtab.broker.sql92_values import read_decimal_literal, read_float_literal

EXPRESSION_CHARACTERS_MAX = 64 << 10
NESTING_MAX = 100
"""Brackets inside brackets."""

_KEYWORDS = {
    "AND", "BETWEEN", "CONTAINS", "ENDSWITH", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "STARTSWITH", "TRUE",
}  # fmt: skip
_TRUTHS = {"TRUE": True, "FALSE": False, "NULL": None}
_PREDICATES = frozenset({"BETWEEN", "IN", *nodes.TEXT_TESTS})
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

_blank = re.compile(r"(?:[ \t\n\r\f]|/\*.*?\*/)*", re.DOTALL)
_line_comment = re.compile(r"--[^\n\r]*[\n\r]")
_token = re.compile(
    r"""(?P<word>[a-zA-Z_$][a-zA-Z0-9_$]*)
    |(?P<float>[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<decimal>0|[1-9][0-9]*[lL]?)
    |(?P<text>'[^']*(?:''[^']*)*')
    |(?P<sign><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """`kind` is the keyword or sign itself, or one of "name", "text", "decimal", "float", "end"."""

    kind: str
    image: str
    at: int


class Tokens:
    """The expression cut into tokens, each when it is asked for."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._at = 0
        self._last_line_end = max(expression.rfind("\n"), expression.rfind("\r"))
        self._ahead: list[Token] = []

    def peek(self, ahead: int = 0) -> Token:
        """The token `ahead` of the next one."""
        while len(self._ahead) <= ahead:
            self._ahead.append(self._cut())
        return self._ahead[ahead]

    def take(self, kind: str) -> Token | None:
        """The next token if it is of this kind."""
        return self._next() if self.peek().kind == kind else None

    def expect(self, kind: str) -> Token:
        """The next token, which must be of this kind."""
        token = self.take(kind)
        if token is None:
            raise unexpected(self.peek(), kind)
        return token

    def _next(self) -> Token:
        self.peek()
        return self._ahead.pop(0)

    def _cut(self) -> Token:
        at = self._skip_blanks()
        if at == len(self._expression):
            return Token("end", "the end", at)
        match = _token.match(self._expression, at)
        if match is None:
            raise FilterSyntaxError(f"unreadable at character {at}: {self._expression[at : at + 20]!r}")
        self._at = match.end()
        image = match.group()
        kind = match.lastgroup or ""
        if kind == "word":
            keyword = image.upper()
            kind = keyword if keyword in _KEYWORDS else "name"
        elif kind == "sign":
            kind = image
        return Token(kind, image, at)

    def _skip_blanks(self) -> int:
        at = _end(_blank.match(self._expression, self._at), self._at)
        # Two minus signs begin a comment only if its line ends.
        while at < self._last_line_end and self._expression.startswith("--", at):
            at = _end(_line_comment.match(self._expression, at), at)
            at = _end(_blank.match(self._expression, at), at)
        self._at = at
        return at


def _end(match: re.Match[str] | None, otherwise: int) -> int:
    return otherwise if match is None else match.end()


def unexpected(token: Token, wanted: str) -> FilterSyntaxError:
    """The complaint about a token that does not belong there."""
    return FilterSyntaxError(f"{token.image[:20]} at character {token.at} where {wanted} is wanted")


def parse(expression: str) -> Node:
    """The condition that the expression states."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise FilterSyntaxError(
            f"an expression of {len(expression)} characters exceeds {EXPRESSION_CHARACTERS_MAX}"
        )
    return nodes.as_boolean(_Parser(expression).condition())


class _Parser:
    def __init__(self, expression: str) -> None:
        self._tokens = Tokens(expression)
        self._nesting = 0

    def condition(self) -> Node:
        """OR over AND."""
        choices = [self._conjunction()]
        while self._tokens.take("OR"):
            choices.append(self._conjunction())
        return nodes.any_of(choices)

    def _conjunction(self) -> Node:
        parts = [self._equality()]
        while self._tokens.take("AND"):
            parts.append(self._equality())
        return nodes.all_of(parts)

    def _equality(self) -> Node:
        tokens = self._tokens
        left = self._comparison()
        while True:
            if tokens.take("="):
                left = nodes.equal(left, self._comparison())
            elif tokens.take("<>"):
                left = nodes.negation(nodes.equal(left, self._comparison()))
            elif tokens.take("IS"):
                negated = tokens.take("NOT") is not None
                tokens.expect("NULL")
                left = nodes.negation(nodes.is_null(left)) if negated else nodes.is_null(left)
            else:
                return left

    def _comparison(self) -> Node:
        left = self._operand()
        while True:
            kind = self._tokens.peek().kind
            if kind in _ORDERS:
                self._tokens.expect(kind)
                left = nodes.ordered(left, _ORDERS[kind], self._operand())
            elif kind == "NOT" or kind in _PREDICATES:
                left = self._predicate(left)
            else:
                return left

    def _predicate(self, left: Node) -> Node:
        wanted = self._tokens.take("NOT") is None
        word = self._tokens.peek()
        if word.kind not in _PREDICATES:
            raise unexpected(word, "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        self._tokens.expect(word.kind)
        if word.kind == "BETWEEN":
            return self._between(left, wanted=wanted)
        if word.kind == "IN":
            found = nodes.one_of(left, self._texts())
            return found if wanted else nodes.negation(found)
        return nodes.text_test(left, word.kind, self._text(), wanted=wanted)

    def _between(self, left: Node, *, wanted: bool) -> Node:
        low = self._operand()
        self._tokens.expect("AND")
        high = self._operand()
        return nodes.between(left, low, high) if wanted else nodes.not_between(left, low, high)

    def _texts(self) -> list[str]:
        self._tokens.expect("(")
        texts = [self._text()]
        while self._tokens.take(","):
            texts.append(self._text())
        self._tokens.expect(")")
        return texts

    def _text(self) -> str:
        return _decoded_text(self._tokens.expect("text").image)

    def _operand(self) -> Node:
        """Signs and NOT in front of a literal, a property or brackets; the sign next to it comes first."""
        before = []
        while (kind := self._tokens.peek().kind) in ("+", "-", "NOT"):
            self._tokens.expect(kind)
            before.append(kind)
        node = self._brackets() if self._tokens.take("(") else self._primary()
        for kind in reversed(before):
            if kind != "+":
                node = nodes.negate(node) if kind == "-" else nodes.negation(node)
        return node

    def _brackets(self) -> Node:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise FilterSyntaxError(f"brackets nest deeper than {NESTING_MAX} levels")
        node = self.condition()
        self._tokens.expect(")")
        self._nesting -= 1
        return node

    def _primary(self) -> Node:
        token = self._tokens.peek()
        if token.kind not in _PRIMARIES:
            raise unexpected(token, "a property or a literal")
        self._tokens.expect(token.kind)
        try:
            return _PRIMARIES[token.kind](token.image)
        except ValueError as exc:
            raise FilterSyntaxError(f"at character {token.at}: {exc}") from exc


def _decoded_text(image: str) -> str:
    return image[1:-1].replace("''", "'")


_PRIMARIES: dict[str, Callable[[str], Node]] = {
    "name": nodes.property_named,
    "text": lambda image: nodes.literal(_decoded_text(image)),
    "decimal": lambda image: nodes.literal(read_decimal_literal(image)),
    "float": lambda image: nodes.literal(read_float_literal(image)),
    **dict.fromkeys(_TRUTHS, lambda image: nodes.truth(_TRUTHS[image.upper()])),
}
