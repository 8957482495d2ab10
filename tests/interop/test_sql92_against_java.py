"""Random SQL92 filters over random properties: ours must refuse and match exactly what the stock filter does."""

import base64
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apache.oracle import JavaOracle
from tests.interop.seeds import seed
from trimtab.broker.sql92_nodes import FilterSyntaxError, Run
from trimtab.broker.sql92_parser import parse
from trimtab.broker.sql92_values import EvaluationError

SOURCE = Path(__file__).parent.parent / "apache" / "java" / "SqlOracle.java"
EXPRESSIONS = 12_000
MAPS = 6

Properties = dict[str, str]
Case = tuple[str, list[Properties]]

NAMES = ["a", "b", "c", "A", "_x$1", "price"]
NUMBERS = [
    "0", "1", "5", "7L", "12l", "42", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "5.5", ".5", "5.",
    "5e1", "1E-3", "0.0", "1e400", "4.9e-324", "1e-400", "9007199254740993.0", "00", "007", "1..5", "0L", "12abc", "1e",
]  # fmt: skip
TEXTS = ["''", "'x'", "'5'", "'true'", "'it''s'", "'5.5'", "'ä'", "'x y'", "'-- '", "''''"]
VALUES = [
    "", "x", "5", "5.5", "true", "TRUE", "false", "it's", "ä", "x y", "-5", "+5", "05", " 5", "5 ", "0", "-0", "0.0", "-0.0", "NaN",
    "-NaN", "Infinity", "-Infinity", "inf", "nan", "1e3", "1e400", "0x10", "0x1p4", "0x.8P1f", "0x1.8p9999", "5d", "5.5F", "5L", "1_0",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "9007199254740993",
    "42", "7", "12", "\u0665", "\uff15", "\U0001d7d7", "\u00a05", "1e-400", ".5", "5.", ".", "+", "-", "e5", "\t5\n", "0" * 30 + "5",
]  # fmt: skip
ORDERS = ["<", "<=", ">", ">="]
NOISE: list[str] = [
    *"()=<>,+-'\"!/*\\;%&|.0123456789eElLxX_$ \t\n\r\f\u00a0\u212a\u017fäß\U0001d7d7",
    "--", "/*", "*/", "<>", "-- c\n", "/* c **/", "''", "NOT", "AND", "OR", "IS", "NULL", "BETWEEN", "IN",
]  # fmt: skip


class Generator:
    """Mostly well-formed expressions; some with a wrong operand, some broken by chance."""

    def __init__(self, rng: random.Random, *, text_tests: bool) -> None:
        self._rng = rng
        self._text_tests = text_tests

    def expression(self) -> str:
        text = self._condition(self._rng.choice([0, 1, 1, 2, 2, 3]))
        for _ in range(self._rng.choice([0, 0, 0, 0, 1, 1, 2, 4])):
            text = self._broken(text)
        return text

    def properties(self) -> Properties:
        return {name: self._rng.choice(VALUES) for name in NAMES if self._rng.random() < 0.7}

    def _condition(self, depth: int) -> str:
        rng = self._rng
        if depth == 0:
            return self._predicate()
        shape = rng.randrange(8)
        if shape <= 1:
            return f"{self._condition(depth - 1)} {self._case('AND')} {self._condition(depth - 1)}"
        if shape <= 3:
            return f"{self._condition(depth - 1)} {self._case('OR')} {self._condition(depth - 1)}"
        if shape == 4:
            return f"{self._case('NOT')} ({self._condition(depth - 1)})"
        if shape == 5:
            return f"({self._condition(depth - 1)})"
        if shape == 6:
            return f"({self._condition(depth - 1)}) {rng.choice(['=', '<>'])} {self._operand()}"
        return f"{self._condition(depth - 1)} {self._null_test()}"

    def _predicate(self) -> str:
        rng = self._rng
        left = self._operand()
        shape = rng.randrange(10)
        negated = rng.choice(["", self._case("NOT") + " "])
        if shape <= 2:
            return f"{left}{rng.choice(['=', '<>', ' = '])}{self._operand()}"
        if shape <= 4:
            return f"{left} {rng.choice(ORDERS)} {self._operand()}"
        if shape == 5:
            return f"{left} {negated}{self._case('BETWEEN')} {self._operand()} AND {self._operand()}"
        if shape == 6:
            return (
                f"{left} {negated}{self._case('IN')} ({', '.join(rng.choices(TEXTS, k=rng.randint(1, 7)))})"
            )
        if shape == 7:
            return f"{left} {self._null_test()}"
        if shape == 8 and self._text_tests:
            word = self._case(rng.choice(["CONTAINS", "STARTSWITH", "ENDSWITH"]))
            return f"{left} {negated}{word} {rng.choice(TEXTS)}"
        return left

    def _operand(self) -> str:
        rng = self._rng
        shape = rng.randrange(12)
        if shape <= 5:
            return rng.choice(NAMES)
        if shape <= 7:
            return rng.choice(["", "", "-", "+", "- ", "-- "]) + rng.choice(NUMBERS[:12])
        if shape == 8:
            return rng.choice(NUMBERS)
        if shape == 9:
            return rng.choice(TEXTS)
        if shape == 10:
            return self._case(rng.choice(["TRUE", "FALSE", "NULL"]))
        return rng.choice(["-", "+", "NOT ", ""]) + f"({self._operand()})"

    def _null_test(self) -> str:
        return self._case(self._rng.choice(["IS NULL", "IS NOT NULL"]))

    def _case(self, word: str) -> str:
        return self._rng.choice([word, word, word.lower(), word.title()])

    def _broken(self, text: str) -> str:
        rng = self._rng
        at = rng.randint(0, len(text))
        shape = rng.randrange(4)
        if shape == 0:
            return text[:at] + text[at + rng.randint(1, 4) :]
        if shape == 1:
            return text[:at] + rng.choice(NOISE) + text[at:]
        if shape == 2:
            return f"{text} {rng.choice(NOISE)}"
        return text[:at] + " " + text[at:]


def ours(expression: str, maps: list[Properties]) -> str:
    """The oracle's letters for what our filter says."""
    try:
        run = parse(expression).run
    except FilterSyntaxError:
        return "E"
    return "".join(letter(run, properties) for properties in maps)


def letter(run: Run, properties: Properties) -> str:
    try:
        value = run(properties)
    except EvaluationError:
        return "X"
    if value is None:
        return "N"
    return "T" if value is True else "F" if value is False else "?"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def line(case: Case) -> str:
    expression, maps = case
    fields = [",".join(f"{encoded(name)}:{encoded(value)}" for name, value in each.items()) for each in maps]
    return " ".join([encoded(expression), *fields])


def cases(*, text_tests: bool) -> Iterator[Case]:
    generator = Generator(random.Random(seed()), text_tests=text_tests)
    for _ in range(EXPRESSIONS):
        yield generator.expression(), [generator.properties() for _ in range(MAPS)]


def check(version: str, asked: list[Case]) -> list[str]:
    verdicts = JavaOracle(version, SOURCE).run(map(line, asked))
    mine = [ours(*case) for case in asked]
    different = [
        (expression, maps, f"Java {java}, ours {own}")
        for (expression, maps), java, own in zip(asked, verdicts, mine, strict=True)
        if java != own
    ]
    assert different[:10] == [], f"{len(different)} differ with RocketMQ {version}, TRIMTAB_SEED={seed()}"
    return verdicts


@pytest.mark.parametrize(("version", "text_tests"), [("4.9.3", False), ("5.5.0", True)])
def test_random_filters_compile_and_match_as_in_java(version: str, text_tests: bool) -> None:
    verdicts = check(version, list(cases(text_tests=text_tests)))
    seen = "".join(verdicts)
    assert min(seen.count(letter) for letter in "ETFNX") > EXPRESSIONS // 20, (
        "the generator has become one-sided"
    )


@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_every_value_reads_as_in_java_next_to_every_literal(version: str) -> None:
    maps = [{"a": value, "b": other} for value in VALUES for other in ("5", "-0.0", "NaN")]
    literals = ["5", "2147483648", "-2147483648", "5.5", "-1e300", "TRUE", "'5'", "b"]
    asked = [
        (f"{left} {sign} {right}", maps)
        for literal in literals
        for left, right in (("a", literal), (literal, "a"))
        for sign in ("=", "<>", *ORDERS)
    ]
    check(version, asked)
