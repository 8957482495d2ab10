"""The SQL92 filter: what matches, what does not compile, what cannot harm us. Java is asked in tests/interop."""

import sys

import pytest

from trimtab.broker.sql92 import FilterSyntaxError, compile_sql92
from trimtab.broker.sql92_parser import EXPRESSION_CHARACTERS_MAX, NESTING_MAX


def matches(expression: str, **properties: str) -> bool:
    return compile_sql92(expression).matches(properties)


@pytest.mark.parametrize(
    ("expression", "properties"),
    [
        ("price > 5", {"price": "6"}),
        ("price > 5", {"price": "+6"}),
        ("5 <= price", {"price": "5"}),
        ("price = -5", {"price": "-5"}),
        ("price > 5.5", {"price": "6"}),
        ("price > 5.5", {"price": " 0x1p4 "}),
        ("price > 2147483648", {"price": "3000000000"}),
        ("a > b", {"a": "10", "b": "9.5"}),
        ("a >= b", {"a": "NaN", "b": "NaN"}),
        ("a > b", {"a": "0.0", "b": "-0.0"}),
        ("region = 'eu'", {"region": "eu"}),
        ("name = 'it''s'", {"name": "it's"}),
        ("region <> 'eu'", {"region": "us"}),
        ("region IN ('eu', 'us')", {"region": "us"}),
        ("region NOT IN ('eu', 'us')", {"region": "asia"}),
        ("price BETWEEN 1 AND 3", {"price": "3"}),
        ("price NOT BETWEEN 1 AND 3", {"price": "4"}),
        ("flag = TRUE", {"flag": "True"}),
        ("a IS NULL", {}),
        ("a IS NOT NULL", {"a": ""}),
        ("a = b", {}),
        ("NOT (5 = a)", {}),
        ("TRUE", {}),
        ("NOT (a = 1 AND b = 2)", {"a": "2"}),
        ("a = 1 OR b = 2", {"b": "2"}),
        ("a = 1 or b = 2 and c = 3", {"a": "1"}),
        ("name CONTAINS 'ell'", {"name": "hello"}),
        ("name startswith 'he'", {"name": "hello"}),
        ("name EndsWith 'lo'", {"name": "hello"}),
        ("name NOT CONTAINS 'x'", {"name": "hello"}),
        ("/* a */ price -- of one\n > 5", {"price": "6"}),
        ("price = 5 whatever ???", {"price": "5"}),
    ],
)
def test_these_match(expression: str, properties: dict[str, str]) -> None:
    assert compile_sql92(expression).matches(properties)


@pytest.mark.parametrize(
    ("expression", "properties"),
    [
        ("price > 5", {}),
        ("price > 5", {"price": "5"}),
        ("price > 5", {"price": "5.5"}),
        ("price > 5", {"price": "3000000000"}),
        ("price > 5", {"price": " 6"}),
        ("price > 5", {"price": "1_0"}),
        ("price < 5.5", {"price": "nan"}),
        ("price > 5", {"Price": "6"}),
        ("a > b", {"a": "x", "b": "1"}),
        ("region <> 'eu'", {}),
        ("NOT (a = 5)", {}),
        ("NOT (a = b)", {}),
        ("region NOT IN ('eu')", {}),
        ("TRUE = flag", {"flag": "true"}),
        ("flag", {"flag": "true"}),
        ("NULL", {}),
        ("-price < 5", {"price": "6"}),
        ("name CONTAINS ''", {"name": "hello"}),
        ("name NOT CONTAINS 'x'", {}),
        ("a = 1 AND b = 'x'", {"a": "no number", "b": "x"}),
        ("a = 1 OR b = 'x'", {"a": "no number", "b": "x"}),
    ],
)
def test_these_do_not_match(expression: str, properties: dict[str, str]) -> None:
    assert not compile_sql92(expression).matches(properties)


def test_an_and_stops_at_the_first_false_before_it_can_fail() -> None:
    assert matches("NOT (b = 'x' AND a > 5)", a="no number", b="y")


def test_an_or_stops_at_the_first_true_before_it_can_fail() -> None:
    assert matches("b = 'x' OR a > 5", a="no number", b="x")


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "   ",
        "price >",
        "5",
        "'text'",
        "-price",
        "price > 'x'",
        "price > TRUE",
        "price > NULL",
        "a = NULL",
        "TRUE = 5",
        "(a > 1) > 2",
        "price BETWEEN 3 AND 1",
        "price BETWEEN 'a' AND 'b'",
        "price BETWEEN 'a' AND 1",
        "5 IN ('5')",
        "a IN (5)",
        "a IN ()",
        "a NOT 5",
        "a IS 5",
        "a = 'unfinished",
        "a = 5 !",
        "(a = 5",
        "a = 0.0",
        "a = 1e400",
        "a = 9223372036854775808",
        "contains = 1",
        "a /* unfinished",
    ],
)
def test_these_do_not_compile(expression: str) -> None:
    with pytest.raises(FilterSyntaxError):
        compile_sql92(expression)


def test_the_error_says_where() -> None:
    with pytest.raises(FilterSyntaxError, match="AND at character 8"):
        compile_sql92("price > AND")


@pytest.mark.parametrize(
    "expression",
    [
        "a" * (1 << 20),
        "(" * EXPRESSION_CHARACTERS_MAX,
        "(" * (NESTING_MAX + 1) + "a = 1" + ")" * (NESTING_MAX + 1),
        "NOT " * 10_000 + "a",
        "-" * EXPRESSION_CHARACTERS_MAX,
        "a" + " IS NULL" * 8_000,
        "a" + "=b" * 30_000,
        "a = " + "9" * 60_000,
        "a = 1e" + "9" * 60_000,
        "a = '" + "x" * 60_000,
        "a = /*" + "*" * 60_000,
        "'" * 60_001,
        " " * EXPRESSION_CHARACTERS_MAX,
    ],
    ids=lambda expression: f"{expression[:12]}…{len(expression)}",
)
def test_a_hostile_expression_is_refused(expression: str) -> None:
    with pytest.raises(FilterSyntaxError):
        compile_sql92(expression)


def test_what_compiles_needs_little_stack_however_long_it_is() -> None:
    chain = compile_sql92(" AND ".join(["a = 1"] * 6_000))
    nested = compile_sql92("(b = 1 OR NOT (b = 2 AND " * 50 + "a = 1" + "))" * 50)
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(_frames_now() + 400)
        assert chain.matches({"a": "1"})
        assert not nested.matches({"a": "1"})
    finally:
        sys.setrecursionlimit(limit)


def _frames_now() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize(
    "value", ["1" * 32_000 + "x", "0x" + "f" * 32_000, " " * 32_000, "1e" + "9" * 32_000]
)
def test_a_hostile_property_is_just_no_number(value: str) -> None:
    assert not matches("a > 5", a=value)
    assert not matches("a < 5.5", a=value)
