"""What Spark does with a stream reader, without Spark: the calls, the texts it keeps, and crashes."""

import json
import pickle
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from trimtab.spark.source import RocketMQSource


def source(**options: str) -> RocketMQSource:
    return RocketMQSource(dict(options))


def read_batch(schema: StructType | None = None, /, **options: str) -> list[dict[str, Any]]:
    """The rows of a batch query."""
    ours = source(**options)
    reader = ours.reader(schema or ours.schema())
    rows: list[dict[str, Any]] = []
    for partition in reader.partitions():
        copy, part = pickle.loads(pickle.dumps((reader, partition)))
        for batch in copy.read(part):
            rows += batch.to_pylist()
    return rows


class Stream:
    """A query with a checkpoint: `offsets` and `commits` are what lies in it."""

    def __init__(self, **options: str) -> None:
        self.options = options
        self.offsets: list[str] = []
        self.commits = 0
        self.is_idle = False
        self.rows: list[dict[str, Any]] = []
        self.start()

    def start(self, *, available_now: bool = False) -> None:
        """A new process: nothing is left but the checkpoint."""
        ours = source(**self.options)
        schema = ours.schema()
        self.reader = ours.streamReader(schema)
        self.worker = pickle.loads(pickle.dumps(ours.streamReader(schema)))
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.limit = self.reader.getDefaultReadLimit()
        self._initial: str | None = None

    def trigger(self, *, dies: bool = False, once: bool = False) -> int:
        """One micro-batch; the number of its rows. One that dies has its end in the checkpoint and nothing more."""
        if len(self.offsets) == self.commits:
            begin = self._begin()
            limit = ReadAllAvailable() if once else self.limit
            end = json.dumps(self.reader.latestOffset(json.loads(begin), limit))
            self.reader.reportLatestOffset()
            self.is_idle = end == begin
            if self.is_idle and self.offsets:
                return 0
            self.offsets.append(end)
            if len(self.offsets) > 1:
                self.reader.commit(json.loads(self.offsets[-2]))
        rows = self._run(self._begin_of_last(), self.offsets[-1])
        if dies:
            self.start()
            return 0
        self.rows += rows
        self.commits = len(self.offsets)
        return len(rows)

    def run_until_idle(self) -> None:
        """A batch may be empty although more is to come: one that is run again, or the first."""
        self.is_idle = False
        while not self.is_idle:
            self.trigger()

    def bodies(self) -> list[bytes]:
        return sorted(row["body"] for row in self.rows)

    def _begin(self) -> str:
        return self.offsets[-1] if self.offsets else json.dumps(self.reader.initialOffset())

    def _begin_of_last(self) -> str:
        return self.offsets[-2] if len(self.offsets) > 1 else json.dumps(self.reader.initialOffset())

    def _run(self, start: str, end: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for partition in self.reader.partitions(json.loads(start), json.loads(end)):
            for batch in self.worker.read(pickle.loads(pickle.dumps(partition))):
                rows += batch.to_pylist()
        return rows
