"""Few large files from the many small ones of an archive."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_PER_FILE_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of an archive's hours."""

    hours: int
    rows: int
    files_before: int
    files_after: int


def compact(
    spark: "SparkSession",
    folder: str,
    into: str,
    *,
    until: str | None = None,
    records_per_file_max: int = RECORDS_PER_FILE_MAX,
) -> Compacted:
    """Writes an archive's hours as one file each, or as few as `records_per_file_max` allows, into another folder.

    The archive itself stays as it is: its stream's log names its files, and nobody may take them away. An hour that is there
    already is replaced, so that this can be done again. Hours from `until` on (`2026-11-16 10:00`) are left out: give the present hour
    while the archive grows.
    """
    archive = spark.read.parquet(folder)
    if until is not None:
        archive = archive.where(f.col("storeTimestamp") < f.lit(until).cast("timestamp"))
    (
        archive.repartition("date", "hour")
        .sortWithinPartitions("topic", "brokerName", "queueId", "queueOffset")
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .option("maxRecordsPerFile", records_per_file_max)
        .partitionBy("date", "hour")
        .parquet(into)
    )
    with_files = archive.withColumn("file", f.input_file_name())
    before = with_files.agg(f.count("*"), f.countDistinct("date", "hour"), f.countDistinct("file")).collect()[
        0
    ]
    hours = archive.select("date", "hour").distinct()
    after = (
        spark.read.parquet(into)
        .withColumn("file", f.input_file_name())
        .join(hours, ["date", "hour"], "left_semi")
        .agg(f.count("*"), f.countDistinct("file"))
        .collect()[0]
    )
    if before[0] != after[0]:
        raise TrimtabError(
            f"{folder} has {before[0]} rows of these hours and {into} now has {after[0]}: did the archive grow meanwhile? Give `until`"
        )
    return Compacted(hours=before[1], rows=after[0], files_before=before[2], files_after=after[1])
