"""JSON bodies as fastjson 1.2.76 writes them, byte for byte.

Keys of objects are in alphabetical order, maps and arrays keep the order they have here. None is left out, also in maps.
Doubles look as Java prints them. A writer is built once per type from its annotations, so an int in a double's place still
gets its fraction.
"""

import math
import re
from collections.abc import Callable
from enum import Enum, auto
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

_Writer = Callable[[Any], str]


class Form(Enum):
    """How keys that are not strings, and odd characters, are written."""

    NATIVE = auto()
    """fastjson's own: integers unquoted and objects as keys. Every stock client and broker reads it."""
    STANDARD = auto()
    """Standard JSON: quoted integers, and strings that hold an object's JSON. The latter 5.5 cannot read."""
    BROWSER = auto()
    """Standard JSON in ASCII: how name servers of 4.9.4 and later answer clients of that age with a route."""


def encode_body(value: msgspec.Struct, form: Form = Form.NATIVE) -> bytes:
    """The body as Java would write it."""
    return encode_as(type(value), value, form)


def encode_as(as_type: Any, value: Any, form: Form = Form.NATIVE) -> bytes:
    """Like `encode_body`, for what is no struct of its own, such as `tuple[str, ...]`."""
    # Half of a surrogate pair becomes "?", as in Java.
    return _writer(as_type, form)(value).encode("utf-8", "replace")


@cache
def _writer(as_type: Any, form: Form) -> _Writer:
    return _writer_of(inspect.type_info(as_type), form)


def _writer_of(info: inspect.Type, form: Form) -> _Writer:
    match info:
        case inspect.StructType():
            return _struct_writer(info, form)
        case inspect.DictType():
            return _map_writer(info, form)
        case inspect.VarTupleType():
            item = _writer_of(info.item_type, form)
            return lambda values: f"[{','.join([item(each) for each in values])}]"
        case inspect.UnionType():
            (only,) = (each for each in info.types if not isinstance(each, inspect.NoneType))
            return _writer_of(only, form)
        case inspect.StrType():
            return _quoted_ascii if form is Form.BROWSER else _quoted
        case inspect.IntType():
            return _integer_writer(info)
        case inspect.BoolType():
            return lambda value: "true" if value else "false"
        case inspect.FloatType():
            return java_double
        case inspect.EnumType():
            return lambda member: f'"{member.name}"'
        case _:
            raise TypeError(f"bodies do not hold {info}")


def _struct_writer(info: inspect.StructType, form: Form) -> _Writer:
    fields = sorted((field.encode_name, field.name, _writer_of(field.type, form)) for field in info.fields)
    plan = tuple((f'"{key}":', name, write) for key, name, write in fields)

    def write(value: Any) -> str:
        parts = []
        for key, name, write_field in plan:
            field = getattr(value, name)
            if field is not None:
                parts.append(key + write_field(field))
        return f"{{{','.join(parts)}}}"

    return write


def _map_writer(info: inspect.DictType, form: Form) -> _Writer:
    write_key = _key_writer(info.key_type, form)
    write_value = _writer_of(info.value_type, form)

    def write(table: Any) -> str:
        parts = [
            f"{write_key(key)}:{write_value(value)}" for key, value in table.items() if value is not None
        ]
        return f"{{{','.join(parts)}}}"

    return write


def _key_writer(info: inspect.Type, form: Form) -> _Writer:
    bare = _writer_of(info, form)
    if form is Form.NATIVE or isinstance(info, inspect.StrType):
        return bare
    quoted = _quoted_ascii if form is Form.BROWSER else _quoted
    return lambda key: quoted(bare(key))


def _integer_writer(info: inspect.IntType) -> _Writer:
    low, high = info.ge, info.le

    def write(value: Any) -> str:
        assert low is None or high is None or low <= value <= high, f"{value} outside {low}..{high}"
        return int.__repr__(value)

    return write


_SHORT_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "/": "\\/",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
_ODD = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_ODD_IN_ASCII = re.compile(r'["\\/]|[^ -~]')


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        return short
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)])


def _quoted(text: str) -> str:
    return f'"{_ODD.sub(_escaped, text)}"'


def _quoted_ascii(text: str) -> str:
    return f'"{_ODD_IN_ASCII.sub(_escaped, text)}"'


def java_double(value: float) -> str:
    """As Java prints it: `1.0`, `1.0E10`, `9.99E-4`; null where JSON has no number."""
    if not math.isfinite(value):
        return "null"
    digits = repr(float(value))
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        return digits
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = digits.removeprefix("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    figures = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(figures)
    power = int(exponent or 0) + len(whole) - 1 - leading_zeros
    return f"{sign}{figures[0]}.{figures[1:].rstrip('0') or '0'}E{power}"
