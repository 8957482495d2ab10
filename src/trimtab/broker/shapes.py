"""Properties that look alike: equally long, with the same names and all values the same but for some, as those of one producer's messages are.

Where these values stand is found out once, from two of them; the others are only compared. Tags and keys do not differ.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from trimtab.wire.properties import KEYS, TAGS, UNIQ_KEY

_PAIR_END, _NAME_END = b"\x02", b"\x01"
_UNIQ_KEY = UNIQ_KEY.encode()
_SAME_IN_ALL = frozenset({KEYS.encode(), TAGS.encode()})


class Shape(NamedTuple):
    """What stands around the values that differ, as it comes and as it is stored."""

    length: int
    suffix: bytes
    places: tuple[slice, ...]
    unique_at: int
    """Which of the places has the unique key."""
    around: tuple[bytes, ...]
    stored_around: tuple[bytes, ...]

    def values_in(self, properties: Sequence[bytes], suffix: bytes) -> list[list[bytes]] | None:
        """The values that differ, place by place; None unless all of `properties` look like this."""
        if suffix != self.suffix or set(map(len, properties)) != {self.length}:
            return None
        values = [[one[place] for one in properties] for place in self.places]
        # All are equally long, so that comparing them end to end compares each with its counterpart.
        if b"".join(chain.from_iterable(_woven(self.around, values))) != b"".join(properties):
            return None
        return None if any(_PAIR_END in b"".join(column) for column in values) else values

    def stored(self, values: Sequence[Sequence[bytes]]) -> list[bytes]:
        """The properties with these values, as they are stored."""
        return list(map(b"".join, _woven(self.stored_around, values)))


def shape_of(one: bytes, other: bytes, suffix: bytes, stored: bytes) -> Shape | None:
    """How both look, if they are alike. `stored` is what becomes of `one` with `suffix`."""
    places = _differing(one, other)
    pairs = [one[one.rfind(_PAIR_END, 0, place.start) + 1 : place.stop] for place in places]
    names = [pair.partition(_NAME_END)[0] for pair in pairs]
    if names.count(_UNIQ_KEY) != 1 or stored.count(_UNIQ_KEY + _NAME_END) != 1:
        return None
    if any(stored.count(pair) != 1 for pair in pairs):
        return None  # it is not clear where it stands
    ends = [stored.find(pair) + len(pair) for pair in pairs]
    stored_places = [
        slice(end - place.stop + place.start, end) for place, end in zip(places, ends, strict=True)
    ]
    return Shape(
        len(one),
        suffix,
        tuple(places),
        names.index(_UNIQ_KEY),
        _around(one, places),
        _around(stored, stored_places),
    )


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
            if not value or name in _SAME_IN_ALL or pair[:head] != counterpart[:head]:
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


def _woven(around: Sequence[bytes], values: Sequence[Sequence[bytes]]) -> Iterator[tuple[bytes, ...]]:
    """Row by row what stands before each value, the value, and what stands behind the last one."""
    columns = zip(around, values, strict=False)
    return zip(
        *chain.from_iterable((repeat(before), column) for before, column in columns),
        repeat(around[-1]),
        strict=False,
    )
