"""Properties of all messages at once, cut at their separators in packed bytes."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trimtab.wire.columns.arrays import (
    UINT64,
    Bytes,
    Column,
    Mask,
    Places,
    bytes_and_borders,
    cut,
    gather,
    memory,
)
from trimtab.wire.columns.layout import Rows

_PAIRS_COMPARED_DIRECTLY_MAX = 16
_LOW_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
_SPREADERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)  # odd, so that nothing is lost


@dataclass(frozen=True, slots=True)
class Pairs:
    """Properties of all rows, in order: each begins after a 0x02 (the first of a row after a 0x00) in `data`, has its name up to `name_ends`, a 0x01, its value."""

    data: Bytes
    row_of: Places
    begins: Places
    name_ends: Places
    ends: Places
    per_row: int = 0
    """How many each row has, if all rows have the same names in the same places; otherwise 0."""

    def keep(self, wanted: Mask | Places | slice) -> "Pairs":
        return Pairs(
            self.data, self.row_of[wanted], self.begins[wanted], self.name_ends[wanted], self.ends[wanted]
        )

    def names(self) -> Column:
        return cut(self.data, self.begins, self.name_ends, pa.string())

    def values(self) -> Column:
        return cut(self.data, self.name_ends + 1, self.ends, pa.string())

    def last_named(self, name: str) -> "Pairs":
        """At most one pair for each row."""
        if self.per_row:
            return self._in_every_row(self._first_row().last_named(name))
        found = np.flatnonzero(self.name_ends - self.begins == len(name))
        found = found[gather(self.data, self.begins[found], np.dtype(f"S{len(name)}")) == name.encode()]
        row_of = self.row_of[found]
        is_last = np.ones(len(found), np.bool_)
        is_last[:-1] = row_of[1:] != row_of[:-1]
        return self.keep(found[is_last])

    def _first_row(self) -> "Pairs":
        return self.keep(slice(self.per_row))

    def _in_every_row(self, found: "Pairs") -> "Pairs":
        """A pair of the first row, if one was found, and its counterparts in the others."""
        if not len(found.begins):
            return self.keep(slice(0))
        at = int(np.searchsorted(self.begins[: self.per_row], found.begins[0]))
        return self.keep(slice(at, None, self.per_row))

    def rows_with_doubles(self) -> Places:
        """Rows in which two names may be the same: equal in length, in the first and in the last eight bytes."""
        if self.per_row and not len(self._first_row().rows_with_doubles()):
            return np.empty(0, np.int64)
        lengths = self.name_ends - self.begins
        mask = _LOW_BYTES[np.minimum(lengths, 8)]
        first = gather(self.data, self.begins, UINT64) & mask
        last = gather(self.data, np.maximum(self.name_ends - 8, self.begins), UINT64) & mask
        marks = (first * _SPREADERS[0]) ^ (last * _SPREADERS[1]) ^ lengths.astype(np.uint64)
        row_of = self.row_of
        pairs_max = int(np.bincount(row_of).max(initial=0))
        if pairs_max > _PAIRS_COMPARED_DIRECTLY_MAX:
            order = np.lexsort((marks, row_of))
            row_of, marks, pairs_max = row_of[order], marks[order], 2
        doubles = np.zeros(len(marks), np.bool_)
        for gap in range(1, pairs_max):
            doubles[gap:] |= (row_of[gap:] == row_of[:-gap]) & (marks[gap:] == marks[:-gap])
        return np.unique(row_of[doubles])


def pairs_of(rows: Rows) -> tuple[Pairs, Places]:
    """The properties of all rows but those whose bytes are not UTF-8, and these rows."""
    packed = cut(rows.buffer, rows.properties_at - 1, rows.ends, pa.binary())
    received, borders = bytes_and_borders(packed)
    # Some bytes more, so that eight can be read from any place.
    data = np.zeros(len(received) + UINT64.itemsize, np.uint8)
    data[: len(received)] = received
    data[borders[:-1]] = 2  # was the last byte of the length
    pairs = _alike(data, borders) or _apart(data, borders)
    data[borders[:-1]] = 0  # so that the first pair of a row is told from the others
    begins, name_ends, ends = pairs.begins, pairs.name_ends, pairs.ends
    odd = _rows_not_utf8(data, borders)
    sound = (name_ends > begins) & (name_ends < ends - 1)
    if len(odd):
        sound &= ~np.isin(pairs.row_of, odd)
    return (pairs if sound.all() else pairs.keep(sound)), odd


def _apart(data: Bytes, borders: Places) -> Pairs:
    """Whatever the rows look like; each begins with a 0x02."""
    marks = np.flatnonzero(data == 2)
    data[borders[:-1]] = 0
    row_of = np.cumsum(data[marks] == 0) - 1
    begins, ends = marks + 1, np.append(marks[1:], borders[-1])
    return Pairs(data, row_of, begins, _first_in_each(np.flatnonzero(data == 1), begins, ends), ends)


def _alike(data: Bytes, borders: Places) -> Pairs | None:
    """What one producer writes often has the same names in the same places in all rows: then looking at the first is enough."""
    rows, width = len(borders) - 1, int(borders[1])
    if rows == 1 or bool((np.diff(borders) != width).any()):
        return None
    table = data[: rows * width].reshape(rows, width)
    marks = np.flatnonzero(table[0] == 2)
    begins, ends = marks + 1, np.append(marks[1:], width)
    name_ends = _first_in_each(np.flatnonzero(table[0] == 1), begins, ends)
    if bool((name_ends >= ends).any()):
        return None
    may_differ = np.concatenate(
        [np.arange(begin, end) for begin, end in zip(name_ends + 1, ends, strict=True)]
    )
    is_same = (table == table[0]).all(axis=0)
    is_same[may_differ] = True
    if not is_same.all() or np.count_nonzero(table == 2) != rows * len(marks):
        return None
    at = borders[:-1, np.newaxis]
    row_of = np.repeat(np.arange(rows), len(marks))
    return Pairs(
        data, row_of, (at + begins).ravel(), (at + name_ends).ravel(), (at + ends).ravel(), len(marks)
    )


def _first_in_each(places: Places, begins: Places, ends: Places) -> Places:
    """The first of `places` at or after each of `begins`; where there is none, a place behind everything."""
    if len(places) == len(begins) and bool(((places >= begins) & (places < ends)).all()):
        return places  # exactly one in each, as almost always
    return np.append(places, ends[-1])[np.searchsorted(places, begins)]


def _rows_not_utf8(data: Bytes, borders: Places) -> Places:
    none = np.empty(0, np.int64)
    if data.max() < 0x80:
        return none
    buffers = [None, memory(borders.astype(np.int32)), memory(data)]
    try:
        pa.Array.from_buffers(pa.binary(), len(borders) - 1, buffers).cast(pa.string())
    except pa.ArrowInvalid:
        suspects = np.unique(np.searchsorted(borders, np.flatnonzero(data >= 0x80), "right") - 1)
        odd = [row for row in suspects if not _is_utf8(data[borders[row] : borders[row + 1]].tobytes())]
        return np.array(odd, np.int64)
    return none


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
