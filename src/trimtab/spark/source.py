"""The data source that Spark knows as `rocketmq`."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from trimtab.io.clock import SystemClock
from trimtab.spark.driver import Driver
from trimtab.spark.offsets import QueueRange, progress_from_json
from trimtab.spark.options import SinkOptions, SourceOptions, sink_options, source_options
from trimtab.spark.problems import OptionError
from trimtab.spark.schema import Projection, projection, source_schema


class RangesPartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: tuple[QueueRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class RocketMQSource(DataSource):
    """`spark.read.format("rocketmq")`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """All columns, or those of the option `columns`. Spark does not say here whether it will be a stream."""
        try:
            return source_schema(read_source_options(self.options, is_stream=True))
        except OptionError as error:
            try:
                return source_schema(read_source_options(self.options, is_stream=False))
            except OptionError:
                raise error from None

    def reader(self, schema: StructType) -> "BatchReader":
        """For a batch."""
        options = read_source_options(self.options, is_stream=False)
        return BatchReader(options, projection(schema, options))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 - Spark's name
        """For a stream. What is wrong is told by the first call to it: an error in here would be hidden by Spark."""
        return StreamReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """For `df.write`."""
        from trimtab.spark.sink import BatchWriter  # noqa: PLC0415 - readers do not need it

        return BatchWriter(self._sink(overwrite=overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: FBT001, N802
        """For `df.writeStream`."""
        from trimtab.spark.sink import StreamWriter  # noqa: PLC0415 - readers do not need it

        return StreamWriter(self._sink(overwrite=overwrite), schema)

    def _sink(self, *, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise OptionError("mode", "overwrite", "append: messages that were sent cannot be replaced")
        options = sink_options(_own(self.options), env=os.environ.get, content=_content)
        if options.topic_queues is not None:
            from trimtab.spark.sink_topics import make_topic  # noqa: PLC0415 - few sinks want it

            make_topic(options)
        return options


class BatchReader(DataSourceReader):
    """Reads what was there when the query was planned, however often it runs."""

    def __init__(self, options: SourceOptions, wanted: Projection) -> None:
        self._options = options
        self._projection = wanted

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task."""
        tasks = Driver(self._options, SystemClock()).batch_tasks()
        return [RangesPartition(ranges) for ranges in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a worker."""
        return _read(partition, self._options, self._projection)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on. Spark makes two of them: one that plans, and one that is copied to the workers."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._raw = options
        self._schema = schema
        self._parsed: tuple[SourceOptions, Projection] | None = None
        self._driver: Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What workers get: no connections."""
        return {"_raw": self._raw, "_schema": self._schema, "_parsed": self._parse(), "_driver": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Where the first batch begins."""
        return self._plan().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Only tells Spark that there are limits: all of them are kept in `latestOffset`."""
        limits = self._parse()[0].trigger
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends. `start` is what has been processed for good."""
        begin = progress_from_json(start)
        end = self._plan().latest(begin, limited=not isinstance(limit, ReadAllAvailable))
        return start if end is begin else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the progress of the query."""
        newest = self._plan().newest()
        return None if newest is None else newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The stream ends where the queues end now."""
        self._plan().prepare_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One for each task of a batch."""
        tasks = self._plan().tasks(progress_from_json(start), progress_from_json(end))
        return [RangesPartition(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a worker."""
        return _read(partition, *self._parse())

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done for good."""
        self._plan().commit(progress_from_json(end))

    def _parse(self) -> tuple[SourceOptions, Projection]:
        if self._parsed is None:
            options = read_source_options(self._raw, is_stream=True)
            self._parsed = options, projection(self._schema, options)
        return self._parsed

    def _plan(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._parse()[0], SystemClock())
        return self._driver


def _read(partition: InputPartition, options: SourceOptions, wanted: Projection) -> Iterator[Any]:
    from trimtab.spark.reading import read_ranges  # noqa: PLC0415 - only workers read

    assert isinstance(partition, RangesPartition), "Spark gives back what it got"
    return read_ranges(partition.ranges, options, wanted)


def read_source_options(options: Any, *, is_stream: bool) -> SourceOptions:
    """The options of a source, with the environment, files and time of this process."""
    now_ms = SystemClock().wall_ms()
    return source_options(
        _own(options), is_stream=is_stream, now_ms=now_ms, env=os.environ.get, content=_content
    )


def _own(options: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in options.items()}


def _content(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None
