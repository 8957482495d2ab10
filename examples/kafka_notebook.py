"""A query from a notebook for Kafka: only the format, its address and `schemaMode` are new. Reads the topic `orders`, prints, ends."""

import sys

from trimtab.spark import session

spark = session("local[2]")
df = (
    spark.readStream.format("rocketmq")
    .option("kafka.bootstrap.servers", sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
    .option("schemaMode", "kafka")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .load()
)
counts = (
    df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "timestamp")
    .groupBy("partition")
    .count()
)
query = counts.writeStream.outputMode("complete").format("console").trigger(availableNow=True).start()
query.awaitTermination()
