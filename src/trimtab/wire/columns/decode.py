"""The columns, one function each."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trimtab.errors import ProtocolError
from trimtab.wire import properties as names
from trimtab.wire.columns.arrays import (
    INT64,
    Column,
    Mask,
    Places,
    bytes_and_borders,
    cut,
    gather,
    list_borders,
    memory,
    numbers,
    put,
    spread,
)
from trimtab.wire.columns.layout import HEAD, TAIL, Buffer, Rows, layout
from trimtab.wire.columns.pairs import Pairs, pairs_of
from trimtab.wire.compression import COMPRESSED_FLAG, INFLATED_BYTES_MAX
from trimtab.wire.hosts import HOST_V4_BYTES, HOST_V6_BYTES, host_text
from trimtab.wire.messages import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG

INFLATED_TOTAL_BYTES_MAX = 256 << 20

_TIME = pa.timestamp("ms", tz="UTC")
_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "physical_offset": pa.int64(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "born_timestamp": _TIME,
    "store_timestamp": _TIME,
    "born_host": pa.string(),
    "store_host": pa.string(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
    "body": pa.binary(),
    "tag": pa.string(),
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "message_id": pa.string(),
    "offset_message_id": pa.string(),
    "body_crc": pa.int32(),
    "stored_size": pa.int32(),
}
SCHEMA: Final = pa.schema(_TYPES)
"""Every column there is. Only `tag` is ever null; a message without keys has an empty list of them."""
COLUMNS: Final[tuple[str, ...]] = tuple(SCHEMA.names)

_PHYSICAL_OFFSET_AT = 28
_HEX_OF_BYTE = np.frombuffer(bytes(range(256)).hex().upper().encode(), "<u2").astype(np.uint32)
_HEX = (_HEX_OF_BYTE[np.newaxis, :] | _HEX_OF_BYTE[:, np.newaxis] << np.uint32(16)).ravel()
"""Four hexadecimal digits of two bytes: the byte that comes first in memory is the low one, and its digits come first too."""


def decode_columns(
    bodies: Buffer | Sequence[Buffer],
    columns: Iterable[str] = COLUMNS,
    *,
    tags: frozenset[str] | None = None,
    offsets: range | None = None,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
    inflated_total_bytes_max: int = INFLATED_TOTAL_BYTES_MAX,
) -> pa.RecordBatch:
    """The messages of one or several pull bodies, with these columns in this order; what is not asked for is not decoded.

    `tags` keeps messages with one of these tags, `offsets` those with start ≤ queue offset < stop.
    """
    assert offsets is None or offsets.step == 1, "offsets are a contiguous range"
    schema = pa.schema([SCHEMA.field(column) for column in columns])
    rows = layout([bodies] if isinstance(bodies, bytes | bytearray | memoryview) else bodies)
    if offsets is not None:
        at = rows.head["queue_offset"]
        rows = rows.keep((at >= offsets.start) & (at < offsets.stop))
    if tags is not None and len(rows):
        rows = rows.keep(_is_one_of(_tags(Decoding(rows)), tags))
    if not len(rows):
        return pa.RecordBatch.from_pylist([], schema)
    decoding = Decoding(rows, inflated_bytes_max, inflated_total_bytes_max)
    return pa.RecordBatch.from_arrays([_BUILDERS[name](decoding) for name in schema.names], schema=schema)


class Decoding:
    """The rows to build columns of, and what several columns share."""

    def __init__(
        self,
        rows: Rows,
        inflated_bytes_max: int = INFLATED_BYTES_MAX,
        inflated_total_bytes_max: int = INFLATED_TOTAL_BYTES_MAX,
    ) -> None:
        self.rows = rows
        self._inflated_bytes_max = inflated_bytes_max
        self._inflated_total_bytes_max = inflated_total_bytes_max

    @cached_property
    def properties(self) -> tuple[Pairs, Places]:
        return pairs_of(self.rows)

    def inflated(self, rows: Places) -> Iterable[bytes]:
        left = self._inflated_total_bytes_max
        for row in rows:
            body = self.rows.message(row, self._inflated_bytes_max).body
            left -= len(body)
            if left < 0:
                raise ProtocolError(
                    f"bodies inflate to more than {self._inflated_total_bytes_max} bytes together; decode fewer at once"
                )
            yield body


def _head_column(name: str, decoding: Decoding) -> Column:
    return _numbers(decoding.rows.head[name], name)


def _tail_column(name: str, decoding: Decoding) -> Column:
    return _numbers(decoding.rows.tail[name], name)


def _store_timestamps(decoding: Decoding) -> Column:
    rows = decoding.rows
    return _numbers(gather(rows.buffer, rows.store_host_at - INT64.itemsize, INT64), "store_timestamp")


def _numbers(values: NDArray[Any], name: str) -> Column:
    return numbers(values.astype(values.dtype.newbyteorder("="))).cast(SCHEMA.field(name).type)


def _bodies(decoding: Decoding) -> Column:
    rows = decoding.rows
    body_bytes = rows.tail["body_bytes"]
    compressed = np.flatnonzero((rows.head["sys_flag"] & COMPRESSED_FLAG != 0) & (body_bytes > 0))
    stored = cut(rows.buffer, rows.body_at, rows.body_at + body_bytes, pa.binary())
    return put(stored, compressed, decoding.inflated(compressed))


def _topics(decoding: Decoding) -> Column:
    rows = decoding.rows
    stored = cut(rows.buffer, rows.topic_at, rows.properties_at - 2, pa.binary())
    try:
        return stored.cast(pa.string())
    except pa.ArrowInvalid:
        distinct = stored.dictionary_encode()
        texts = [names.decode_text(topic.as_py()) for topic in distinct.dictionary]
        return pa.array(texts, pa.string()).take(distinct.indices)


def _property(name: str, decoding: Decoding) -> Column:
    """The values of one property, null where it is missing, and in odd rows."""
    pairs = decoding.properties[0].last_named(name)
    return spread(pairs.values(), pairs.row_of, len(decoding.rows))


def _tags(decoding: Decoding) -> Column:
    return _put_odd(_property(names.TAGS, decoding), "tag", decoding.properties[1], decoding)


def _keys(decoding: Decoding) -> Column:
    pairs = decoding.properties[0].last_named(names.KEYS)
    data, borders = bytes_and_borders(pairs.values())
    spaces = np.flatnonzero(data == ord(" "))
    begins = np.sort(np.concatenate((borders[:-1], spaces + 1)), kind="stable")
    ends = np.sort(np.concatenate((spaces, borders[1:])), kind="stable")
    begins, ends = begins[begins < ends], ends[begins < ends]
    row_of = pairs.row_of[np.searchsorted(borders, begins, "right") - 1]
    keys = cut(data, begins, ends, pa.string())
    column = pa.ListArray.from_arrays(list_borders(row_of, len(decoding.rows)), keys)
    return _put_odd(column, "keys", decoding.properties[1], decoding)


def _properties(decoding: Decoding) -> Column:
    pairs, odd = decoding.properties
    doubled = pairs.rows_with_doubles()
    if len(doubled):
        pairs = pairs.keep(~np.isin(pairs.row_of, doubled))
    borders = list_borders(pairs.row_of, len(decoding.rows))
    column = pa.MapArray.from_arrays(borders, pairs.names(), pairs.values())
    return _put_odd(column, "properties", np.union1d(odd, doubled), decoding)


def _put_odd(column: Column, name: str, odd: Places, decoding: Decoding) -> Column:
    values = (getattr(decoding.rows.message(row), name) for row in odd)
    if name == "properties":
        values = (list(value.items()) for value in values)
    return put(column, odd, values)


def _message_ids(decoding: Decoding) -> Column:
    given = _put_odd(_property(names.UNIQ_KEY, decoding), "unique_id", decoding.properties[1], decoding)
    return pc.coalesce(given, _offset_message_ids(decoding)) if given.null_count else given


def _offset_message_ids(decoding: Decoding) -> Column:
    return _by_host_size(decoding.rows, STORE_HOST_V6_FLAG, _hexadecimal)


def _hexadecimal(rows: Rows, host_bytes: int) -> Column:
    host = gather(rows.buffer, rows.store_host_at, np.dtype(("<u2", host_bytes // 2)))
    offset = gather(rows.buffer, rows.starts + _PHYSICAL_OFFSET_AT, np.dtype(("<u2", INT64.itemsize // 2)))
    digits = _HEX[np.hstack((host, offset))]
    borders = np.arange(len(rows) + 1, dtype=np.int32) * (digits.shape[1] * digits.itemsize)
    return pa.Array.from_buffers(pa.string(), len(rows), [None, memory(borders), memory(digits)])


def _born_hosts(decoding: Decoding) -> Column:
    return _by_host_size(decoding.rows, BORN_HOST_V6_FLAG, _born_host_texts)


def _store_hosts(decoding: Decoding) -> Column:
    return _by_host_size(decoding.rows, STORE_HOST_V6_FLAG, _store_host_texts)


def _born_host_texts(rows: Rows, host_bytes: int) -> Column:
    return _host_texts(gather(rows.buffer, rows.starts + HEAD.itemsize, np.dtype(f"V{host_bytes}")))


def _store_host_texts(rows: Rows, host_bytes: int) -> Column:
    return _host_texts(gather(rows.buffer, rows.store_host_at, np.dtype(f"V{host_bytes}")))


def _host_texts(hosts: NDArray[Any]) -> Column:
    if hosts.dtype.itemsize != HOST_V4_BYTES:
        return pa.array([host_text(host) for host in hosts.tolist()], pa.string())
    values = hosts.view(INT64)
    if len(values) and bool((values == values[0]).all()):  # one producer, or one broker, as almost always
        text = pa.scalar(host_text(hosts[:1].tolist()[0]), pa.string())
        return pa.repeat(text, len(values))
    distinct, places = np.unique(values, return_inverse=True)
    texts = [host_text(host) for host in distinct.view(hosts.dtype).tolist()]
    return pa.array(texts, pa.string()).take(numbers(places))


def _by_host_size(rows: Rows, v6_flag: int, build: Callable[[Rows, int], Column]) -> Column:
    """A column built apart for rows with short and with long hosts."""
    is_v6 = rows.head["sys_flag"] & v6_flag != 0
    if not is_v6.any():
        return build(rows, HOST_V4_BYTES)
    parts = [build(rows.keep(~is_v6), HOST_V4_BYTES), build(rows.keep(is_v6), HOST_V6_BYTES)]
    places = np.empty(len(rows), np.int64)
    places[np.argsort(is_v6, kind="stable")] = np.arange(len(rows))
    return pa.concat_arrays(parts).take(numbers(places))


def _is_one_of(tag: Column, tags: frozenset[str]) -> Mask:
    found: Mask = pc.is_in(tag, value_set=pa.array(sorted(tags), pa.string())).to_numpy(zero_copy_only=False)
    return found


_BUILDERS: dict[str, Callable[[Decoding], Column]] = {
    "topic": _topics,
    "store_timestamp": _store_timestamps,
    "born_host": _born_hosts,
    "store_host": _store_hosts,
    "body": _bodies,
    "tag": _tags,
    "keys": _keys,
    "properties": _properties,
    "message_id": _message_ids,
    "offset_message_id": _offset_message_ids,
    **{name: partial(_head_column, name) for name in HEAD.names or () if name in COLUMNS},
    **{name: partial(_tail_column, name) for name in TAIL.names or () if name in COLUMNS},
}
assert _BUILDERS.keys() == set(COLUMNS)
