"""Which columns a query gets: all of them, those of the `columns` option, or those of the schema that the user gave."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trimtab.spark.columns import KAFKA_COLUMNS, OWN_COLUMNS, SourceColumn
from trimtab.spark.options import SchemaMode, SourceOptions
from trimtab.spark.problems import OptionError, one_of

_BODIES = ("body", "value")
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Mapping[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    "ARRAY<STRING>": ArrayType(StringType()),
    "MAP<STRING,STRING>": MapType(StringType(), StringType()),
    "ARRAY<STRUCT<key: STRING, value: BINARY>>": ArrayType(_HEADER),
}
"""Spark's own parser of such texts would ask the JVM, which a worker does not have."""


def source_schema(options: SourceOptions) -> StructType:
    """The schema without one from the user."""
    table = _table(options)
    chosen = [_canonical("columns", ",".join(options.columns), name, table) for name in options.columns]
    if len(set(chosen)) != len(chosen):
        raise OptionError("columns", ",".join(options.columns), "each column once")
    fields = [StructField(name, _type(name, table[name], options)) for name in chosen or table]
    return StructType(fields)


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns to make, in order, and the schema they must have."""

    mode: SchemaMode
    names: tuple[str, ...]
    schema: Any
    """An Arrow schema, as Spark compares it."""

    @property
    def columns(self) -> tuple[SourceColumn, ...]:
        """How the columns are made; looked up where they are made, because functions do not travel."""
        table = OWN_COLUMNS if self.mode == "rocketmq" else KAFKA_COLUMNS
        return tuple(table[name] for name in self.names)


def projection(schema: StructType, options: SourceOptions) -> Projection:
    """Checks the schema that is to be read, be it ours or the user's."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - it needs pandas, which a driver may lack

    named = source_schema(options).fieldNames()
    table = _table(options, with_headers=True)
    found = []
    for field in schema.fields:
        name = _canonical("schema", field.simpleString(), field.name, table)
        allowed = _allowed_types(name, table[name], options)
        if field.dataType not in allowed:
            raise OptionError(
                "schema",
                field.simpleString(),
                f"{field.name} as {one_of(kind.simpleString() for kind in allowed)}",
            )
        if name in found:
            raise OptionError("schema", field.simpleString(), f"each column once; {name} is there already")
        found.append(name)
    if options.columns and set(found) != set(named):
        raise OptionError(
            "columns",
            ",".join(options.columns),
            f"the columns of the schema that the query gives, which are {one_of(found)}; or one of both alone",
        )
    return Projection(options.schema_mode, tuple(found), to_arrow_schema(schema, timezone="UTC"))


def _table(options: SourceOptions, *, with_headers: bool = False) -> Mapping[str, SourceColumn]:
    if options.schema_mode == "rocketmq":
        return OWN_COLUMNS
    named = with_headers or options.with_headers or "headers" in options.columns
    return {name: column for name, column in KAFKA_COLUMNS.items() if named or name != "headers"}


def _canonical(option: str, value: str, name: str, table: Mapping[str, SourceColumn]) -> str:
    by_lower = {known.lower(): known for known in table}
    if name.lower() not in by_lower:
        raise OptionError(option, value, f"the columns {one_of(table)}; {name!r} is none of them")
    return by_lower[name.lower()]


def _type(name: str, column: SourceColumn, options: SourceOptions) -> DataType:
    if name in _BODIES and options.body_as == "string":
        return StringType()
    return _TYPES[column.ddl]


def _allowed_types(name: str, column: SourceColumn, options: SourceOptions) -> tuple[DataType, ...]:
    if name in _BODIES:
        return (BinaryType(), StringType())
    return (_type(name, column, options),)
