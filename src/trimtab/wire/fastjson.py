"""JSON bodies as fastjson reads them: bytes in, typed values out.

fastjson's own JSON has things that standard JSON has not: unquoted integer keys (`{0:"x"}`), objects as keys
(`{{"brokerName":"b","queueId":0,"topic":"T"}:5}`) and references (`{"$ref":"$.a.b[0]"}`). It also forgives: numbers may
come as strings, enums as ordinals, null stands for "not given", an enum name nobody knows becomes null.

The plan, cheapest way first:

1. If an object begins with a key that is not a string, and the wanted type has queues as keys, `queue_keys` tries what is
   usual. Else, or if it is not so, one pass quotes all such keys. An object key becomes a string that holds its JSON, which
   is what fastjson accepts as well.
2. msgspec decodes the bytes into the wanted type. Nearly every body ends here.
3. What msgspec refuses, and types msgspec cannot decode directly (objects as keys, enums that are numbers), are parsed
   without a type, references are replaced by what they point at, the values are made to fit (`_fitting`), and msgspec
   converts and judges the outcome.

Whatever a hostile peer sends, the outcome is a value or `ProtocolError`; the limits below bound memory and time. Depth is
bounded by the types: what they do not name is skipped or dropped, and msgspec gives up on a bomb before the stack does.
`trimtab.wire.fastjson_writer` is the way back.
"""

import re
from collections.abc import Callable, Hashable
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from trimtab.errors import ProtocolError
from trimtab.model import MessageQueue
from trimtab.wire.fastjson_writer import encode_as
from trimtab.wire.queue_keys import queue_key_decoder

T = TypeVar("T")

BODY_BYTES_MAX = 16 << 20
DEPTH_MAX = 64
VALUES_MAX = 1 << 20
"""Values in one body. At some hundred bytes a value in Python, this bounds memory where bytes alone would not."""
REFERRED_VALUES_MAX = 1 << 14
"""Values in one body after its references are replaced; few references can stand for very many values."""
REFERRED_DEPTH_MAX = 64

# Every repetition is possessive and an unclosed string runs to the end, so no byte is looked at more than a few times.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_INTEGER: Final = rb"-?\d++"
_FLAT_OBJECT: Final = rb'\{(?:[^{}"]++|%b)*+\}' % _STRING
_UP_TO_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|%b)*+([{}\[\]]|\Z)' % _STRING, re.DOTALL)
_STEPS: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1, b"": 0}
_ODD_KEY_FIRST = re.compile(rb"\{\s*+[-\d{]")
# `(?!)` never matches. Before 3.11.5 Python went on where a failed look-ahead had ended; a last alternative puts it back.
_UP_TO_ODD_KEY = re.compile(
    rb'(?:[^"{,]++|%(string)b|(?![{,]\s*+(?:%(integer)b|%(object)b)\s*+:)[{,]|(?!))*+'
    rb"(?:[{,]\s*+(?:(%(integer)b)|(%(object)b))(?=\s*+:)|\Z)"
    % {b"string": _STRING, b"integer": _INTEGER, b"object": _FLAT_OBJECT},
    re.DOTALL,
)


def decode_body(cls: type[T], data: bytes, *, body_bytes_max: int = BODY_BYTES_MAX) -> T:
    """The value that `data` holds; what is missing has Java's defaults. Anything else is `ProtocolError`."""
    try:
        value: T = _decode(cls, data, body_bytes_max)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, MemoryError) as error:
        raise ProtocolError(f"{_name(cls)} body of {len(data)} bytes: {error}") from error
    return value


def _decode(cls: Any, data: bytes, body_bytes_max: int) -> Any:
    if len(data) > body_bytes_max:
        raise ProtocolError(f"{_name(cls)} body of {len(data)} bytes is longer than {body_bytes_max}")
    if data.count(b",") + data.count(b"{") + data.count(b"[") > VALUES_MAX:
        raise ProtocolError(f"{_name(cls)} body of {len(data)} bytes holds more than {VALUES_MAX} values")
    referring = b'"$ref"' in data
    if _ODD_KEY_FIRST.search(data):
        quickly = queue_key_decoder(cls)
        if quickly is not None and not referring:
            try:
                return quickly(data)
            except msgspec.DecodeError:
                pass  # other keys than queues, or other types than ours
        _check_depth(data)
        data = _UP_TO_ODD_KEY.sub(_with_quoted_key, data)
    reader = _reader(cls)
    if reader.decoder is not None and not referring:
        try:
            return reader.decoder.decode(data)
        except msgspec.ValidationError:
            pass  # standard JSON of other types than ours: fastjson may forgive it
    parsed = msgspec.json.decode(data)
    if referring:
        parsed = _References(parsed).replaced()
    return msgspec.convert(reader.fitting(parsed), cls, strict=False)


def _check_depth(data: bytes) -> None:
    """Bodies with odd keys are rewritten before msgspec sees them; its own guard against depth would come too late."""
    steps = (_STEPS[match[1]] for match in _UP_TO_BRACKET.finditer(data))
    # At the first one, not after all: a hostile body goes on for megabytes.
    if any(depth > DEPTH_MAX for depth in accumulate(steps)):
        raise ProtocolError(f"a body of {len(data)} bytes is nested more than {DEPTH_MAX} deep")


def _name(cls: Any) -> str:
    return getattr(cls, "__name__", str(cls))


def _with_quoted_key(match: re.Match[bytes]) -> bytes:
    number, text = match.groups()
    if number is not None:
        return match[0].removesuffix(number) + b'"%b"' % number
    if text is not None:
        return match[0].removesuffix(text) + msgspec.json.encode(text.decode())
    return match[0]


class _Reader(NamedTuple):
    decoder: msgspec.json.Decoder[Any] | None
    fitting: Callable[[Any], Any]


@cache
def _reader(cls: Hashable) -> _Reader:
    info = inspect.type_info(cls)
    decoder: msgspec.json.Decoder[Any] | None = None
    if _msgspec_can_decode(info):
        decoder = msgspec.json.Decoder(cls, strict=False)
    return _Reader(decoder, _fitting(info) or _unchanged)


def _msgspec_can_decode(info: inspect.Type) -> bool:
    match info:
        case inspect.DictType():
            return not isinstance(info.key_type, inspect.StructType) and _msgspec_can_decode(info.value_type)
        case inspect.StructType():
            return all(_msgspec_can_decode(field.type) for field in info.fields)
        case inspect.UnionType():
            return all(_msgspec_can_decode(each) for each in info.types)
        case inspect.VarTupleType():
            return _msgspec_can_decode(info.item_type)
        case inspect.EnumType():
            # On the wire is the name. msgspec goes by value, which is the name only in enums of strings.
            return issubclass(info.cls, str)
        case _:
            return True


def _unchanged(value: Any) -> Any:
    return value


def _fitting(info: inspect.Type) -> Callable[[Any], Any] | None:
    """Makes a parsed value fit the type as fastjson would; None where there is nothing to do.

    A value of a wrong kind passes as it is: msgspec refuses it later, and says where it stood.
    """
    match info:
        case inspect.UnionType():
            (only,) = (each for each in info.types if not isinstance(each, inspect.NoneType))
            return _fitting(only)
        case inspect.StrType():
            return _text
        case inspect.EnumType():
            return _fitting_enum(info)
        case inspect.VarTupleType():
            return _fitting_array(info)
        case inspect.DictType():
            return _fitting_map(info)
        case inspect.StructType():
            return _fitting_struct(info)
        case _:
            return None


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def _fitting_enum(info: inspect.EnumType) -> Callable[[Any], Any]:
    by_ordinal = tuple(info.cls)
    by_name = {member.name: member for member in by_ordinal}

    def fit(value: Any) -> Any:
        if isinstance(value, int) and 0 <= value < len(by_ordinal):
            return by_ordinal[value]
        return by_name.get(value) if isinstance(value, str) else value

    return fit


def _fitting_array(info: inspect.VarTupleType) -> Callable[[Any], Any] | None:
    item = _fitting(info.item_type)
    if item is None:
        return None
    return lambda value: [item(each) for each in value] if isinstance(value, list) else value


def _fitting_map(info: inspect.DictType) -> Callable[[Any], Any]:
    fit_value = _fitting(info.value_type) or _unchanged
    fit_key: Callable[[Any], Any] = _unchanged
    if isinstance(info.key_type, inspect.StructType):
        fit_key = msgspec.json.Decoder(info.key_type.cls, strict=False).decode

    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {fit_key(key): fit_value(each) for key, each in value.items() if each is not None}

    return fit


def _fitting_struct(info: inspect.StructType) -> Callable[[Any], Any]:
    fields = {field.encode_name: _fitting(field.type) or _unchanged for field in info.fields}

    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name: fields[name](each) for name, each in value.items() if each is not None and name in fields
        }

    return fit


class _References:
    """Replaces `{"$ref": path}` by a copy of what the path points at.

    `$`, `..` and `@` mean the whole, the parent and the object itself: each holds the reference, as do all
    paths to something around it, so these can never end. A path to nowhere stays as it is, as in fastjson.
    """

    _STEP = re.compile(r"\.((?:[^\\.\[]|\\.)++)|\[(\d{1,9})\]", re.DOTALL)

    def __init__(self, root: Any) -> None:
        self._root = root
        self._values_left = REFERRED_VALUES_MAX
        self._around: set[int] = set()
        self._found: dict[str, Any] = {}

    def replaced(self) -> Any:
        return self._copy(self._root, 0)

    def _copy(self, value: Any, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise ValueError(f"references stand for more than {REFERRED_VALUES_MAX} values")
        if not isinstance(value, dict | list):
            return value
        if id(value) in self._around:
            raise ValueError("a reference to something that holds it")
        if depth > REFERRED_DEPTH_MAX:
            raise ValueError(f"references are nested deeper than {REFERRED_DEPTH_MAX}")
        self._around.add(id(value))
        copy: Any
        if isinstance(value, list):
            copy = [self._copy(each, depth + 1) for each in value]
        elif len(value) == 1 and isinstance(path := value.get("$ref"), str):
            target = self._target(path)
            copy = value if target is None else self._copy(target, depth + 1)
        else:
            copy = {key: self._copy(each, depth + 1) for key, each in value.items()}
        self._around.discard(id(value))
        return copy

    def _target(self, path: str) -> Any:
        if path in {"$", "..", "@"}:
            raise ValueError(f"the reference {path!r} points at something that holds it")
        if path not in self._found:
            self._found[path] = self._walk(path)
        return self._found[path]

    def _walk(self, path: str) -> Any:
        here, at = (self._root, 1) if path.startswith("$") else (None, 0)
        while here is not None and at < len(path):
            step = self._STEP.match(path, at)
            if step is None:
                return None
            here, at = self._step(here, step), step.end()
        return here

    def _step(self, here: Any, step: re.Match[str]) -> Any:
        name, index = step.groups()
        if index is not None:
            return here[int(index)] if isinstance(here, list) and int(index) < len(here) else None
        if not isinstance(here, dict):
            return None
        key = re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)
        return here.get(key, here.get(self._queue_key(key)))

    def _queue_key(self, printed: str) -> str | None:
        """The key of a queue whose `toString` stands in a path."""
        if not printed.startswith("MessageQueue [topic=") or not printed.endswith("]"):
            return None
        topic, _, rest = printed[len("MessageQueue [topic=") : -1].partition(", brokerName=")
        broker_name, _, queue_id = rest.rpartition(", queueId=")
        if not re.fullmatch(r"-?[0-9]{1,10}", queue_id):
            return None
        return encode_as(MessageQueue, MessageQueue(topic, broker_name, int(queue_id))).decode()
