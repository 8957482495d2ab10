"""How typed headers become string fields and come back.

On the wire every field is a string under Java's field name. Reading follows Java: booleans are `true` in any case or
false, numbers are decimal, unknown fields are ignored. Stricter than Java in one point: a missing required field or a bad
number is an error at once, not a NullPointerException later.
"""

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

import msgspec

from trimtab.errors import BadHeaderError


class Header(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all typed headers: snake_case here, camelCase on the wire."""


H = TypeVar("H", bound=Header)


def encode_ext(header: Header) -> dict[str, str]:
    """The string fields of a header; absent ones are left out."""
    ext = {}
    for attribute, name in _wire_names(type(header)):
        value = getattr(header, attribute)
        if value is not None:
            ext[name] = value if value.__class__ is str else _text(value)
    return ext


def decode_ext(header_type: type[H], ext: Mapping[str, str]) -> H:
    """The typed header in these fields, or `BadHeaderError`, which leaves the connection usable."""
    booleans = _boolean_names(header_type)
    if booleans:
        ext = {**ext, **{name: _java_boolean(ext[name]) for name in booleans if name in ext}}
    try:
        return msgspec.convert(ext, header_type, strict=False)
    except msgspec.ValidationError as exc:
        raise BadHeaderError(f"{header_type.__name__}: {exc}") from exc


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _java_boolean(text: str) -> str:
    return "true" if text.lower() == "true" else "false"


@cache
def _wire_names(header_type: type[Header]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(header_type))


@cache
def _boolean_names(header_type: type[Header]) -> tuple[str, ...]:
    fields = msgspec.structs.fields(header_type)
    return tuple(field.encode_name for field in fields if field.type in (bool, bool | None))
