"""The sink: batches and streams write their rows as messages, and a task ends when every row has its receipt."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from trimtab.io.chance import seeded_chance
from trimtab.io.clock import SystemClock
from trimtab.spark.background import background
from trimtab.spark.options import SinkOptions
from trimtab.spark.sink_columns import SinkColumns, sink_columns

_log = logging.getLogger(__name__)

STAMP_DIGITS = 16


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote."""

    partition: int
    rows: int


class BatchWriter(DataSourceArrowWriter):
    """For `df.write`. A job that runs twice writes twice; a task that runs twice can be told by its stamps.

    A job in `foreachBatch` has the stamps of its query's batch, so that a batch that runs twice can be told, too. Two jobs of one
    batch share them: what tells their rows apart is what the rows hold.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = sink_columns(schema, options)
        self._job = f"job{seeded_chance().randbytes(STAMP_DIGITS // 2).hex()}"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Runs in a worker."""
        return _write(
            iterator, self._options, self._columns, batch_stamp(_local_property) or f"{self._job}:0"
        )

    def commit(self, messages: Any) -> None:
        """All tasks are done."""
        _log.info("%d rows were written", sum(message.rows for message in messages if message is not None))


class StreamWriter(DataSourceStreamArrowWriter):
    """For `df.writeStream`. A batch that is run again writes its rows again, with the same stamps."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = sink_columns(schema, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Runs in a worker; Spark tells it the query and the batch."""
        return _write(iterator, self._options, self._columns, batch_stamp(_local_property) or "query:0")

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        """All tasks of a batch are done."""
        rows = sum(message.rows for message in messages if message is not None)
        _log.info("batch %d: %d rows were written", batchId, rows)

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
        """A batch failed. What its tasks had sent is there; the next try sends it again with the same stamps."""
        done = [message for message in messages if message is not None]
        _log.warning(
            "batch %d failed after %d rows were written", batchId, sum(message.rows for message in done)
        )


def batch_stamp(local_property: Callable[[str], str | None]) -> str | None:
    """What all tasks of one batch of a stream have in common, however often it runs; None outside of streams."""
    query, batch = local_property("sql.streaming.queryId"), local_property("streaming.sql.batchId")
    return f"{query.replace('-', '')[:STAMP_DIGITS]}:{batch}" if query and batch else None


def _local_property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _write(
    iterator: Iterator[Any], options: SinkOptions, columns: SinkColumns, stamp: str
) -> WriterCommitMessage:
    from trimtab.spark.sink_encoding import encode_rows  # noqa: PLC0415 - only workers write
    from trimtab.spark.sink_sending import RowSender  # noqa: PLC0415
    from trimtab.spark.sink_stamps import Stamps  # noqa: PLC0415

    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    sender: RowSender
    loop = background()

    async def begin() -> RowSender:
        session = await loop.session(options.access)
        return RowSender(session, options, SystemClock(), seeded_chance())

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop.loop).result()

    sender = run(begin())
    stamps = Stamps(f"{stamp}:{partition}:") if options.stamps else None
    rows = 0
    try:
        for batch in iterator:
            encoded = encode_rows(
                batch, columns, tag=options.tag, first_row=rows, ids=sender.ids, stamps=stamps
            )
            run(sender.send(encoded))
            rows += batch.num_rows
        run(sender.finish())
    except BaseException:
        loop.loop.call_soon_threadsafe(sender.abandon)
        raise
    return Written(partition, rows)
