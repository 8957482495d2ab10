"""The values of a SQL92 filter and how Java compares them.

A value is one of: `None`, a boolean, a text (every property is one), an `int` that Java holds in 32 bits, a `Long`, a `float`.
When two kinds meet, the text is read as the other kind: `price > 5` reads the property as a 32-bit integer, so "5.5" and
"3000000000" are no numbers there. What cannot be read is an `EvaluationError`, and the message does not match.
"""

import math
import re

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class EvaluationError(Exception):
    """The expression has no value for these properties; there the stock filter throws."""


class Long(int):
    """An integer beyond 32 bits: whatever it meets is read as 64 bits."""


Value = None | bool | str | int | float

_is_integer = re.compile(r"[+-]?\d+").fullmatch
_blank = r"[\x00-\x20]*"
_digits = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_hex_digits = r"0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
_double = re.compile(
    rf"{_blank}(?:([+-]?(?:NaN|Infinity))|([+-]?{_digits})[fFdD]?|([+-]?{_hex_digits})[fFdD]?){_blank}"
).fullmatch


def read_int(text: str) -> int:
    """A 32-bit integer as `Integer.valueOf` reads it: a sign, digits of any script, nothing else."""
    return _read_integer(text, INT_MAX)


def read_long(text: str) -> int:
    """The same with 64 bits."""
    return _read_integer(text, LONG_MAX)


def _read_integer(text: str, largest: int) -> int:
    # Java looks at UTF-16 units and so sees no digit beyond the first plane. int() refuses more than 4,300 digits.
    if _is_integer(text) is None or not (text.isascii() or max(text) <= "\uffff"):
        raise EvaluationError(text)
    try:
        number = int(text)
    except ValueError as exc:
        raise EvaluationError(text) from exc
    if not -largest - 1 <= number <= largest:
        raise EvaluationError(text)
    return number


def read_double(text: str) -> float:
    """A double as `Double.valueOf` reads it: blanks around it, hexadecimal and a type letter are fine."""
    match = _double(text)
    if match is None:
        raise EvaluationError(text)
    word, decimal, hexadecimal = match.groups()
    if hexadecimal is None:
        return float(decimal or word)
    try:
        return float.fromhex(hexadecimal)
    except OverflowError:
        return -math.inf if hexadecimal.startswith("-") else math.inf


def read_boolean(text: str) -> bool:
    """True for "true" in any case, else false."""
    return text.lower() == "true"


_READERS = {bool: read_boolean, int: read_int, Long: read_long, float: read_double}


def compare(left: Value, right: Value) -> int:
    """Below, at or above zero, as the left is less than, equal to or greater than the right. Neither is `None`.

    Kinds that cannot meet count as less, except that a boolean on the left never meets a text: Java fails there.
    """
    left_type, right_type = type(left), type(right)
    if left_type is not right_type:
        if left_type is bool:
            if right_type is str:
                raise EvaluationError(right)
            return -1
        if isinstance(left, str):
            left = _READERS[right_type](left)
        elif isinstance(right, str):
            right = _READERS[left_type](right)
        elif right_type is bool:
            return -1
    return order(left, right)


def order(left: Value, right: Value) -> int:
    """The total order of two values of one kind, or of two numbers."""
    if isinstance(left, float) or isinstance(right, float):
        return order_doubles(float(left), float(right))  # type: ignore[arg-type]  # two numbers
    if left == right:
        return 0
    return -1 if left < right else 1  # type: ignore[operator]  # of one kind


def order_doubles(left: float, right: float) -> int:
    """Java's order: minus zero is below zero, NaN equals itself and lies above everything."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank(number: float) -> int:
    """Tells apart what `<` and `>` do not: NaN against all others, and the two zeros."""
    if math.isnan(number):
        return 2
    return -1 if number == 0 and math.copysign(1, number) < 0 else 0


def read_decimal_literal(text: str) -> int:
    """A literal without fraction: `int` if 32 bits hold it, else `Long`; beyond 64 bits a `ValueError`."""
    digits = text.rstrip("lL")
    if len(digits) > 19 or int(digits) > LONG_MAX:
        raise ValueError(f"{text[:32]} does not fit into 64 bits")
    number = int(digits)
    return number if number <= INT_MAX else Long(number)


def read_float_literal(text: str) -> float:
    """A literal with fraction or exponent. Zero and whatever rounds to it or to infinity is a `ValueError`, as in Java."""
    number = float(text)
    if number == 0 or math.isinf(number):
        raise ValueError(f"{text[:32]} is not between {5e-324} and {1.7976931348623157e308}")
    return number
