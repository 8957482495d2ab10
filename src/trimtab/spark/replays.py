"""Leaving out what our sink wrote twice: a row that was sent again carries the stamp of the first time."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from trimtab.errors import SettingsError
from trimtab.spark.sink_stamps import STAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IDENTITY = "__trimtab_row"


def without_replays(df: "DataFrame", within: str) -> "DataFrame":
    """See `trimtab.spark.drop_replays`."""
    missing = {"topic", "brokerName", "queueId", "queueOffset", "properties"} - set(df.columns)
    if missing:
        names = ", ".join(sorted(missing))
        raise SettingsError(
            f"drop_replays needs the columns {names} as well; read them, and drop them afterwards"
        )
    # A message of somebody else has no stamp and is known by its place.
    place = f.concat_ws("\x01", "topic", "brokerName", "queueId", "queueOffset")
    stamped = f.concat_ws("\x01", "topic", f.element_at("properties", STAMP))
    has_stamp = f.map_contains_key("properties", STAMP)
    named = df.withColumn(_IDENTITY, f.when(has_stamp, stamped).otherwise(place))
    if not df.isStreaming:
        return named.dropDuplicates([_IDENTITY]).drop(_IDENTITY)
    late = named.withWatermark("storeTimestamp", within)
    return late.dropDuplicatesWithinWatermark([_IDENTITY]).drop(_IDENTITY)
