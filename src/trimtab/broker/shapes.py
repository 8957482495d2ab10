"""Properties that look alike: equally long, with the same names and all values the same but for some, as those of one producer's messages are.

Where these values stand is found out once, from two of them; the others are only compared.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from trimtab.wire.hashing import tags_code
from trimtab.wire.properties import KEYS, TAGS, UNIQ_KEY, decode_text

_PAIR_END, _NAME_END = b"\x02", b"\x01"
_UNIQ_KEY, _KEYS, _TAGS = UNIQ_KEY.encode(), KEYS.encode(), TAGS.encode()
_LOOKED_FOR = (_UNIQ_KEY, _KEYS, _TAGS)


class Shape(NamedTuple):
    """What stands around the values that differ, as it comes and as it is stored."""

    length: int
    suffix: bytes
    places: tuple[slice, ...]
    names: tuple[bytes, ...]
    """Of the properties whose values differ; the unique key counts as one."""
    around: tuple[bytes, ...]
    stored_around: tuple[bytes, ...]

    def values_in(self, properties: Sequence[bytes], suffix: bytes) -> list[list[bytes]] | None:
        """The values that differ, place by place; None unless all of `properties` look like this."""
        if suffix != self.suffix or set(map(len, properties)) != {self.length}:
            return None
        values = [[one[place] for one in properties] for place in self.places]
        # All are equally long, so that comparing them end to end compares each with its counterpart.
        if _end_to_end(self.around, values) != b"".join(properties):
            return None
        return None if any(_PAIR_END in b"".join(column) for column in values) else values

    def stored(self, values: Sequence[Sequence[bytes]]) -> list[bytes]:
        """The properties with these values, as they are stored."""
        if len(values) == 1:
            before, after = self.stored_around
            return [before + value + after for value in values[0]]
        return list(map(b"".join, _woven(self.stored_around, values)))

    def tags_codes(self, values: Sequence[Sequence[bytes]], first: int) -> list[int]:
        """Of each; `first` is that of the first."""
        if _TAGS not in self.names:
            return [first] * len(values[0])
        return [tags_code(decode_text(tag)) for tag in values[self.names.index(_TAGS)]]

    def keys(self, values: Sequence[Sequence[bytes]], first: tuple[bytes, ...]) -> list[tuple[bytes, ...]]:
        """What each is found by; `first` is what the first is."""
        uniques = values[self.names.index(_UNIQ_KEY)]
        if _KEYS not in self.names:
            return list(zip(uniques, *map(repeat, first[1:]), strict=False))
        several = values[self.names.index(_KEYS)]
        if b" " not in b"".join(several):
            return list(zip(uniques, several, strict=True))
        pairs = zip(uniques, several, strict=True)
        return [(unique, *(key for key in text.split(b" ") if key)) for unique, text in pairs]


def shape_of(one: bytes, other: bytes, suffix: bytes, stored: bytes) -> Shape | None:
    """How both look, if they are alike. `stored` is what becomes of `one` with `suffix`."""
    places = _differing(one, other)
    pairs = [one[one.rfind(_PAIR_END, 0, place.start) + 1 : place.stop] for place in places]
    names = tuple([pair.partition(_NAME_END)[0] for pair in pairs])
    if _UNIQ_KEY not in names or any(stored.count(pair) != 1 for pair in pairs):
        return None  # it is not clear where it stands
    if any(name in names and stored.count(name + _NAME_END) != 1 for name in _LOOKED_FOR):
        return None  # it is not clear which of them counts
    ends = [stored.find(pair) + len(pair) for pair in pairs]
    stored_places = [
        slice(end - place.stop + place.start, end) for place, end in zip(places, ends, strict=True)
    ]
    return Shape(len(one), suffix, tuple(places), names, _around(one, places), _around(stored, stored_places))


def _differing(one: bytes, other: bytes) -> list[slice]:
    """Where values differ, and where the unique key stands; nothing if more than values differs."""
    mine, others = one.split(_PAIR_END), other.split(_PAIR_END)
    if list(map(len, mine)) != list(map(len, others)):
        return []
    found: list[slice] = []
    begin = 0
    for pair, counterpart in zip(mine, others, strict=True):
        name, _, value = pair.partition(_NAME_END)
        if pair != counterpart or name == _UNIQ_KEY:
            head = len(pair) - len(value)
            if not value or pair[:head] != counterpart[:head]:
                return []
            found.append(slice(begin + head, begin + len(pair)))
        begin += len(pair) + len(_PAIR_END)
    return found


def _around(properties: bytes, places: Iterable[slice]) -> tuple[bytes, ...]:
    begin, pieces = 0, []
    for place in places:
        pieces.append(properties[begin : place.start])
        begin = place.stop
    return (*pieces, properties[begin:])


def _end_to_end(around: Sequence[bytes], values: Sequence[Sequence[bytes]]) -> bytes:
    if len(values) == 1:
        before, after = around
        return before + (after + before).join(values[0]) + after
    return b"".join(chain.from_iterable(_woven(around, values)))


def _woven(around: Sequence[bytes], values: Sequence[Sequence[bytes]]) -> Iterator[tuple[bytes, ...]]:
    """Row by row what stands before each value, the value, and what stands behind the last one."""
    columns = zip(around, values, strict=False)
    return zip(
        *chain.from_iterable((repeat(before), column) for before, column in columns),
        repeat(around[-1]),
        strict=False,
    )
