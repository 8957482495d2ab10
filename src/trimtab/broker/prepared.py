"""The properties of a message on their way into the store, as bytes: WAIT goes, the cluster comes, and what is needed is found.

A dictionary, and text, would cost more than everything else that is done with an ordinary message.
"""

from typing import NamedTuple

import msgspec

from trimtab.broker.shapes import Shape, shape_of
from trimtab.broker.store.reading import keys_of
from trimtab.wire.hashing import tags_code
from trimtab.wire.properties import TAGS, decode_text, find_property

_TAGS = TAGS.encode()
_UNIQ_KEY = b"UNIQ_KEY\x01"


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """Properties as they are stored, the code of the tag, and what the message is found by."""

    properties: bytes
    tags_code: int
    keys: tuple[bytes, ...]


class PreparedTogether(NamedTuple):
    """The same of several messages, field by field."""

    properties: list[bytes]
    tags_codes: list[int]
    keys: list[tuple[bytes, ...]]


class Preparer:
    """Remembers how the last properties looked: those of one producer often differ in the unique key alone."""

    __slots__ = (
        "_after",
        "_before",
        "_length",
        "_more_keys",
        "_shape",
        "_stored_after",
        "_stored_before",
        "_suffix",
        "_tags_code",
    )

    def __init__(self) -> None:
        self._length = -1
        self._before = self._after = self._stored_before = self._stored_after = self._suffix = b""
        self._tags_code = 0
        self._more_keys: tuple[bytes, ...] = ()
        self._shape: Shape | None = None

    def prepare(self, properties: bytes, suffix: bytes) -> Prepared:
        """As the function does."""
        if (
            len(properties) == self._length
            and properties.startswith(self._before)
            and properties.endswith(self._after)
            and suffix == self._suffix
        ):
            unique = properties[len(self._before) : self._length - len(self._after)]
            if unique.find(b"\x02") < 0:
                return Prepared(
                    self._stored_before + unique + self._stored_after,
                    self._tags_code,
                    (unique, *self._more_keys),
                )
        prepared = prepare(properties, suffix)
        self._remember(properties, suffix, prepared)
        return prepared

    def prepare_together(self, properties: list[bytes], suffix: bytes) -> PreparedTogether:
        """As `prepare` does for each: at one go if they differ in some values alone, each as long in all of them."""
        together = self._of_one_shape(properties, suffix) if len(properties) > 1 else None
        if together is None:
            prepared = [self.prepare(one, suffix) for one in properties]
            together = PreparedTogether(
                [one.properties for one in prepared],
                [one.tags_code for one in prepared],
                [one.keys for one in prepared],
            )
        return together

    def _of_one_shape(self, properties: list[bytes], suffix: bytes) -> PreparedTogether | None:
        """None unless all of them look like the last that had a shape, or else like the first and the last of themselves."""
        first = prepare(properties[0], suffix)
        values = None if self._shape is None else self._shape.values_in(properties, suffix)
        if values is None:
            shape = shape_of(properties[0], properties[-1], suffix, first.properties)
            values = None if shape is None else shape.values_in(properties, suffix)
            self._shape = shape or self._shape
        if self._shape is None or values is None:
            return None
        return PreparedTogether(
            self._shape.stored(values),
            self._shape.tags_codes(values, first.tags_code),
            self._shape.keys(values, first.keys),
        )

    def _remember(self, properties: bytes, suffix: bytes, prepared: Prepared) -> None:
        self._length = -1
        unique = prepared.keys[0] if prepared.keys else b""
        pair = _UNIQ_KEY + unique
        counts = properties.count(_UNIQ_KEY), properties.count(pair), prepared.properties.count(pair)
        if not unique or counts != (1, 1, 1):
            return  # not a common case, and not one in which it is clear where the key stands
        at, stored_at = (
            properties.find(pair) + len(_UNIQ_KEY),
            prepared.properties.find(pair) + len(_UNIQ_KEY),
        )
        self._length, self._suffix = len(properties), suffix
        self._before, self._after = properties[:at], properties[at + len(unique) :]
        self._stored_before = prepared.properties[:stored_at]
        self._stored_after = prepared.properties[stored_at + len(unique) :]
        self._tags_code, self._more_keys = prepared.tags_code, prepared.keys[1:]


def prepare(properties: bytes, suffix: bytes) -> Prepared:
    """Properties as they came; `suffix` is what the broker adds, with the separator before each pair, the cluster last.

    What is found is exactly what `keys_of` and `find_property` find in the result: recovery asks them.
    """
    # Each pair has the separator before it, so that names are found by it; the cluster ends the value of any other.
    own = properties.rstrip(b"\x02")
    pairs = b"\x02" + own + suffix if own else suffix
    at = pairs.find(b"\x02WAIT\x01")
    if at >= 0:
        pairs = _without_wait(pairs, at)
    keys: tuple[bytes, ...] = ()
    code = 0
    at = pairs.rfind(b"\x02UNIQ_KEY\x01") + 10
    if at > 9:
        unique = pairs[at : pairs.find(b"\x02", at)]
        if not unique:
            return _prepare_slowly(pairs)
        keys = (unique,)
    at = pairs.rfind(b"\x02KEYS\x01") + 6
    if at > 5:
        several = pairs[at : pairs.find(b"\x02", at)]
        if not several:
            return _prepare_slowly(pairs)
        keys += tuple([key for key in several.split(b" ") if key])
    at = pairs.rfind(b"\x02TAGS\x01") + 6
    if at > 5:
        tag = pairs[at : pairs.find(b"\x02", at)]
        if not tag:
            return _prepare_slowly(pairs)
        code = tags_code(decode_text(tag))
    return Prepared(pairs[1:], code, keys)


def _without_wait(pairs: bytes, at: int) -> bytes:
    while at >= 0:
        pairs = pairs[:at] + pairs[pairs.find(b"\x02", at + 6) :]
        at = pairs.find(b"\x02WAIT\x01", at)
    return pairs


def _prepare_slowly(pairs: bytes) -> Prepared:
    """With an empty value, which does not count where there is another one."""
    stored = pairs[1:]
    tag = find_property(stored, _TAGS)
    return Prepared(stored, 0 if tag is None else tags_code(decode_text(tag)), tuple(keys_of(stored)))
