"""What numpy and Arrow lack for our purpose: values from places that are not aligned, pieces cut out of one buffer, rows exchanged."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Column: TypeAlias = "pa.Array[Any]"
Places: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]

INT64 = np.dtype(">i8")
UINT64 = np.dtype("<u8")


def gather(buffer: bytes | Bytes, at: Places, kind: np.dtype[Any]) -> NDArray[Any]:
    """The values of one kind that begin at these places, which need not be aligned."""
    if not len(at):
        return np.empty(0, kind)
    windows = np.ndarray((len(buffer) - kind.itemsize + 1,), f"V{kind.itemsize}", buffer, 0, (1,))
    return windows[at].view(kind)


def memory(data: Any) -> pa.Buffer:
    """`data` where it is; numpy's arrays are buffers too, though the stubs do not say so."""
    return pa.py_buffer(data)


def numbers(values: NDArray[Any], present: Mask | None = None) -> Column:
    """Whole numbers where they are, null where none is `present`. `pa.array` would load pandas first, to see whether they are of its kind."""
    validity = None if present is None else memory(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, memory(values)])


def cut(buffer: bytes | Bytes, begins: Places, ends: Places, kind: pa.DataType) -> Column:
    """The pieces of `buffer` between these places, which must be in order."""
    borders = np.empty(2 * len(begins), np.int32)
    borders[0::2] = begins
    borders[1::2] = ends
    buffers = [None, memory(borders), memory(buffer)]
    pieces = pa.Array.from_buffers(kind, max(len(borders) - 1, 0), buffers)
    return pieces.take(numbers(np.arange(0, len(borders), 2)))


def bytes_and_borders(pieces: Column) -> tuple[Bytes, Places]:
    """What an array of `cut` holds: all bytes together, and where each piece begins and the last one ends."""
    if not len(pieces):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    buffers: list[Any] = pieces.buffers()
    places = np.frombuffer(buffers[1], np.int32)[: len(pieces) + 1].astype(np.int64)
    return np.frombuffer(buffers[2], np.uint8)[: places[-1]], places


def list_borders(row_of: Places, row_count: int) -> Any:
    """Where the list of each row begins and the last one ends, for elements in the order of their rows."""
    counts = np.bincount(row_of, minlength=row_count)
    return numbers(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))


def spread(values: Column, rows: Places, row_count: int) -> Column:
    """A column with these values in these rows and null in the others."""
    if len(values) == row_count:
        return values
    places = np.zeros(row_count, np.int64)
    present = np.zeros(row_count, np.bool_)
    places[rows] = np.arange(len(rows))
    present[rows] = True
    return values.take(numbers(places, present))


def put(column: Column, rows: Places, values: Iterable[Any]) -> Column:
    """`column` with other values in these rows."""
    if not len(rows):
        return column
    places = np.arange(len(column))
    places[rows] = len(column) + np.arange(len(rows))
    others: Any = pa.array(list(values), column.type)
    both: Column = pa.concat_arrays([column, others])
    return both.take(numbers(places))
