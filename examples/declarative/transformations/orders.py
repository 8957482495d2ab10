"""The topic `orders` as a streaming table, what it holds by tag, and large orders sent on to a topic of their own."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every message once. The name server is the one of NAMESRV_ADDR."""
    return (
        spark.readStream.format("rocketmq")
        .option("topic", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )


@dp.materialized_view
def orders_by_tag() -> DataFrame:
    """How many messages and bytes."""
    return (
        spark.read.table("orders")
        .groupBy("tag")
        .agg(f.count("*").alias("messages"), f.sum(f.octet_length("body")).alias("bytes"))
    )


dp.create_sink("large_orders", "rocketmq", {"topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """Bodies of more than 100 bytes."""
    return spark.readStream.table("orders").where(f.octet_length("body") > 100).select("body", "tag", "keys")
