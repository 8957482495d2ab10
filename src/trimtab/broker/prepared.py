"""The properties of a message on their way into the store, as bytes: WAIT goes, the cluster comes, and what is needed is found.

A dictionary would cost more than everything else that is done with an ordinary message. With the separator put before every
pair, each property is found, or cut out, by a plain search.
"""

from typing import NamedTuple

from trimtab.wire import properties as names
from trimtab.wire.hashing import tags_code
from trimtab.wire.properties import decode_text

_PAIR_END = b"\x02"
_WAIT, _TAGS, _KEYS, _UNIQ_KEY = (
    b"\x02%b\x01" % name.encode() for name in (names.WAIT, names.TAGS, names.KEYS, names.UNIQ_KEY)
)


class Prepared(NamedTuple):
    """Properties as they are stored, the code of the tag, and what the message is found by."""

    properties: bytes
    tags_code: int
    keys: tuple[bytes, ...]


def prepare(properties: bytes, suffix: bytes) -> Prepared:
    """Properties as they came; `suffix` is what the broker adds, with the separator before each pair."""
    pairs = _PAIR_END + properties.removesuffix(_PAIR_END) if properties else b""
    while _WAIT in pairs:
        pairs = _without_wait(pairs)
    tag = _value(pairs, _TAGS)
    several = _value(pairs, _KEYS)
    unique = _value(pairs, _UNIQ_KEY)
    keys: tuple[bytes, ...] = (unique,) if unique else ()
    if several:
        keys += tuple(key for key in several.split(b" ") if key)
    code = tags_code(decode_text(tag)) if tag else 0
    return Prepared((pairs + suffix)[1:], code, keys)


def _value(pairs: bytes, mark: bytes) -> bytes | None:
    """The value of a property; of several the last counts."""
    at = pairs.rfind(mark)
    if at < 0:
        return None
    at += len(mark)
    end = pairs.find(_PAIR_END, at)
    return pairs[at:] if end < 0 else pairs[at:end]


def _without_wait(pairs: bytes) -> bytes:
    at = pairs.find(_WAIT)
    end = pairs.find(_PAIR_END, at + 1)
    return pairs[:at] if end < 0 else pairs[:at] + pairs[end:]
