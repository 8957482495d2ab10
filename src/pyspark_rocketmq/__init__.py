"""Found by Spark under the name `rocketmq`. Kept tiny: Spark imports it in every session."""

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType


def register(spark: Any) -> None:
    """Makes `rocketmq` known to a session that does not see installed packages."""
    spark.dataSource.register(DefaultSource)


class DefaultSource(DataSource):
    """`rocketmq` as Spark finds it. What does the work is loaded when it is first used."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "rocketmq"

    def schema(self) -> Any:
        """See `trimtab.spark.source`, here and below."""
        return self._source().schema()

    def reader(self, schema: StructType) -> Any:
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's names
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001, N802
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> Any:
        from trimtab.spark.source import RocketMQSource  # noqa: PLC0415 - not while Spark only looks for names

        return RocketMQSource(self.options)
