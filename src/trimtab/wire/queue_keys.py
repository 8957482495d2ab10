"""Bodies with queues as keys (`{{"brokerName":"b","queueId":0,"topic":"T"}:5}`), the quick way.

A group may have tens of thousands of queues, and Java writes each key alike. Keys that look so are quoted without a look at what is
between them, and msgspec decodes into a twin of the wanted type whose maps have texts as keys. Only those are then made into queues.
Whatever does not fit is refused here: `fastjson` has the way that forgives.
"""

import re
from collections.abc import Callable, Hashable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from trimtab.model import MessageQueue

# In JSON `{"` is followed by a letter only where an object begins, so this is never found inside of a string.
_QUEUE_AS_KEY: Final = re.compile(rb'(\{"brokerName":"[^"\\]*+","queueId":-?\d++,"topic":"[^"\\]*+"\})(?=:)')
_queue = msgspec.json.Decoder(MessageQueue, strict=False).decode


@cache
def queue_key_decoder(cls: Hashable) -> Callable[[bytes], Any] | None:
    """From bytes to the type; raises `msgspec.DecodeError` for what it does not know. None for types without queues as keys."""
    hint, restore = _twin(cls)
    if restore is None:
        return None
    decode = msgspec.json.Decoder(hint, strict=False).decode
    return lambda data: restore(decode(_quoted(data)))


def _quoted(data: bytes) -> bytes:
    parts = _QUEUE_AS_KEY.split(data)
    parts[1::2] = [b'"' + key.replace(b'"', b'\\"') + b'"' for key in parts[1::2]]
    return b"".join(parts)


class _Twin(NamedTuple):
    """A type that msgspec decodes, and the way from its values to the wanted ones; None if they are the same."""

    hint: Any
    restore: Callable[[Any], Any] | None


def _twin(hint: Any) -> _Twin:
    kind, args = get_origin(hint), get_args(hint)
    if kind is dict:
        return _map(*args)
    if kind is tuple:
        return _array(args[0])
    if kind is UnionType and args[1:] == (NoneType,):
        return _optional(args[0])
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    return _Twin(hint, None)


def _map(key: Any, value: Any) -> _Twin:
    inner, restore = _twin(value)
    hint: Any = dict[str if key is MessageQueue else key, inner]  # type: ignore[misc]
    if key is not MessageQueue:
        return _Twin(hint, restore and (lambda table: {name: restore(each) for name, each in table.items()}))
    if restore is None:
        return _Twin(hint, lambda table: {_queue(name): each for name, each in table.items()})
    return _Twin(hint, lambda table: {_queue(name): restore(each) for name, each in table.items()})


def _array(item: Any) -> _Twin:
    inner, restore = _twin(item)
    hint = tuple[inner, ...]  # type: ignore[valid-type]
    return _Twin(hint, restore and (lambda items: tuple(map(restore, items))))


def _optional(wanted: Any) -> _Twin:
    inner, restore = _twin(wanted)
    return _Twin(inner | None, restore and (lambda value: None if value is None else restore(value)))


def _struct(cls: type[msgspec.Struct]) -> _Twin:
    hints = get_type_hints(cls, include_extras=True)
    fields = msgspec.structs.fields(cls)
    twins = {one.name: _twin(hints[one.name]) for one in fields}
    if not any(twin.restore for twin in twins.values()):
        return _Twin(cls, None)
    twin = msgspec.defstruct(
        cls.__name__,
        [(one.name, twins[one.name].hint, _default(one)) for one in fields],
        rename={one.name: one.encode_name for one in fields},
        kw_only=True,
    )

    def restore(value: Any) -> Any:
        return cls(
            **{
                name: made.restore(getattr(value, name)) if made.restore else getattr(value, name)
                for name, made in twins.items()
            }
        )

    return _Twin(twin, restore)


def _default(one: msgspec.structs.FieldInfo) -> Any:
    if one.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=one.default_factory)
    return msgspec.field(default=one.default)
