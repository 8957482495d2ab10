"""Rows of a DataFrame as messages on the wire, all rows of a batch at once: no Python object per message.

The properties of all rows are joined by Arrow, and so are the entries of SEND_BATCH_MESSAGE: head, body, length of the properties,
properties. What a broker gets is then a slice of one buffer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute

from trimtab.spark.problems import SinkWriteError
from trimtab.spark.sink_columns import SinkColumns
from trimtab.spark.sink_stamps import STAMP, Stamps
from trimtab.wire import properties as names
from trimtab.wire.batch import ENTRY_BYTES_MIN
from trimtab.wire.properties import PROPERTIES_BYTES_MAX, RESERVED

pc: Any = pyarrow.compute
"""The stubs tell kinds of arrays apart that only a run can know."""

ROW_ID = "id:"
"""Before the id that a row brought along."""
SHARDING_KEY = names.SHARDING_KEY
BODY_BYTES_MAX = 4 << 20
INT32_MAX = (1 << 31) - 1

_NAME_END, _PAIR_END = b"\x01", b"\x02"
_HEAD = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_bytes", ">i4")])
_DELIVER_AT = "TIMER_DELIVER_MS"
_RESERVED = pa.array(sorted(RESERVED | {STAMP}), pa.string())


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The rows of one batch: what each is made of, and what each weighs."""

    first_row: int
    bodies: Any
    properties: Any
    entries: Any
    """As they stand in the body of SEND_BATCH_MESSAGE."""
    flags: Any
    topics: Any | None
    sharding_keys: Any | None
    broker_names: Any | None
    queue_ids: Any | None
    partitions: Any | None
    """A number for each row: rows with the same one go to the same queue."""
    kafka_keys: Any | None
    """Where rows have neither a sharding key nor a number, this chooses their queue."""
    is_delayed: Any | None
    has_times: bool = False
    """Whether rows wait for a moment of their own, which only newer brokers can keep."""

    def __len__(self) -> int:
        return len(self.bodies)


def encode_rows(
    batch: pa.RecordBatch,
    columns: SinkColumns,
    *,
    tag: str | None,
    stamps: Stamps | None,
    first_row: int,
    ids: Callable[[int], Any],
) -> EncodedRows:
    """`ids` gives the properties of so many rows that hold their message ids."""
    rows = _Rows(batch, columns, first_row)
    bodies = rows.bodies()
    said = rows.properties(tag)
    own = [ids(batch.num_rows)]
    if stamps is not None:
        own.append(rows.stamps(stamps, said))
    properties = rows.joined([*own, *said])
    flags = rows.flags()
    return EncodedRows(
        first_row=first_row,
        bodies=bodies,
        properties=properties,
        entries=_entries(bodies, properties, flags),
        flags=flags,
        topics=rows.required(columns.topic, "topic"),
        sharding_keys=rows.column(columns.sharding_key),
        broker_names=rows.column(columns.broker_name),
        queue_ids=rows.column(columns.queue_id),
        partitions=rows.column(columns.partition),
        kafka_keys=None if columns.kafka_key is None else rows.texts(columns.kafka_key),
        is_delayed=rows.is_delayed(),
        has_times=columns.deliver_at is not None and batch.column(columns.deliver_at).null_count < len(batch),
    )


def _entries(bodies: Any, properties: Any, flags: Any) -> Any:
    body_bytes = np.asarray(pc.binary_length(bodies))
    properties_bytes = np.asarray(pc.binary_length(properties))
    heads = np.zeros(len(bodies), _HEAD)
    heads["size"] = ENTRY_BYTES_MIN + body_bytes + properties_bytes
    heads["flag"] = flags
    heads["body_bytes"] = body_bytes
    return pc.binary_join_element_wise(
        _fixed(heads), bodies, _fixed(properties_bytes.astype(">i2")), properties, b""
    )


def _pair(name: str, values: Any) -> Any:
    head = pa.scalar(name.encode())
    return pc.binary_join_element_wise(head, values.cast(pa.binary()), _NAME_END, null_handling="emit_null")


def _without_blanks(lists: Any, values: Any) -> Any:
    """Lists of texts without the empty ones and those that are null: one null would make all of a row null when joined."""
    lengths = pc.fill_null(pc.binary_length(values), 0)
    if not pc.any(pc.equal(lengths, 0)).as_py():
        return lists.cast(pa.list_(pa.string()))
    keep = np.asarray(lengths) > 0
    row_of = np.repeat(np.arange(len(lists)), np.asarray(pc.fill_null(pc.list_value_length(lists), 0)))
    counts = np.bincount(row_of[keep], minlength=len(lists))
    borders: Any = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    return pa.ListArray.from_arrays(borders, values.filter(pa.array(keep)).cast(pa.string()))


def _fixed(values: Any) -> Any:
    """Values of one size as they lie in memory."""
    width = values.dtype.itemsize
    borders = np.arange(len(values) + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(np.ascontiguousarray(values).tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


class _Rows:
    """One batch, looked at column by column."""

    def __init__(self, batch: pa.RecordBatch, columns: SinkColumns, first_row: int) -> None:
        self._batch = batch
        self._columns = columns
        self._first_row = first_row

    def column(self, name: str | None) -> Any | None:
        return None if name is None else self._batch.column(name)

    def required(self, name: str | None, what: str) -> Any | None:
        column = self.column(name)
        if column is not None and column.null_count:
            self._refuse(pc.is_null(column), f"has no {what}")
        return column

    def bodies(self) -> Any:
        bodies: Any = self._batch.column(self._columns.body).cast(pa.binary())
        sizes = pc.fill_null(pc.binary_length(bodies), 0)
        self._refuse_any(pc.equal(sizes, 0), "has no body")
        self._refuse_any(
            pc.greater(sizes, BODY_BYTES_MAX),
            f"has a body of more than {BODY_BYTES_MAX} bytes, which no broker takes",
        )
        return bodies

    def flags(self) -> Any:
        column = self.column(self._columns.flag)
        if column is None:
            return np.zeros(len(self._batch), np.int32)
        if pa.types.is_int64(column.type):
            beyond = pc.or_(pc.greater(column, INT32_MAX), pc.less(column, ~INT32_MAX))
            self._refuse_any(
                beyond,
                f"has a flag that is not from {~INT32_MAX} to {INT32_MAX} in column {self._columns.flag!r}",
            )
        return np.asarray(pc.fill_null(column.cast(pa.int32()), 0))

    def is_delayed(self) -> Any | None:
        levels, times = self.column(self._columns.delay_level), self.column(self._columns.deliver_at)
        if levels is not None:
            return pc.fill_null(pc.greater(levels, 0), False)  # noqa: FBT003 - Arrow's signature
        return None if times is None else pc.is_valid(times)

    def properties(self, tag: str | None) -> list[Any]:
        """What the rows say of themselves: columns of pairs, null where a row has none."""
        columns = self._columns
        parts: list[Any] = []
        if columns.tag is not None:
            parts.append(_pair(names.TAGS, self._text(columns.tag, "tag")))
        elif tag is not None:
            parts.append(pa.scalar(f"{names.TAGS}\x01{tag}".encode()))
        if columns.keys is not None:
            parts.append(_pair(names.KEYS, self._keys(columns.keys)))
        if columns.sharding_key is not None:
            parts.append(_pair(names.SHARDING_KEY, self._text(columns.sharding_key, "shardingKey")))
        parts += self._delays()
        if columns.properties is not None:
            parts.append(self._own_properties(self._batch.column(columns.properties)))
        if columns.headers is not None:
            parts.append(self._own_properties(self._headers(columns.headers)))
        return parts

    def stamps(self, stamps: Stamps, said: list[Any]) -> Any:
        """From the row's own id, or else from everything that it says: where it goes to, what it holds, and its flag."""
        columns = self._columns
        if columns.row_id is not None:
            own = self.required(columns.row_id, "rowId")
            assert own is not None, "the column is there"
            self._refuse_separators(own, "rowId")
            return _pair(STAMP, pc.binary_join_element_wise(pa.scalar(ROW_ID), own, ""))
        where = (columns.topic, columns.broker_name, columns.queue_id, columns.partition, columns.flag)
        places = [self._batch.column(name).cast(pa.string()).cast(pa.binary()) for name in where if name]
        bodies: Any = self._batch.column(columns.body).cast(pa.binary())
        parts = [*places, *said, bodies]
        contents = bodies
        if len(parts) > 1:
            contents = pc.binary_join_element_wise(
                *parts, b"\x02", null_handling="replace", null_replacement=b"\x01"
            )
        return stamps.of(contents.to_pylist())

    def joined(self, parts: list[Any]) -> Any:
        """Texts of properties as the wire has them."""
        joined = (
            parts[0]
            if len(parts) == 1
            else pc.binary_join_element_wise(*parts, _PAIR_END, null_handling="skip")
        )
        self._refuse_any(
            pc.greater(pc.binary_length(joined), PROPERTIES_BYTES_MAX),
            f"has properties of more than {PROPERTIES_BYTES_MAX} bytes",
        )
        return joined

    def _delays(self) -> list[Any]:
        levels, times = self.column(self._columns.delay_level), self.column(self._columns.deliver_at)
        if levels is not None:
            wanted: Any = pc.if_else(pc.greater(levels, 0), levels, pa.scalar(None, levels.type))
            return [_pair(names.DELAY, wanted.cast(pa.string()))]
        if times is not None:
            at_ms: Any = times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
            return [_pair(_DELIVER_AT, at_ms.cast(pa.string()))]
        return []

    def _text(self, name: str, what: str) -> Any:
        """A column of texts; an empty one is the same as none."""
        column: Any = self._batch.column(name)
        self._refuse_separators(column, what)
        return pc.if_else(pc.equal(pc.binary_length(column), 0), pa.scalar(None, column.type), column)

    def _keys(self, name: str) -> Any:
        column: Any = self._batch.column(name)
        if pa.types.is_list(column.type):
            keys = column.flatten()
            spaced = pc.match_substring(keys, " ")
            if pc.any(spaced).as_py():
                key = keys.filter(spaced)[0].as_py()
                raise SinkWriteError(
                    f"the key {key!r} has a space in it, which separates keys; nothing of its batch was sent"
                )
            column = pc.binary_join(_without_blanks(column, keys), " ")
        else:
            column = self.texts(name)
        self._refuse_separators(column, "keys")
        return pc.if_else(pc.equal(pc.binary_length(column), 0), pa.scalar(None, pa.string()), column)

    def _headers(self, name: str) -> Any:
        """Kafka's headers as a map; a name that is there twice keeps its last value, as everywhere in RocketMQ."""
        rows: Any = self._batch.column(name)
        pairs = rows.flatten()  # without what null rows hide
        counts = np.asarray(pc.fill_null(pc.list_value_length(rows), 0))
        # What a null of a struct holds in its fields is anything: `flatten` of the struct makes it null.
        keys, values = pairs.flatten()
        nameless = np.flatnonzero(np.asarray(pc.is_null(keys)))
        if len(nameless):
            row = int(np.searchsorted(np.cumsum(counts), nameless[0], "right"))
            self._fail(row, f"has a header without a name in column {name!r}")
        borders: Any = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
        return pa.MapArray.from_arrays(borders, keys.cast(pa.string()), self._decoded(name, values))

    def texts(self, name: str) -> Any:
        """A column that may be of bytes."""
        return self._decoded(name, self._batch.column(name))

    def _decoded(self, name: str, values: Any) -> Any:
        """Bytes as texts, which is what properties are."""
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            raise SinkWriteError(
                f"a value in {name!r} is no UTF-8, and properties are texts; nothing of its batch was sent"
            ) from None

    def _own_properties(self, table: Any) -> Any:
        """The user's properties of each row, without those that RocketMQ uses itself."""
        if table.null_count:
            table = pc.if_else(pc.is_valid(table), table, pa.scalar([], table.type))
        keys, items = table.keys, table.items
        borders = np.asarray(table.offsets).astype(np.int64)
        keys, items = (
            keys.slice(borders[0], borders[-1] - borders[0]),
            items.slice(borders[0], borders[-1] - borders[0]),
        )
        row_of = np.repeat(np.arange(len(table)), np.diff(borders))
        keep = np.asarray(pc.invert(pc.is_in(keys, value_set=_RESERVED)))
        keys, items, row_of = keys.filter(pa.array(keep)), items.filter(pa.array(keep)), row_of[keep]
        self._check_pairs(keys, items, row_of)
        pairs = pc.binary_join_element_wise(keys.cast(pa.binary()), items.cast(pa.binary()), _NAME_END)
        counts = np.bincount(row_of, minlength=len(table))
        lists = pa.ListArray.from_arrays(
            pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32()), pairs
        )
        joined = pc.binary_join(lists, _PAIR_END)
        return pc.if_else(pa.array(counts == 0), pa.scalar(None, pa.binary()), joined)

    def _check_pairs(self, keys: Any, items: Any, row_of: Any) -> None:
        for what, column in (("name of a property", keys), ("value of a property", items)):
            bad = pc.or_(
                pc.fill_null(pc.equal(pc.binary_length(column), 0), True),  # noqa: FBT003 - Arrow's signature
                pc.fill_null(pc.match_substring_regex(column, "[\x01\x02]"), False),  # noqa: FBT003
            )
            places = np.flatnonzero(np.asarray(bad))
            if len(places):
                self._fail(
                    int(row_of[places[0]]), f"has a {what} that is empty or holds a separator (0x01, 0x02)"
                )

    def _refuse_separators(self, column: Any, what: str) -> None:
        self._refuse_any(
            pc.fill_null(pc.match_substring_regex(column, "[\x01\x02]"), False),  # noqa: FBT003 - Arrow's signature
            f"has a separator of properties (0x01, 0x02) in its {what}",
        )

    def _refuse_any(self, bad: Any, why: str) -> None:
        if pc.any(bad).as_py():
            self._refuse(bad, why)

    def _refuse(self, bad: Any, why: str) -> NoReturn:
        self._fail(int(np.flatnonzero(np.asarray(bad))[0]), why)

    def _fail(self, row: int, why: str) -> NoReturn:
        raise SinkWriteError(f"row {self._first_row + row} of this task {why}; nothing of its batch was sent")
