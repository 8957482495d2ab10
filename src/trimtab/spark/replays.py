"""Leaving out what our sink wrote twice: a row that was sent again carries the stamp of the first time."""

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from trimtab.errors import SettingsError
from trimtab.spark.sink_stamps import STAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IDENTITY, _TURN = "__trimtab_row", "__trimtab_turn"
STORED_ORDER = ("storeTimestamp", "topic", "brokerName", "queueId", "queueOffset")
"""Messages of one millisecond are told apart, so that a batch that is read again keeps the same ones."""


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
        return first_stored(named, _IDENTITY).drop(_IDENTITY)
    late = named.withWatermark("storeTimestamp", within)
    return late.dropDuplicatesWithinWatermark([_IDENTITY]).drop(_IDENTITY)


def first_stored(df: "DataFrame", identity: str) -> "DataFrame":
    """Of the rows of a batch with one identity the one that was stored first; what is left of a queue is then in the order it had.

    Spark's own `dropDuplicates` keeps whichever comes first out of a shuffle.
    """
    order = [name for name in STORED_ORDER if name in df.columns]
    turn = f.row_number().over(Window.partitionBy(identity).orderBy(*order))
    return df.withColumn(_TURN, turn).where(f.col(_TURN) == 1).drop(_TURN)
